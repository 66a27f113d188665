"""Studies that print their tables as Markdown; the other studies of scripts/study write a folder.

techniques, technique_entries  what each of ddp_train's techniques does to bytes, time and loss on slow links
technique_runs, _pictures      its stored runs, and the tables and pictures of its page
scaling                        strong and weak scaling on this machine, from one rank on
failures                       what a killed rank costs an elastic training
summation, orders, arithmetic  how exact an all-reduce's sums are, and what changes their bits
collectives                    every algorithm of our own all-reduces, by size, ranks and link
utilisation                    how much of its time a training computes, by method, link and transport
throughput                     what emulated links carry, by iperf3 and by all-reduces
published                      every published figure beside the model and what was measured

Each command's module has TITLE, add_options(options), problem_of(given), which says in a line what cannot be, or '',
and run(given), which returns the exit status, or None for 0. given.flags is what follows "--" on the command line:
flags of ddp_train, for modules that take some. Failures are RuntimeError, OSError or ValueError.
"""
