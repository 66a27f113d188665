"""An unmodified DDP script: it does not know the plug-in (`import load` does nothing under LD_PRELOAD)."""

import gc
import hashlib

import load  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train():
    torch.manual_seed(dist.get_rank())  # DDP broadcasts rank 0's parameters
    model = DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Linear(64, 512),
            torch.nn.ReLU(),
            torch.nn.Linear(512, 512),
            torch.nn.ReLU(),
            torch.nn.Linear(512, 8),
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    for step in range(8):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64, generator=data)).square().mean()
        loss.backward()
        optimizer.step()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"parameters={digest}")
    print(f"loss={loss.item()!r}")


dist.init_process_group("gloo")
train()
gc.collect()  # the model holds the group; its threads would live until Python's end, and may abort it there (load.py)
dist.destroy_process_group()
