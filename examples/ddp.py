#!/usr/bin/env python3
"""Data-parallel training with DistributedDataParallel, checked against the same training in one process.

    GLOO_DEVICE_TRANSPORT=DPDK python3 -m torch.distributed.run --nproc_per_node 2 examples/ddp.py

Debian's PyTorch needs some options more: see docs/pytorch.md.
"""

import argparse

import gloo_bypass  # training needs no more of this project; the checks at the end do
import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)
from torch.nn.parallel import DistributedDataParallel


def new_model():
    torch.manual_seed(1)  # every rank, and the check below, start with the same parameters
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))


def batch(step, size):
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(size, 32, generator=generator), torch.randn(size, 8, generator=generator)


def train(model, steps, size, part=slice(None)):
    """SGD on `part` of each batch of `size` samples."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        inputs, targets = batch(step, size)
        optimizer.zero_grad()
        # DDP averages the gradients meanwhile
        torch.nn.functional.mse_loss(model(inputs[part]), targets[part]).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="training steps (10)")
    parser.add_argument("--batch", type=int, default=8, help="samples of each rank in a step (8)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = slice(rank * options.batch, (rank + 1) * options.batch)
    trained = train(DistributedDataParallel(new_model()), options.steps, size * options.batch, mine)

    # All ranks must have the same bits, and one process with the whole batch the same numbers up to rounding.
    everyone = [torch.empty_like(trained) for _ in range(size)]
    dist.all_gather(everyone, trained)
    assert all(torch.equal(trained, other) for other in everyone), "ranks have different parameters"
    alone = train(new_model(), options.steps, size * options.batch)
    torch.testing.assert_close(trained, alone, rtol=1e-4, atol=1e-5)
    dist.barrier()
    gloo_bypass.require_transport()  # the bytes went over GLOO_DEVICE_TRANSPORT's transport
    if rank == 0:
        sent = {name: counters["bytes_sent"] for name, counters in gloo_bypass.stats().items()}
        print(f"bytes sent by rank 0: {sent or 'not counted over TCP'}")
        print(f"sum of the parameters: {trained.double().sum().item():.12f}")
        print(f"checked: {size} ranks trained the model that one process trains")
    # Over Gloo's TCP, PyTorch 2.6's destroy_process_group hangs now and then if another rank has ended before. Without
    # it, ranks of 2.13 abort now and then at their end.
    if gloo_bypass.stats():  # empty over Gloo's TCP
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
