"""Execution traces in Chakra's format: read, written, made from traces in other formats, and checked for playing.

schema          Chakra's messages
trace           one rank's nodes; files
timeline        builds nodes from what a thread did over time
from_ddp_train, from_profiler   what ddp_train --trace and PyTorch's profiler write
plan            all ranks' nodes bound together, ready to be played by gloo_bypass_tools.replay
summary         what a trace holds, as text
command         the command line of scripts/execution-trace
"""
