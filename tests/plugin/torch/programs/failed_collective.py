"""Rank 2 ends while the others reduce more than memory and sockets hold. Argument: how it ends (endings.py). Then the
other two continue to exchange messages."""

import os
import sys

import load  # noqa: F401
import torch
import torch.distributed as dist
from endings import end, join

join()
rank = dist.get_rank()
dist.all_reduce(torch.ones(100))
if rank == 2:
    end(sys.argv[1])
try:
    dist.all_reduce(torch.ones(4_000_000))
except RuntimeError as error:
    print("error=" + str(error).replace("\n", " "))
for number in range(20):
    value = torch.full((50_000,), float(number))
    if rank == 0:
        dist.send(value, 1)
        dist.recv(value, 1)
        assert (value == number + 0.5).all()
    else:
        received = torch.zeros(50_000)
        dist.recv(received, 0)
        assert (received == value).all()
        dist.send(received + 0.5, 0)
print("went_on=yes", flush=True)
os._exit(0)
