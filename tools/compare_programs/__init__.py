"""What programs of PyTorch gain: the same ones over each transport through torch.distributed, one transport a process.

command      the command line of scripts/compare-programs
interpreter  what the Python that the user chose has
measurement  ranks as processes, transports in turn, one stored run

What is measured, and a stored run's form and tables, are report's: programs, stored_programs, program_tables.

In the chosen Python, which may have nothing of ours but the package gloo_bypass:
rank         a rank: joins the group, measures one program, checks which transport had its bytes
measuring    the group and the samples that programs measure with
decoding, reduction, training  the programs
"""
