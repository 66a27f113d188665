"""What programs of PyTorch gain: the same ones over each transport through torch.distributed, one transport a process.

command      the command line of scripts/compare-programs
interpreter  what the Python that the user chose has
measurement  ranks as processes, transports in turn, one stored run
stored       that run: written whole, read strictly
tables       stored runs as Markdown
programs     what is measured, with which sizes                                 (pure)

In the chosen Python, which may have nothing of ours but the package gloo_bypass:
rank         a rank: joins the group, measures one program, checks which transport had its bytes
decoding, reduction, training  the programs
"""
