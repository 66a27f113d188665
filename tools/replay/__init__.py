"""Execution traces played as real collectives, without the model and the accelerator that they are of.

command   the command line of scripts/replay
playing   the ranks as processes, or this one rank
report    what the play took beside what was traced

In the Python with PyTorch that the user chose:
player    one rank
"""
