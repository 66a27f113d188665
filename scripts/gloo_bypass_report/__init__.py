"""Runs the comparison of transports and turns what it measured into tables, plots and one page.

records     reads the trainer's and the benchmark's files into data frames      (pure but for reading)
summary     medians, 99th percentiles, ratios                                   (pure)
schedule    who runs when, and how much of it fits the time given               (pure)
plots       data frames to PNG                                                  (pure)
page        everything to one HTML page                                         (pure)
table       the one table on the terminal                                       (pure)
machine     what the numbers were measured on
children    starts programs, watches them, ends them
results     the results folder: never overwritten, every file whole or absent
comparison  the measurement itself, stage by stage
command     the command lines of scripts/quickstart, compare and report
"""
