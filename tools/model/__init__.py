"""What an all-reduce should carry and how long it should take, to stand beside what was measured and what was
published.

ring          bytes and time of a ring all-reduce                                 (pure)
framing       what headers and acknowledgements add to a message, by path         (pure)
buckets       the buckets in which DDP reduces a model's gradients                (pure)
schedule      Gloo's ring, iteration by iteration, over described edges           (pure)
overlap       buckets against backward: T_ar, the exposed part, T_step            (pure)
fitting       alpha and beta from measured times                                  (pure)
planner       the bandwidth that training over several sites needs                (pure)
prediction    the model's figure for a published one (gloo_bypass_tools.report.measurements)
quantities    numbers with units, as text                                         (pure)
plot          a fit, and simulated times, as pictures                             (pure)
output        tables on the terminal, JSON to a file
volume_command, fit_command, predict_command, plan_command, published_command, simulated_command
              the subcommands: options, what is computed, what is shown
command       the command line of scripts/model

Units: seconds, bytes and bytes/s inside, unless a name says otherwise; MB is 1e6 bytes, MiB 2^20.
"""
