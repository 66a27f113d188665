"""What an emulated link carries: beside its rate, what iperf3 and what all-reduces get through it.

cells.py        the links, and what is measured over each
iperf_rank.py   a rank of the measurement with iperf3
measurement.py  one cell
stored.py       the stored run
tables.py       Markdown
"""
