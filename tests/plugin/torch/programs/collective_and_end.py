"""Runs collectives, and ends the process as soon as the last one returns. Arguments: how (endings.py), the last
collective."""

import sys

import load  # noqa: F401
import torch
import torch.distributed as dist
from endings import end, join

how, last = sys.argv[1:]
join()
size = dist.get_world_size()
tensor = torch.ones(1000)
for _ in range(20):
    tensor.fill_(1)
    dist.all_reduce(tensor)
    assert (tensor == size).all()
if last == "barrier":
    dist.barrier()
elif last == "broadcast":
    dist.broadcast(tensor, 0)
elif last == "all_gather":
    parts = [torch.zeros(1000) for _ in range(size)]
    dist.all_gather(parts, tensor)
    assert all((part == size).all() for part in parts)
else:
    tensor.fill_(1)
    dist.all_reduce(tensor)
    assert (tensor == size).all()
print("done=yes")
end(how)
