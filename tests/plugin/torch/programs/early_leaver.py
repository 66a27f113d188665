"""Rank 2 does its part and its process ends; ranks 0 and 1 continue to exchange messages, some of them after that.
Argument: how rank 2 ends (endings.py)."""

import os
import sys
import time

import load  # noqa: F401
import torch
import torch.distributed as dist
from endings import end, join

join()
rank = dist.get_rank()
dist.all_reduce(torch.ones(100))
other = torch.zeros(4)
if rank == 2:
    dist.send(torch.full((4,), 9.0), 0)
    dist.recv(other, 0)  # it has arrived
    end(sys.argv[1])
if rank == 0:
    dist.recv(other, 2)
    dist.send(other, 2)
    assert (other == 9).all()
after = 0
while after < 30:
    elements = (1, 7_000, 400_000)[after % 3]
    if rank == 0:
        dist.send(torch.full((elements,), float(after)), 1)
        ended = torch.tensor([float(os.path.exists("ended"))])
        dist.send(ended, 1)
    else:
        received = torch.zeros(elements)
        dist.recv(received, 0)
        assert (received == after).all()
        ended = torch.zeros(1)
        dist.recv(ended, 0)
    after += int(ended.item())
    time.sleep(0.001)
# A wait for the third rank fails as soon as it begins, and names the rank.
try:
    dist.recv(other, 2)
except RuntimeError as error:
    print("error=" + str(error).replace("\n", " "))
os._exit(0)
