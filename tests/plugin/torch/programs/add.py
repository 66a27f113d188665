"""One all-reduce; prints its sum."""

import load  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(tensor)
print(f"sum={tensor[0].item():g}")
