"""Studies, the published ones and sweeps of one parameter, measured over several transports through the same emulated
links, beside the model.

transports  what a study can run over, where, and what compares with what              (pure)
definition  what a study is: its points, an edge, scales                               (pure)
studies/    a file a study: its points, its model and its words                        (pure)
catalogue   finds them                                                                 (pure)
options     a study's options, and the plan that follows from them
plan        what is measured when: a plan, and its cells                               (pure)
commands    how a cell is run: fabric-run with all_reduce_perf or ddp_train            (pure)
prediction, training_prediction
            the model's times of an all-reduce; bytes and times of training            (pure)
reading     what one run of a cell left behind: times, events, counters, frames lost
estimates   how long a study takes                                                     (pure)
measurement the study itself, run by run; it reports a run that fails, and goes on with the others
continuation  going on with a study that was cut off
guest_part  what is measured in the guest of scripts/rdma-guest, in one guest for all of it
processor_share  how one rank's processor time is held down, for the stragglers
rank_probe  a program of its own: runs a rank, and samples its CPU, memory, traffic and TCP connections

What a page shows depends on the study's layout: the cells of a slow edge, the published figures of training, or a
sweep's quantities. All are rendered alike:

edge_tables, training_tables, sweep_tables, tables
            runs to tables of published, measured and modelled figures; what these share     (pure)
attribution how much of a slow edge's cost is the transport's, how much Gloo's pipeline's (pure)
columns     the transports of a table, and why one has no figures                      (pure)
traces      what a run's raw files hold over time: samples of ranks, traffic, events
edge_plots, event_plots, sweep_plots, trace_plots, matrix_plot, panels
            results of edges; events; quantities; ranks and traffic over time; who sent to whom (pure)
pictures, training_pictures
            which pictures a page has, in both themes
edge_rendering, training_rendering, sweep_rendering
            a layout's tables, pictures and words
page        the page itself; its words are in templates/                               (pure)
rendering   a results folder to tables, CSV, plots and page; run again, it draws the same again
command     the command line of scripts/study

Units: seconds and bytes unless a name says otherwise; delays are of one way.
"""
