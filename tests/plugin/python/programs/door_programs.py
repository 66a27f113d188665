"""What people build on torch.distributed, over the backend that argument 1 names. Each case prints its name and
numbers, which are the same over every backend."""

import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))


def batch(rank, step):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(100 * step + rank))


def train(wrapped, rank, steps=4, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(wrapped.parameters(), 0.05)
    for step in range(steps):
        optimizer.zero_grad()
        wrapped(batch(rank, step)).square().mean().backward()
        optimizer.step()


def total(parameters):
    return sum(parameter.detach().double().abs().sum().item() for parameter in parameters)


@case
def ddp(rank, size):
    plain = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.001)
    train(plain, rank)
    return total(plain.parameters())


@case
def ddp_hooks(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    results = []
    for state, hook in (
        (None, default_hooks.allreduce_hook),
        (None, default_hooks.fp16_compress_hook),
        (powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook),
    ):
        hooked = nn.parallel.DistributedDataParallel(model())
        hooked.register_comm_hook(state, hook)
        train(hooked, rank)
        results.append(total(hooked.parameters()))
    return results


@case
def ddp_join(rank, size):
    joined = nn.parallel.DistributedDataParallel(model())
    with joined.join():
        train(joined, rank, steps=2 + rank)
    return total(joined.parameters())


@case
def ddp_sparse(rank, size):
    torch.manual_seed(3)
    embedding = nn.parallel.DistributedDataParallel(nn.EmbeddingBag(20, 4, sparse=True, mode="sum"))
    optimizer = torch.optim.SGD(embedding.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        embedding(torch.tensor([[rank, step + 1, 2 * rank]])).sum().backward()
        optimizer.step()
    return total(embedding.parameters())


@case
def ddp_no_sync_and_buffers(rank, size):
    torch.manual_seed(1)
    wrapped = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)), find_unused_parameters=True
    )
    with wrapped.no_sync():
        wrapped(batch(rank, 0)).sum().backward()
    train(wrapped, rank)
    return total([*wrapped.parameters()])


@case
def zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    wrapped = nn.parallel.DistributedDataParallel(model())
    train(wrapped, rank, optimizer=ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=0.01))
    return total(wrapped.parameters())


@case
def fsdp(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrapped = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    train(wrapped, rank)
    with FullyShardedDataParallel.summon_full_params(wrapped):
        return total(wrapped.parameters())


@case
def fsdp2_and_checkpoint(rank, size):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    sharded = model()
    fully_shard(sharded[0], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    train(sharded, rank, optimizer=torch.optim.Adam(sharded.parameters(), 0.01))
    before = total(parameter.full_tensor() for parameter in sharded.parameters())
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    checkpoint.save({"model": sharded.state_dict()}, checkpoint_id=folder[0])
    state = {"model": {name: torch.zeros_like(value) for name, value in sharded.state_dict().items()}}
    checkpoint.load(state, checkpoint_id=folder[0])
    return [before, total(value.full_tensor() for value in state["model"].values())]


@case
def tensor_parallel(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (size,))
    parallel = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(parallel, 0)
    spread = distribute_tensor(torch.arange(24.0).view(6, 4), mesh, [Shard(0)])
    turned = spread.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()])
    assert isinstance(turned, DTensor)
    with torch.no_grad():
        return [parallel(batch(0, 9)).double().sum().item(), turned.to_local().sum().item()]


@case
def functional(rank, size):
    import torch.distributed._functional_collectives as functional

    group, tensor = dist.group.WORLD, torch.arange(4.0 * size) + rank
    results = [
        functional.all_reduce(tensor, "sum", group),
        functional.all_gather_tensor(tensor, 0, group),
        functional.reduce_scatter_tensor(tensor, "sum", 0, group),
        functional.all_to_all_single(tensor, None, None, group),
        functional.broadcast(tensor, size - 1, group),
        *functional.all_reduce_coalesced([tensor, tensor + 1], "sum", group),
    ]
    compiled = torch.compile(lambda value: functional.all_reduce(value * 2, "sum", group) + 1, backend="aot_eager")
    results.append(compiled(tensor))
    counted = torch.compile(
        lambda value: value / group.size() + group.rank() + dist.get_world_size(), backend="eager", fullgraph=True
    )
    results.append(counted(tensor))
    return [(result + 0).double().sum().item() for result in results]


@case
def post_local_sgd(rank, size):
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    local, averager = model(), PeriodicModelAverager(period=1)
    train(local, rank, steps=1)
    averager.average_parameters(local.parameters())
    return total(local.parameters())


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group(sys.argv[1])
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in sys.argv[2:] or CASES:
        result = CASES[name](rank, size)
        numbers = result if isinstance(result, list) else [result]
        print(f"{name}={' '.join(f'{number:.5g}' for number in numbers)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
