#!/usr/bin/env python3
"""PyTorch's own gradient compression, fp16 and PowerSGD hooks, over this project's transports; checked against training
without it.

    GLOO_DEVICE_TRANSPORT=DPDK python3 -m torch.distributed.run --nproc_per_node 2 examples/gradient_compression.py

Debian's PyTorch needs some options more: see docs/pytorch.md.
"""

import argparse

import gloo_bypass  # training needs no more of this project; the checks at the end do
import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

# Callbacks start a bucket's next all-reduces. Over Gloo, ranks must start them in the same order: use one bucket.
ONE_BUCKET_MB = 100


def train(steps, rank, register=lambda model: None):
    """Losses on data that all ranks share, and the parameters at the end."""
    torch.manual_seed(3)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64)),
        bucket_cap_mb=ONE_BUCKET_MB,
    )
    register(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    mapping = torch.randn(64, 64, generator=torch.Generator().manual_seed(4)) / 8  # the mapping to learn
    generator = torch.Generator().manual_seed(rank + 10)  # each rank has its own data
    for _ in range(steps):
        optimizer.zero_grad()
        inputs = torch.randn(32, 64, generator=generator)
        torch.nn.functional.mse_loss(model(inputs), inputs @ mapping).backward()
        optimizer.step()
    inputs = torch.randn(256, 64, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        loss = torch.nn.functional.mse_loss(model.module(inputs), inputs @ mapping).item()
    return loss, torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="training steps (40)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    untrained, _ = train(0, rank)
    plain, _ = train(options.steps, rank)
    power = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=5)
    hooks = {
        "fp16": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
        "PowerSGD": lambda model: model.register_comm_hook(power, powerSGD_hook.powerSGD_hook),
    }
    for name, register in hooks.items():
        loss, parameters = train(options.steps, rank, register)
        largest, smallest = parameters.clone(), parameters.clone()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
        assert torch.equal(largest, smallest), f"{name}: ranks hold different parameters"
        learnt = (untrained - loss) / (untrained - plain)
        assert learnt > 0.9, f"{name}: learnt only {100 * learnt:.0f} % of what training without compression does"
        if rank == 0:
            print(
                f"sum of the parameters with {name}: {parameters.double().sum().item():.12f}, loss {loss:.6f}, "
                f"without compression {plain:.6f}"
            )
    ratio, before, after = power.compression_stats()
    assert ratio > 1.5, f"PowerSGD sent {after} numbers for {before}"
    dist.barrier()
    gloo_bypass.require_transport()  # the bytes went over GLOO_DEVICE_TRANSPORT's transport
    if rank == 0:
        print(f"PowerSGD sent 1/{ratio:.1f} of the numbers")
        print(f"checked: {size} ranks with PyTorch's compression hooks agree, and learnt as without")
    # Over Gloo's TCP, PyTorch 2.6's destroy_process_group hangs now and then if another rank has ended before. Without
    # it, ranks of 2.13 abort now and then at their end.
    if gloo_bypass.stats():  # empty over Gloo's TCP
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
