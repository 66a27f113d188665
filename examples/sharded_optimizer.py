#!/usr/bin/env python3
"""ZeRO's sharded optimiser: each rank keeps the state for a part of the parameters; checked against the optimiser
unsharded.

    GLOO_DEVICE_TRANSPORT=DPDK python3 -m torch.distributed.run --nproc_per_node 2 examples/sharded_optimizer.py

Debian's PyTorch needs some options more: see docs/pytorch.md.
"""

import argparse

import gloo_bypass  # training needs no more of this project; the checks at the end do
import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def new_model():
    torch.manual_seed(2)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    )


def train(model, optimizer, steps, rank):
    generator = torch.Generator().manual_seed(rank)  # each rank has its own data
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 32, generator=generator)).square().mean().backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def numbers_kept(optimizer):
    return sum(
        value.numel() for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="training steps (10)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    model = DistributedDataParallel(new_model())
    whole = torch.optim.Adam(model.parameters(), lr=0.01)
    expected = train(model, whole, options.steps, rank)

    model = DistributedDataParallel(new_model())
    sharded = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    trained = train(model, sharded, options.steps, rank)

    torch.testing.assert_close(trained, expected, rtol=1e-5, atol=1e-6)
    kept, all_of_it = numbers_kept(sharded.optim), numbers_kept(whole)
    assert size == 1 or kept < all_of_it, f"rank {rank} keeps all {kept} numbers of the optimiser's state"
    dist.barrier()
    gloo_bypass.require_transport()  # the bytes went over GLOO_DEVICE_TRANSPORT's transport
    if rank == 0:
        print(f"optimiser's state: {kept} of {all_of_it} numbers on rank 0")
        print(f"sum of the parameters: {trained.double().sum().item():.12f}")
        print(f"checked: {size} ranks with a sharded optimiser trained what each trains with its own")
    # Over Gloo's TCP, PyTorch 2.6's destroy_process_group hangs now and then if another rank has ended before. Without
    # it, ranks of 2.13 abort now and then at their end.
    if gloo_bypass.stats():  # empty over Gloo's TCP
        del model, sharded  # they hold the group
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
