"""The study of our own all-reduces: every algorithm over several links, beside Gloo's ring, the model and the choice.

links        which links and ranks there are, and what is compared on each. Pure
hosts        network namespaces as hosts at one switch
measurement  the runs of all_reduce_perf
predictions  what the model says of each schedule, and what is chosen
stored       the stored run, from which everything else is made
tables       it as Markdown
picture      it as a picture a link
"""
