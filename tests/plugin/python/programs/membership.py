"""How groups of ours come about: without a backend's name, and beside others. One case a run."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

SIZE = int(os.environ["WORLD_SIZE"])
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def is_ours(group):
    return type(group).__module__.startswith("gloo_bypass.")


def check(group, size, number=1):
    tensor = torch.full((3,), float(number))
    group.allreduce([tensor]).wait()
    assert tensor.tolist() == [float(number * size)] * 3, tensor


def answers_like_gloo():
    """What the program asks about its group, compared with what PyTorch says for the same words over Gloo."""
    return dist.get_backend(), dist.get_backend_config()


@case
def no_backend():
    """init_process_group() chooses Gloo for CPUs, so do groups that follow. GLOO_BYPASS_COLLECTIVES=own."""
    dist.init_process_group()
    groups = [dist.group.WORLD, dist.new_group(), dist.new_group(list(range(SIZE)))]
    assert all(is_ours(group) for group in groups)
    assert answers_like_gloo() == ("undefined", "cpu:gloo"), answers_like_gloo()
    for group in groups:
        check(group, SIZE)
    dist.monitored_barrier()


@case
def no_backend_is_gloos():
    """Without the setting."""
    dist.init_process_group()
    assert not is_ours(dist.group.WORLD) and answers_like_gloo() == ("undefined", "cpu:gloo")


@case
def mesh():
    """init_device_mesh() makes the default group itself, as "undefined"."""
    whole = init_device_mesh("cpu", (SIZE,))
    assert is_ours(dist.group.WORLD) and is_ours(whole.get_group())
    check(whole.get_group(), SIZE)
    grid = init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("replica", "shard"))
    for name, size in (("replica", SIZE // 2), ("shard", 2)):
        assert is_ours(grid.get_group(name)) and grid.get_group(name).size() == size
        check(grid.get_group(name), size)
    check(grid["replica", "shard"]._flatten().get_group(), SIZE)


@case
def two_backends():
    """ "cpu:gloo,cuda:nccl" without a GPU; another stands for NCCL."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers the backend "fake"

    said = "cpu:gloo,cuda:fake"
    dist.init_process_group(said)
    groups = [dist.group.WORLD, dist.new_group(), dist.new_group(backend=said)]
    for group in groups:
        assert is_ours(group) and not is_ours(group._get_backend(torch.device("cuda")))
        check(group, SIZE)
    assert answers_like_gloo() == (said, said), answers_like_gloo()
    alone = dist.new_group(backend="gloo")
    assert is_ours(alone) and dist.get_backend(alone) == "gloo"
    check(alone, SIZE)


def main():
    torch.set_num_threads(1)
    CASES[sys.argv[1]]()
    dist.destroy_process_group()
    print("end=ok")


if __name__ == "__main__":
    main()
