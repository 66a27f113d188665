"""How groups of ours come about and change: without a backend's name, merged, split, reconfigured. One case a run."""

import datetime
import os
import pathlib
import sys
import time
import types
import warnings

import torch
import torch.distributed as dist
from stores import tcp_store
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh

CPU = torch.device("cpu")
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MINUTE = datetime.timedelta(seconds=60)
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def is_ours(group):
    return type(group).__module__.startswith("gloo_bypass.")


def raised(kind, call):
    """The exception's text."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind} was raised")


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
def default_group_is_another():
    """As programs for GPUs have it, whose group for CPUs comes second."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers the backend "fake"

    dist.init_process_group("cuda:fake")
    for _ in range(2):
        group = dist.new_group(backend="gloo")
        assert is_ours(group)
        check(group, SIZE)


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


@case
def timeout_is_set():
    """PyTorch's function for it knows NCCL's and Gloo's."""
    dist.init_process_group("bypass")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c10d._set_pg_timeout(datetime.timedelta(seconds=1), dist.group.WORLD)
    assert dist.group.WORLD.options._timeout == datetime.timedelta(seconds=1)
    began = time.monotonic()
    if RANK == 0:
        raised(dist.DistNetworkError, lambda: dist.all_reduce(torch.ones(1)))
        assert 0.5 < time.monotonic() - began < 30
        pathlib.Path("timed-out").touch()
    while not pathlib.Path("timed-out").exists():  # bounded by the test
        time.sleep(0.01)


@case
def merged():
    """Every rank is a program of its own, and they become one group."""
    dist.init_process_group("bypass", store=dist.HashStore(), rank=0, world_size=1)
    is_first = RANK == 0
    store = tcp_store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, is_first)
    group = dist.group.WORLD.merge_remote_group(dist.PrefixStore("merge", store), SIZE, MINUTE, "all", "of all")
    assert is_ours(group) and group.size() == SIZE and (group.group_name, group.group_desc) == ("all", "of all")
    check(group, SIZE)
    ranks = [torch.zeros(1) for _ in range(SIZE)]
    group.allgather([ranks], [torch.tensor([float(group.rank())])]).wait()
    assert ranks == [torch.tensor([float(rank)]) for rank in range(SIZE)], ranks
    group.barrier().wait()
    group.shutdown()
    store.set(f"left-{RANK}", "")
    if is_first:
        store.wait([f"left-{rank}" for rank in range(SIZE)])


@case
def split():
    dist.init_process_group("bypass")
    group = dist.group.WORLD
    ranks = [[0, 1], list(range(2, SIZE))][RANK >= 2]
    options = group.options
    part = group.split_group(ranks[::-1], opts=options)
    assert part.options._timeout == options._timeout
    keeps = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)  # the list's order, as Gloo's groups do
    assert part.rank() == (ranks[::-1] if keeps else ranks).index(RANK) and part.size() == len(ranks)
    assert part.group_desc == "default_pg:split:0" and part.get_group_store() is not group.get_group_store()
    check(part, len(ranks))
    assert (group.split_group([0]) is None) == (RANK != 0)
    check(group, SIZE)


class StandsForNccl(dist.ProcessGroupGloo):
    """NCCL's needs a GPU."""

    class Options(dist.ProcessGroupGloo._Options):
        split_from = split_color = None

        def __deepcopy__(self, memo):
            return type(self)()

    supports_splitting = True

    def __init__(self, store, rank, size, options):
        super().__init__(store, rank, size, timeout=options._timeout)
        self.made_with, self.split_without, self.connected = options, [], []

    @property
    def options(self):
        return self.made_with

    def perform_nocolor_split(self, device):
        self.split_without.append(device)

    def eager_connect_single_device(self, device):
        self.connected.append(device)


@case
def beside_nccl():
    """Groups split its communicator at all ranks, at those that are not in them too: NCCL waits for these."""
    dist.ProcessGroupNCCL, cuda = StandsForNccl, torch.device("cuda", 0)
    dist.init_process_group("cpu:bypass,cuda:nccl")
    world = dist.group.WORLD
    nccl, world.bound_device_id = world._get_backend(cuda), cuda
    assert nccl.made_with.split_from is None
    if hasattr(torch, "accelerator"):  # dist.split_group() of later PyTorch asks for the machine's
        torch.accelerator.is_available, torch.accelerator.current_accelerator = lambda: True, lambda: cuda
    for make in (
        lambda: dist.new_group([0]),
        lambda: world.split_group([0]),
        lambda: dist.split_group(split_ranks=[[0]]),
        lambda: world.split_group([0, 1]),
        lambda: dist.split_group(split_ranks=[[1], [0]]),
    ):
        nccl.split_without.clear()
        group = make()
        if group in (None, dist.GroupMember.NON_GROUP_MEMBER):
            assert RANK == 1 and nccl.split_without == [cuda]
            continue
        backend = group._get_backend(cuda)
        ranks = [0, 1] if group.size() == SIZE else [RANK]
        assert is_ours(group) and backend.made_with.split_from is nccl and nccl.split_without == []
        assert backend.made_with.split_color == c10d._process_group_color(ranks)
        assert backend.made_with.group_name == group.group_name and backend.connected == [cuda]
        check(group, len(ranks))
        check(backend, len(ranks))


