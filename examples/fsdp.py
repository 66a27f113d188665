#!/usr/bin/env python3
"""Fully sharded data parallel: each rank keeps a part of every parameter; checked against DistributedDataParallel.

    GLOO_DEVICE_TRANSPORT=DPDK python3 -m torch.distributed.run --nproc_per_node 2 examples/fsdp.py

Debian's PyTorch needs some options more: see docs/pytorch.md.

Needs a PyTorch with FSDP on CPUs: 2.6 has it, 1.13 does not (exit status 77, which test drivers read as skipped).
"""

import argparse
import gc
import sys

import gloo_bypass  # training needs no more of this project; the checks at the end do
import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)
from torch.nn.parallel import DistributedDataParallel

NOT_IN_THIS_RELEASE = 77


def new_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))


def train(model, steps, rank):
    """Outputs of the trained model for inputs that are the same on all ranks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)  # each rank has its own data
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 32, generator=generator)).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        return model(torch.linspace(-1, 1, 4 * 32).reshape(4, 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5, help="training steps (5)")
    options = parser.parse_args()
    if tuple(int(word) for word in torch.__version__.split(".")[:2]) < (2, 6):
        print(f"not checked: FSDP of PyTorch {torch.__version__} needs a GPU")
        sys.exit(NOT_IN_THIS_RELEASE)
    from torch.distributed.fsdp import FullyShardedDataParallel

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    expected = train(DistributedDataParallel(new_model()), options.steps, rank)
    model = FullyShardedDataParallel(new_model(), device_id=torch.device("cpu"))
    whole = sum(parameter.numel() for parameter in new_model().parameters())
    kept = sum(parameter.numel() for parameter in model.parameters())
    trained = train(model, options.steps, rank)

    assert kept == -(-whole // size), f"rank {rank} keeps {kept} of {whole} parameters"
    torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-5)
    dist.barrier()
    gloo_bypass.require_transport()  # the bytes went over GLOO_DEVICE_TRANSPORT's transport
    if rank == 0:
        print(f"parameters: {kept} of {whole} on rank 0")
        print(f"sum of the outputs: {trained.double().sum().item():.12f}")
        print(f"checked: {size} ranks with sharded parameters trained what they train with whole ones")
    # Over Gloo's TCP, PyTorch 2.6's destroy_process_group hangs now and then if another rank has ended before. Without
    # it, ranks of 2.13 abort now and then at their end.
    if gloo_bypass.stats():  # empty over Gloo's TCP
        del model  # it holds the group
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
