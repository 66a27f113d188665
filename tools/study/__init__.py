"""Studies, the published ones and sweeps of one parameter, measured over several transports through the same emulated
links, beside the model.

transports  what a study can run over, where, and what compares with what              (pure)
studies/    a file a study: its points, its model and its words                        (pure)
catalogue   finds them                                                                 (pure)
study       what every study says of itself                                            (pure)
edge_study  what studies of one slow edge have in common                               (pure)
cells       what is measured when: one cell a variant, segment size, loss, transport   (pure)
prediction  the model's times of a cell                                                (pure)
reading     what one run of a cell left behind: times, TCP's state, counters, frames lost
attribution how much of a slow edge's cost is the transport's, how much Gloo's pipeline's (pure)
tables      cells and runs to tables of published, measured and modelled figures       (pure)
columns     the transports of a table, and why one has no figures                      (pure)
traces      what a run's raw files hold over time: samples of ranks, traffic, events
plots, event_plots, trace_plots, matrix_plot, panels
            results of edges; events; ranks and traffic over time; who sent to whom    (pure)
pictures, edge_pictures, training_pictures
            which pictures a study's page has, in both themes
page        what the pages of all kinds have in common; their words are in templates/  (pure)
edge_rendering  of a study of one edge: its tables, plots and page
training, training_reading, training_prediction, training_tables, training_rendering
            the same for the studies of training: ddp_train under capture, beside the published tables; over a slow edge
            its times too
sweeps, sweep_cells, sweep_prediction, sweep_reading, sweep_tables, sweep_plots, sweep_rendering
            the same for the sweeps, of one parameter each: all-reduces or training, whichever program it takes
processor_share  how one rank's processor time is held down, for the stragglers
options     the options of each kind of study, and the plans that they make
rendering   a results folder to tables, CSV, plots and page; run again, it draws the same again
rank_probe  a program of its own: runs a rank, and samples its CPU, memory, traffic and TCP connections
measurement the study itself, run by run; a run that fails is said and the others go on
estimates   how long a study takes                                                     (pure)
guest_part  what is measured in the guest of scripts/rdma-guest, in one guest for all of it
command     the command line of scripts/study

Units: seconds and bytes unless a name says otherwise; delays are of one way.
"""
