"""Each rank sends to the next one; arguments: elements of a message, and "pairs" where 0 sends to 1 and 2 to 3 only."""

import sys

import load
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
pairs = [(a, a + 1) for a in range(0, size, 2)] if len(sys.argv) > 2 else [(a, (a + 1) % size) for a in range(size)]
for number in range(8):
    tensor = torch.full((int(sys.argv[1]),), float(rank + number))
    received = torch.zeros_like(tensor)
    works = [dist.isend(tensor, b) for a, b in pairs if a == rank]
    works += [dist.irecv(received, a) for a, b in pairs if b == rank]
    for work in works:
        work.wait()
    for a, b in pairs:
        assert b != rank or (received == a + number).all(), "wrong elements"
load.leave_together()
print("done=yes")
