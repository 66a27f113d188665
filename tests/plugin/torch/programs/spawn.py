"""Starts two ranks by multiprocessing's spawn: new processes of Python, with this one's environment."""

import os

import load  # noqa: F401
import torch
import torch.distributed as dist
import torch.multiprocessing


def main(rank, folder):
    store = dist.FileStore(os.path.join(folder, "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    assert (tensor == 2).all()
    dist.barrier()


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, (os.getcwd(),), nprocs=2)
    print("spawned=right")
