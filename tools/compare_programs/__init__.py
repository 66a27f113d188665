"""What programs of PyTorch gain: the same ones over each transport through torch.distributed, one transport a process.

command      the command line of scripts/compare-programs
encryption   keys and certificates of ranks whose transport encrypts
libraries    other libraries' all-reduces, which stand among the transports
measurement  ranks as processes, transports in turn, one stored run

What is measured, and a stored run's form and tables, are report's: programs, stored_programs, program_tables.

In the chosen Python, which may have nothing of ours but the package gloo_bypass:
rank         a rank: joins the group, measures one program, checks which transport had its bytes
decoding, reduction, training  the programs

There, or in the Python of another library:
vectors      all-reduces one after the other, by any library
measuring    the samples that ranks measure with
library_rank  a rank of another library
"""