def exchanged(store, generation, ranks):
    """Their handles; this rank's among what it publishes."""
    store.set(f"{generation}-{RANK}", dist._get_reconfigure_handle())
    return [store.get(f"{generation}-{rank}").decode() for rank in ranks]


def reconfigure(uuid, handles, group=None):
    work = dist._reconfigure(uuid=uuid, handles=handles, group=group, timeout=MINUTE)
    assert work.wait()


@case
def operations_keep_the_groups_time():
    """What reconfigure() may take is not what they may."""
    dist.init_process_group("bypass", timeout=MINUTE)
    group, store = dist.group.WORLD, dist.PrefixStore("handles", c10d._get_default_store())
    store.set(f"{RANK}", group.get_reconfigure_handle())
    handles = [store.get(f"{rank}").decode() for rank in range(SIZE)]
    meeting = types.SimpleNamespace(uuid=1, handles=handles, timeout=MINUTE / 12)
    assert group.reconfigure(meeting).wait()
    if RANK == 0:
        time.sleep(6)  # longer than that
    check(group, SIZE)


@case
def reconfigured():
    """A group without ranks gets some, loses one, and gets another order. PyTorch 2.14."""
    dist.init_process_group("bypass", enable_reconfigure=True)
    group, store = dist.group.WORLD, dist.PrefixStore("handles", c10d._get_default_store())
    assert is_ours(group) and dist._supports_reconfigure()
    assert "call reconfigure() first" in raised(RuntimeError, lambda: dist.all_reduce(torch.ones(1)))

    def handles_of(generation, ranks):
        return exchanged(store, generation, ranks)

    everybody = range(SIZE)
    handles = handles_of(0, everybody)
    reconfigure(10, handles)
    assert (group.rank(), group.size()) == (RANK, SIZE) and group._get_sequence_number_for_group() == 0
    check(group, SIZE)
    # Everybody but the first, in reverse.
    left = list(everybody)[:0:-1]
    handles = handles_of(1, everybody)
    rest = [handles[rank] for rank in left]
    if RANK == 0:
        assert "not part of the new communicator" in raised(RuntimeError, lambda: reconfigure(11, rest))
    else:
        reconfigure(11, rest)
        assert (group.rank(), group.size()) == (left.index(RANK), SIZE - 1)
        check(group, SIZE - 1)
        works = [dist.all_reduce(torch.ones(5), async_op=True) for _ in range(5)]
        for work in works:
            work.wait()
        dist.barrier()
    # All again; a set is sorted by the backend.
    handles = handles_of(2, everybody)
    reconfigure(12, set(handles))
    assert group.size() == SIZE and group.rank() == sorted(handles).index(dist_handle(handles))
    check(group, SIZE)
    dist.barrier()
    if group.rank() == 0:
        own = [dist._get_reconfigure_handle()]
        assert "already used" in raised(RuntimeError, lambda: reconfigure(12, own))
        assert "at least one" in raised(RuntimeError, lambda: reconfigure(13, []))
        assert "unique" in raised(RuntimeError, lambda: reconfigure(13, own * 2))
        assert "Invalid" in raised(RuntimeError, lambda: reconfigure(13, [*own, "gloo:0"]))
    check(group, SIZE)


def dist_handle(handles):
    """This rank's of before: the one that names it."""
    return next(handle for handle in handles if handle.split(":")[3] == str(RANK))


@case
def a_rank_comes_and_dies():
    """A rank joins those that have split and met before; once it has died, the others go on. PyTorch 2.14."""
    dead = SIZE - 1
    dist.init_process_group("bypass", enable_reconfigure=True)
    group, store = dist.group.WORLD, dist.PrefixStore("handles", c10d._get_default_store())

    def handles_of(generation, ranks):
        return exchanged(store, generation, ranks)

    def split_and_barrier(size):
        check(group.split_group(list(range(size))), size)
        group.monitored_barrier(MINUTE)

    # The newcomer has no past with the others.
    newcomer, first = dead, range(dead)
    if RANK != newcomer:
        reconfigure(1, handles_of(0, first))
        split_and_barrier(dead)
        store.set(f"met-{RANK}", "")
    store.wait([f"met-{rank}" for rank in first])
    reconfigure(2, handles_of(1, range(SIZE)))
    check(group, SIZE)
    split_and_barrier(SIZE)
    assert group.options.global_ranks_in_group == list(range(SIZE))
    if RANK == dead:
        store.set("dies", "")
        print("end=ok", flush=True)
        os._exit(0)
    store.wait(["dies"])
    assert f"rank {dead}" in raised(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(1)))
    began = time.monotonic()
    reconfigure(3, handles_of(2, range(dead)))
    print(f"seconds={time.monotonic() - began:.3f}")
    check(group, dead)


def main():
    torch.set_num_threads(1)
    CASES[sys.argv[1]]()
    dist.destroy_process_group()
    print("end=ok")


if __name__ == "__main__":
    main()
