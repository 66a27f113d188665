"""All-reduces of 16 MiB with checked sums. Argument: how many."""

import sys

import load  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
pattern = torch.arange(4 << 20, dtype=torch.float32) % 1000
for number in range(int(sys.argv[1])):
    tensor = pattern + (rank + number)
    dist.all_reduce(tensor)
    wanted = size * (pattern + number) + size * (size - 1) // 2
    assert torch.equal(tensor, wanted), "a wrong sum"
