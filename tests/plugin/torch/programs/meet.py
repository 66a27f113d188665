"""One all-reduce between ranks that meet by the argument, an init_method of PyTorch's."""

import os
import sys

import load  # noqa: F401
import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=size)
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert (tensor == size).all()
dist.barrier()
