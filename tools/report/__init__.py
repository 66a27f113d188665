"""Runs the comparison of transports and turns what it measured into tables, plots and one page.

records     reads the trainer's and the benchmark's files into data frames      (pure but for reading)
measurements  reads and checks the file of published figures
published   the published figures that ours stand beside
summary     medians, 99th percentiles, ratios                                   (pure)
steadiness  whether the machine was steady while transports took turns          (pure)
programs, stored_programs, program_tables, program_rows   what scripts/compare-programs measures, and how it is shown
memory_rates  how fast the machine copies and adds; a program of its own, too
place       where all transports compared are measured: here, or in the guest   (pure)
schedule    who runs when, and how much of it fits the time given               (pure)
plots       data frames to PNG                                                  (pure)
page        everything to one HTML page                                         (pure)
table       the one table on the terminal                                       (pure)
machine     what the numbers were measured on
rdma_ports  the active ports of RDMA devices
write_bandwidth  a program of its own: what an adapter does, by perftest's ib_write_bw
lines       progress as plain lines, with nothing but Python's own library
display     the same with a bar on a terminal
results     the results folder: never overwritten, every file whole or absent
stages      a measurement's record, and the programs that it runs as its stages
comparison  the measurement itself, stage by stage
guest       the same inside the guest of scripts/rdma-guest
command     the command lines of scripts/quickstart, compare and report
"""
