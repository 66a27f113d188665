"""What our process group does that is not a comparison with Gloo: one case a run, named by the first argument."""

import atexit
import concurrent.futures
import datetime
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
import weakref

import torch
import torch.distributed as dist
from asleep import send_once_asleep
from stores import tcp_store
from torch.distributed import _functional_collectives as functional_collectives

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def seconds(number):
    return datetime.timedelta(seconds=number)


def start(backend="bypass", timeout=60, **more):
    dist.init_process_group(backend, timeout=seconds(timeout), **more)
    return dist.get_rank(), dist.get_world_size()


def raised(kind, call):
    """The exception's text."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind} was raised")


def wait_until(condition):
    """The test bounds the wait."""
    while not condition():
        time.sleep(0.01)


def wait_for_file(name):
    """From another rank."""
    wait_until(lambda: os.path.exists(name))


def touch(name):
    with open(name, "w"):
        pass


@case
def beyond_gloo():
    rank, size = start()
    average = torch.full((5,), float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG)
    assert average.tolist() == [(size - 1) / 2] * 5
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [True, True, False]
    stacked = torch.zeros(size, 3)
    dist.all_gather_into_tensor(stacked, torch.full((3,), float(rank)))
    assert stacked.tolist() == [[float(peer)] * 3 for peer in range(size)]
    outputs = [torch.zeros(peer + 1) for peer in range(size)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    assert [output.tolist() for output in outputs] == [[float(peer)] * (peer + 1) for peer in range(size)]
    outputs = [torch.zeros(2) for _ in range(size)]
    dist.all_to_all(outputs, [torch.full((2,), 10.0 * rank + peer) for peer in range(size)])
    assert [output[0].item() for output in outputs] == [10.0 * peer + rank for peer in range(size)]
    kept = torch.full((4,), float(rank))
    dist.reduce(kept, size - 1)
    assert kept[0] == (size * (size - 1) / 2 if rank == size - 1 else rank)
    group = dist.group.WORLD
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    group.allgather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), -float(rank))]).wait()
    assert [(a[0].item(), b[0].item()) for a, b in lists] == [(float(peer), -float(peer)) for peer in range(size)]
    sums = [torch.zeros(2), torch.zeros(3)]
    group.reduce_scatter_tensor_coalesced(sums, [torch.ones(2 * size), torch.ones(3 * size)]).wait()
    assert sums[0][0] == sums[1][0] == size
    eights = torch.full((4,), rank).to(torch.float8_e4m3fn)
    group.broadcast([eights]).wait()
    assert eights.float().tolist() == [0.0] * 4
    for call in (
        lambda: group.allreduce(torch.ones(1)),
        lambda: group.allreduce(torch.tensor(1.0)),
        lambda: group.allreduce(torch.tensor(1.0), dist.AllreduceOptions()),
        lambda: group.allreduce([torch.ones(1)], dist.ReduceOp.SUM),
        lambda: group.broadcast(torch.ones(1), 0),
        lambda: group.barrier(),
    ):
        assert call().wait()


def tensors_without_memory(size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    return [distribute_tensor(torch.ones(4), init_device_mesh("cpu", (size,)), [Replicate()]), freed]


@case
def wrong_arguments():
    rank, size = start()
    one = torch.ones(4)
    group = dist.group.WORLD
    assert "elements" in raised(ValueError, lambda: dist.all_gather_into_tensor(torch.zeros(4 * size + 1), one))
    assert "Output list size should be" in raised(ValueError, lambda: dist.all_gather([one] * (size + 1), one))
    assert "elements" in raised(ValueError, lambda: dist.reduce_scatter_tensor(one, torch.ones(4 * size + 1)))
    assert "the same type" in raised(ValueError, lambda: group.allreduce_coalesced([one, one.double()]))
    assert "rows" in raised(
        ValueError, lambda: dist.all_to_all_single(torch.zeros(4 * size), torch.ones(4 * size), [1] * size, [4] * size)
    )
    assert "PREMUL" in raised(ValueError, lambda: dist.all_reduce(one, torch.distributed._make_nccl_premul_sum(2.0)))
    assert "cannot be reduced" in raised(ValueError, lambda: group.allreduce([one.to(torch.float8_e4m3fn)]))
    for tensor, reduction in ((one.long(), dist.ReduceOp.AVG), (one, dist.ReduceOp.BAND)):
        assert "is not defined for" in raised(ValueError, lambda: dist.all_reduce(tensor, reduction))
        started = dist.all_reduce(tensor, reduction, async_op=True)
        assert "is not defined for" in raised(ValueError, started.wait)
    whole = torch.ones(4 * size)
    for call, outputs, inputs in (
        (group.allgather_into_tensor_coalesced, [whole], [one, one]),
        (group.allgather_into_tensor_coalesced, [whole, whole], [one]),
        (group.reduce_scatter_tensor_coalesced, [one], [whole, whole]),
        (group.reduce_scatter_tensor_coalesced, [one, one], [whole]),
    ):
        assert "the same length" in raised(ValueError, lambda: call(outputs, inputs))
    for call in (
        lambda: group.allgather_into_tensor_coalesced([], []),
        lambda: group.reduce_scatter_tensor_coalesced([], []),
        lambda: group.allgather_coalesced([[]] * size, []),
    ):
        assert "non-empty" in raised(ValueError, call)
    assert "COO" in raised(ValueError, lambda: dist.all_reduce(torch.eye(3).to_sparse_csr()))
    assert "peer" in raised(ValueError, lambda: group.send([one], size, 0))
    raised(RuntimeError, lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG))
    raised(RuntimeError, lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    for tensor in tensors_without_memory(size):
        for call in (
            lambda: dist.all_reduce(tensor),
            lambda: dist.all_reduce(tensor, async_op=True),
            lambda: dist.broadcast(tensor, 0),
            lambda: dist.all_gather_into_tensor(whole, tensor),
            lambda: group.allreduce_coalesced([tensor]),
            lambda: group.send([tensor], 1 - rank, 0),
        ):
            assert "no memory of its own" in raised(ValueError, call)
    dist.all_reduce(one)  # nothing of that has reached the others
    assert one[0] == size


@case
def names():
    rank, size = start()
    group = dist.group.WORLD
    assert (dist.get_backend(), group.name(), group.rank(), group.size()) == ("bypass", "bypass", rank, size)
    assert group.group_name and group.group_desc == "default_pg" and group._device_types[0] == torch.device("cpu")
    pairs = [dist.new_group([0, 1], group_desc="pair"), dist.new_group([size - 1])]
    if rank < 2:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=pairs[0])
        assert tensor == 2 and pairs[0].group_desc == "pair" and type(pairs[0]) is type(group)
    halves = group.split_group(
        [rank // 2 * 2, min(rank // 2 * 2 + 1, size - 1)] if size % 2 == 0 else list(range(size))
    )
    tensor = torch.ones(1)
    halves.allreduce([tensor]).wait()
    assert tensor == (2 if size % 2 == 0 else size)
    dist.destroy_process_group(pairs[0]) if rank < 2 else None
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    start("cpu:bypass")
    dist.all_reduce(tensor)
    dist.destroy_process_group()


@case
def gloo_is_ours():
    rank, size = start("gloo")
    group = dist.group.WORLD
    import gloo_bypass._process_group as ours

    assert isinstance(group, ours.ProcessGroup) and dist.get_backend() == "gloo" and group.name() == "bypass"
    dist.monitored_barrier()
    further = dist.new_group()
    assert isinstance(further, ours.ProcessGroup) and dist.get_backend(further) == "gloo"
    mixed = dist.new_group(backend="cpu:gloo,meta:gloo")
    assert isinstance(mixed, ours.ProcessGroup)
    tensor = torch.ones(3)
    for each in group, further, mixed:
        dist.all_reduce(tensor, group=each)
    assert tensor[0] == size**3


@case
def gloo_is_gloos():
    start("gloo")
    assert type(dist.group.WORLD) is dist.ProcessGroup and "gloo_bypass._process_group" not in sys.modules


@case
def transport_is_required():
    """With nothing set: here, and as if each rank had a host of its own."""
    import gloo_bypass

    start()
    dist.all_reduce(torch.ones(1000))
    gloo_bypass.require_transport()
    counters = gloo_bypass.stats()["MEMORY"]
    gloo_bypass._stats.stats = lambda: {"DPDK": counters}
    gloo_bypass.require_transport()
    gloo_bypass._stats.stats = lambda: {"UDP": counters}
    assert "came over UDP" in raised(RuntimeError, gloo_bypass.require_transport)


@case
def transports_are_named():
    import gloo_bypass

    start()
    dist.all_reduce(torch.ones(1000))
    gloo_bypass.require_transport(" memory , dpdk")
    assert "'DPKD' is no transport" in raised(ValueError, lambda: gloo_bypass.require_transport("dpkd"))


@case
def alone_and_destroyed():
    """One rank has nothing to send, also once its group is gone."""
    import gloo_bypass

    start()
    dist.destroy_process_group()
    gloo_bypass.require_transport()


@case
def default_device_is_another():
    """The tensors that we make are the host's."""
    from gloo_bypass import _devices

    rank, size = start()
    with torch.device("meta"):
        dist.barrier()
        sparse = torch.sparse_coo_tensor([[rank]], torch.ones(1, device="cpu"), (size,), device="cpu")
        dist.all_reduce(sparse)
        assert object.__new__(_devices.Cuda).host_memory(64, False).is_cpu
    assert sparse.to_dense().tolist() == [1.0] * size


@case
def in_flight_works_are_known():
    """To functions that PyTorch compiles: what they are given is waited for."""
    _, size = start()
    for elements in 3, 1 << 21:
        with functional_collectives.allow_inflight_collective_as_graph_input_ctx():
            tensor = torch.ones(elements)
            dist.all_reduce(tensor, async_op=True)
            result = torch.ops._c10d_functional.wait_tensor(tensor) * tensor
        assert result.unique().tolist() == [size * size]


@case
def quantized():
    rank, size = start()
    for dtype in torch.quint8, torch.qint32:
        tensor = torch.quantize_per_tensor(torch.ones(4), 0.5, 0, dtype)
        for call in (
            lambda: dist.broadcast(tensor, 0),
            lambda: dist.all_gather([tensor] * size, tensor),
            lambda: dist.send(tensor, 1 - rank),
        ):
            assert f"{dtype} cannot be sent: its scale" in raised(ValueError, call)
    dist.barrier()


@case
def monitored_barriers_leave_little():
    """In the store."""
    start()
    store = dist.group.WORLD._own_store

    def keys_after(barriers):
        for _ in range(barriers):
            dist.monitored_barrier()
        dist.barrier()
        number = store.num_keys()
        dist.barrier()  # nobody begins the next one before all have asked
        return number

    before, after = keys_after(3), keys_after(20)
    assert after <= before, (before, after)
    if dist.get_rank() == 0:
        dist.monitored_barrier(timeout=datetime.timedelta.max)
    else:
        dist.monitored_barrier()


@case
def monitored_barrier_reads_a_hostile_store():
    start()
    if dist.get_rank() == 0:
        store = dist.group.WORLD._own_store
        store.set("monitored-1/begun", "")
        store.set("monitored-1/go", b"\x1b[31m\nred\xff")
    dist.barrier()
    if dist.get_rank() == 1:
        text = raised(RuntimeError, dist.monitored_barrier)
        assert text.endswith(": \\x1b[31m\\nred\\xff"), text
    dist.barrier()


@case
def ends_and_uses_groups_at_exit():
    """What the program registers after `import torch` comes before the end of its groups."""

    def leave():
        dist.barrier()
        print("left=ok", flush=True)

    atexit.register(leave)
    start()


@case
def gloo_has_the_host():
    """ "cpu:gloo,cuda:bypass": tensors of the host are Gloo's."""
    import gloo_bypass

    _, size = start("cpu:gloo,cuda:bypass")
    group = dist.group.WORLD
    assert isinstance(group._get_backend(torch.device("cpu")), dist.ProcessGroupGloo)
    before = gloo_bypass.stats()
    for tensor in torch.ones(3), torch.ones(3).bool():
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        dist.broadcast(tensor, 0)
    dist.barrier()
    parts = functional_collectives.all_gather_tensor(torch.ones(3), 0, group)
    assert parts.tolist() == [1.0] * 3 * size
    part = functional_collectives.reduce_scatter_tensor(torch.ones(3 * size), "sum", 0, group)
    assert part.tolist() == [size] * 3
    assert gloo_bypass.stats() == before
    assert len(group._device_types) == 2


@case
def pytorchs_own_names():
    """Of the parameters of a group's methods, as PyTorch's overloads have them."""
    rank, size = start()
    group, of = dist.group.WORLD, torch.full
    one, many = of((2,), rank + 1.0), [of((2,), rank + 1.0) for _ in range(size)]
    outs, flat = [torch.empty(2) for _ in range(size)], torch.empty(2 * size)
    total = size * (size + 1) / 2

    def ends(work, tensor, value):
        work.wait()
        assert (tensor == value).all(), tensor

    ends(group.allreduce(tensor=(sums := one.clone())), sums, total)
    group.reduce(tensor=(sums := one.clone()), root=0).wait()
    assert rank > 0 or (sums == total).all()
    ends(group.broadcast(tensor=(from_0 := one.clone()), root=0), from_0, 1)
    ends(group.reduce_scatter(output=(part := torch.empty(2)), input=many), part, total)
    ends(group.reduce_scatter(output_tensors=[part], input_tensors=[many]), part, total)
    ends(group._reduce_scatter_base(outputTensor=part, inputTensor=torch.cat(many)), part, total)
    ends(group.allgather(output_tensors=outs, input_tensor=one), outs[-1], size)
    ends(group.allgather(output_tensors=[outs], input_tensors=[one]), outs[-1], size)
    ends(group.allgather_coalesced(output_lists=[[out] for out in outs], input_list=[one]), outs[-1], size)
    ends(group._allgather_base(output=flat, input=one), flat[-1], size)
    roots = outs if rank == 0 else []
    ends(group.gather(output_tensors=roots, input_tensor=one, root=0), roots[-1] if roots else flat[-1], size)
    scattered = torch.empty(2)
    ends(group.scatter(output_tensor=scattered, input_tensors=many if rank == 0 else [], root=0), scattered, 1)
    ends(group.alltoall(output_tensors=outs, input_tensors=many), outs[-1], size)
    ends(
        group.alltoall_base(output=flat, input=torch.cat(many), output_split_sizes=[], input_split_sizes=[]),
        flat[-1],
        size,
    )
    if rank == 0:
        group.send([one], dstRank=1, tag=3).wait()
    elif rank == 1:
        ends(group.recv([scattered], srcRank=0, tag=3), scattered, 1)
    group.barrier(opts=dist.BarrierOptions()).wait()  # the first message connects all ranks
    group._start_coalescing()
    group._end_coalescing()
    group.setUsePgForSymmMemRendezvous(value=True)
    group._add_ephemeral_timeout(timeout=seconds(1))


@case
def other_devices():
    """Gloo stands for NCCL: PyTorch makes it without a GPU."""
    for backend in "cpu:bypass,cuda:gloo", "cuda:gloo,cpu:bypass":
        rank, size = start(backend)
        group = dist.group.WORLD
        assert isinstance(group._get_backend(torch.device("cuda")), dist.ProcessGroupGloo)
        assert {device.type for device in group._device_types} == {"cpu", "cuda"}
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor[0] == size
        assert dist.get_backend(dist.new_group()) == dist.get_backend()
        part = group.split_group([rank])
        assert isinstance(part._get_backend(torch.device("cuda")), dist.ProcessGroupGloo)
        dist.barrier()
        dist.destroy_process_group()
        del group, part  # and with it rank 0's store, which the next groups would find full of these groups' keys
        gc.collect()


@case
def time_passes():
    rank, size = start()
    short = dist.new_group()
    short.set_timeout(seconds(1))  # of operations only: ranks have as long as they need to make it
    began = time.monotonic()
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        text = raised(RuntimeError, lambda: work.wait(seconds(0.2)))
        assert "200 ms" in text and time.monotonic() - began < 30, text
        began = time.monotonic()
        raised(dist.DistNetworkError, lambda: dist.all_reduce(torch.ones(1), group=short))
        assert 0.5 < time.monotonic() - began < 30
        raised(RuntimeError, lambda: dist.all_reduce(torch.ones(1), group=short))  # failed for good
        touch("timed-out")
        work.wait()
    else:
        wait_for_file("timed-out")
        dist.all_reduce(torch.ones(1))
    dist.barrier()


@case
def message_does_not_come():
    """The group's timeout ends the wait, and with it the group, as over Gloo."""
    rank, size = start()
    short = dist.new_group()
    tensor = torch.ones(1)
    if rank == 0:
        dist.recv(tensor, group=short, group_src=1)
        short.set_timeout(seconds(1))
        began = time.monotonic()
        text = raised(dist.DistNetworkError, lambda: dist.recv(tensor, group=short, group_src=1))
        assert "recv from rank 1 with tag 0 did not end in 1000 ms" in text, text
        assert 0.5 < time.monotonic() - began < 30
        touch("given-up")
    else:
        dist.send(tensor, group=short, group_dst=0)
        wait_for_file("given-up")
        assert "abort" in raised(dist.DistBackendError, lambda: dist.all_reduce(tensor, group=short))
    dist.barrier()


@case
def results_are_there_without_a_wait():
    """Of tensors that operations have to copy."""
    rank, size = start()
    wide, total = torch.full((1000, 3), rank + 1.0), size * (size + 1) / 2
    work = dist.all_reduce(wide[:, 0], async_op=True)
    wait_until(work.is_completed)
    assert (wide[:, 0] == total).all()
    dist.all_reduce(wide[:, 1], async_op=True)
    dist.group.WORLD.allreduce_coalesced([wide[:, 2]])
    wait_until(lambda: (wide == total).all())
    if rank == 0:
        dist.send(torch.arange(1000.0), 1)
    else:
        work = dist.irecv(wide[:, 0], 0)
        wait_until(work.is_completed)
        assert wide[:, 0].tolist() == torch.arange(1000.0).tolist()


@case
def dropped_works_end():
    """Nobody waits for them, and no call follows."""
    rank, size = start()
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor, async_op=True)
    wait_until(lambda: (tensor == size * (size + 1) / 2).all())


@case
def all_to_all_in_place():
    rank, size = start()
    tensor = torch.arange(float(size)).repeat_interleave(1 << 19) + 10 * rank
    dist.all_to_all_single(tensor, tensor)
    for peer, block in enumerate(tensor.chunk(size)):
        assert (block == 10 * peer + rank).all(), peer
    blocks = list(tensor.chunk(size))
    dist.all_to_all(blocks, blocks)
    for peer, block in enumerate(blocks):
        assert (block == 10 * rank + peer).all(), peer


@case
def first_message_while_others_are_in_a_barrier():
    """All ranks connect for it, those that wait in the barrier too."""
    rank, size = start()
    began = time.monotonic()
    tensor = torch.full((1,), rank + 1.0)
    work = dist.isend(tensor, 1) if rank == 0 else None
    if rank == 0 and size > 2:
        work.wait()
    if rank == 1:
        dist.recv(tensor, 0)
        assert tensor == 1
    dist.monitored_barrier()
    if rank == 0:
        work.wait()
    assert time.monotonic() - began < 20


@case
def first_message_while_the_program_waits_in_its_store():
    """TCPStore's client answers nobody else meanwhile."""
    rank, size = start()
    began = time.monotonic()
    store, tensor = dist.distributed_c10d._get_default_store(), torch.full((1,), rank + 1.0)
    if rank == 0:
        work = dist.isend(tensor, 1)
        store.wait(["received"], seconds(30))
        work.wait()
    else:
        dist.recv(tensor, 0)
        assert tensor == 1
        store.set("received", "")
    assert time.monotonic() - began < 20


@case
def ctrl_c_in_a_monitored_barrier():
    """Of rank 0, which waits for the others, and of another, which waits for rank 0."""
    rank, size = start()
    if rank == 0:
        interrupted_in(dist.monitored_barrier)
        touch("first")
    else:
        wait_for_file("first")
        interrupted_in(dist.monitored_barrier)
    dist.barrier()


@case
def coalesced():
    """What the manager returns ends when all has ended that was started within it."""
    rank, size = start()
    tensors, message = [torch.full((1 << 20,), rank + 1.0) for _ in range(2)], torch.full((1,), rank + 1.0)
    wide = torch.full((1 << 20, 2), rank + 1.0)
    if rank == 1:
        wait_for_file("started")
        time.sleep(0.5)  # in which a wait for nothing would end
    manager = dist.distributed_c10d._coalescing_manager
    with manager(device=torch.device("cpu"), async_ops=True) as works:
        for tensor in tensors:
            dist.all_reduce(tensor)
    with manager(device=torch.device("cpu"), async_ops=True) as others:
        dist.isend(message, 0) if rank == 1 else dist.irecv(message, 1)
        dist.broadcast(wide[:, 0], 1, async_op=True)
    touch("started")
    works.wait()
    assert all((tensor == 3).all() for tensor in tensors)
    others.wait()
    assert message == 2 and (wide[:, 0] == 2).all()


@case
def barrier_without_a_rank():
    rank, size = start()
    if rank == size - 1:
        wait_for_file("seen")
    elif rank == 0:
        wait_until(lambda: dist.group.WORLD._own_store.check([f"monitored-1/{peer}" for peer in range(1, size - 1)]))
        text = raised(RuntimeError, lambda: dist.monitored_barrier(timeout=seconds(1)))
        assert f"Rank {size - 1} failed to pass monitoredBarrier in 1000 ms" in text, text
        touch("seen")
    else:
        text = raised(RuntimeError, lambda: dist.monitored_barrier(timeout=seconds(20)))
        assert f"Rank {rank} successfully reached monitoredBarrier, but received errors" in text, text
    dist.barrier()
    if rank == 0:
        text = raised(RuntimeError, lambda: dist.monitored_barrier(timeout=0.1, wait_all_ranks=True))
        assert f"Ranks {', '.join(map(str, range(1, size)))} failed to pass monitoredBarrier in 100 ms" in text, text
        text = raised(RuntimeError, lambda: dist.monitored_barrier(timeout=seconds(0)))
        assert "Rank 0 timed out in monitoredBarrier" in text, text
    dist.barrier()


@case
def barrier_rank_0_comes_late():
    """Its time counts, so that it is the one that names who is missing, also where others have come before it."""
    rank, size = start()
    limit = seconds(2)
    if rank == size - 1:
        wait_for_file("seen")
    elif rank == 0:
        time.sleep(3)  # in which the others' own time passes
        text = raised(RuntimeError, lambda: dist.monitored_barrier(timeout=limit))
        touch("seen")
        assert f"Rank {size - 1} failed to pass monitoredBarrier in 2000 ms" in text, text
    else:
        text = raised(RuntimeError, lambda: dist.monitored_barrier(timeout=limit))
        assert f"from rank 0: Rank {size - 1} failed to pass monitoredBarrier in 2000 ms" in text, text
    dist.barrier()


@case
def receive_that_nobody_sends():
    """The rank that leaves with it ends it, and nothing that the others do."""
    rank, size = start()
    group = dist.new_group()
    message = torch.full((1,), float(rank))
    # All ranks are connected before one leaves.
    sent = dist.isend(message, (rank + 1) % size, group=group)
    dist.recv(torch.ones(1), (rank - 1) % size, group=group)
    sent.wait()
    dist.barrier(group)
    if rank == 0:
        dist.irecv(message, 1, group=group)
        dist.destroy_process_group(group)
        touch("left")
    else:
        wait_for_file("left")
        dist.send(message, 2, group=group) if rank == 1 else dist.recv(message, 1, group=group)
        assert message == 1
    dist.barrier()


@case
def short_overloads():
    """Of PyTorch's C++ class, which programs call too."""
    rank, size = start()
    group = dist.group.WORLD
    output, inputs = torch.zeros(1), [torch.full((1,), 10.0 * peer + rank) for peer in range(size)]
    group.reduce_scatter(output, inputs, op=dist.ReduceOp.MAX).wait()
    assert output == 10 * rank + size - 1
    store = dist.PrefixStore("merge", dist.distributed_c10d._get_default_store())
    assert group.merge_remote_group(store, size).size() == size
    for wrong in "soon", dist.distributed_c10d.AllreduceOptions():
        assert "BarrierOptions" in raised(TypeError, lambda: group.barrier(wrong))
    many = torch.ones(size)
    for call in (
        lambda group: group.barrier(seconds(0.3)),
        lambda group: group.barrier(timeout=seconds(0.3)),
        lambda group: group.allreduce(many, dist.ReduceOp.SUM, seconds(0.3)),
        lambda group: group.allgather(list(torch.zeros(size, size)), many, seconds(0.3)),
        lambda group: group.all_to_all_single(torch.zeros(size), many, [], [], seconds(0.3)),
        lambda group: group.alltoall_base(torch.zeros(size), many, [], [], timeout=seconds(0.3)),
    ):
        part = dist.new_group()
        if rank == 0:
            raised(dist.DistNetworkError, lambda: call(part).wait())
    dist.barrier()


@case
def pieces_of_different_operations():
    """Ranks compare what a caller has cut into pieces, of which the first are alike. None meets a whole operation."""
    rank, size = start()
    from gloo_bypass import _tensors as of

    piece, whole = torch.ones(4), 8 if rank == 0 else 4
    block = (piece.data_ptr(), piece.numel())
    settings = (of.ALL_REDUCE, of.TYPES[torch.float32], of.SUM, 0, False, 0)
    text = raised(dist.DistBackendError, lambda: dist.group.WORLD._run(*settings, block, block, whole))
    said = [f"rank {peer} calls all-reduce of {count} float32, sum, in pieces" for peer, count in enumerate((8, 4))]
    assert ", ".join(said) in text, text


@case
def negated_view():
    """Values are what PyTorch shows, whatever lies in memory, as for an asynchronous call."""
    rank, size = start()
    for is_async in False, True:
        tensor = torch.tensor([1 + 2j]).conj().imag if rank == 0 else torch.tensor([3.0])
        work = dist.all_reduce(tensor, async_op=is_async)
        if is_async:
            work.wait()
        assert tensor == 1, (is_async, tensor)


def ways_of(group):
    """A list, to which each all-reduce from now on adds whether it went the short way."""
    ways, attempt = [], group._all_reduce

    def counted(*arguments):
        begun = attempt(*arguments)
        ways.append(begun is not False)
        return begun

    group._all_reduce = counted
    return ways


def all_reduced(tensor, operation, is_async):
    work = dist.all_reduce(tensor, operation, async_op=is_async)
    if is_async:
        work.wait()
    return tensor


@case
def short_way():
    """Every type and reduction of plain tensors goes it, and has the right values."""
    rank, size = start()
    ways, op = ways_of(dist.group.WORLD), dist.ReduceOp
    bitwise = {op.BAND: [0, 2, 1], op.BOR: [3, 2, 1], op.BXOR: [3, 0, 0]}
    arithmetic = {op.SUM: [3, 4, 2], op.PRODUCT: [2, 4, 1], op.MIN: [1, 2, 1], op.MAX: [2, 2, 1]}
    integers = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
    floats = torch.float16, torch.bfloat16, torch.float32, torch.float64
    cases = [(dtype, one) for dtype in integers for one in (arithmetic | bitwise).items()]
    cases += [(dtype, one) for dtype in floats for one in (arithmetic | {op.AVG: [1.5, 2, 1]}).items()]
    cases += [(torch.bool, one) for one in {op.BAND: [1, 0, 0], op.BOR: [1, 1, 1]}.items()]
    for is_async in False, True:
        for dtype, (operation, expected) in cases:
            mine = [1, rank, 1 - rank] if dtype is torch.bool else [1 + rank, 2, 1]
            got = all_reduced(torch.tensor(mine, dtype=dtype), operation, is_async)
            assert torch.equal(got, torch.tensor(expected, dtype=dtype)), (dtype, operation, got)
    assert len(ways) == 2 * len(cases) and all(ways), ways


class Subclass(torch.Tensor):
    pass


@case
def not_the_short_way():
    """Other tensors go the usual one, whatever the other rank has; both give the same."""
    rank, size = start()
    ways = ways_of(dist.group.WORLD)

    def of_inference():
        with torch.inference_mode():
            return torch.ones(4)

    plain = {
        "plain": lambda: torch.ones(4),
        "several dimensions": lambda: torch.ones(2, 1, 2),
        "part of another": lambda: torch.ones(9)[5:],
        "one row of another stride": lambda: torch.ones(7).as_strided((1, 4, 1), (9, 1, 7)),
        "with a gradient": lambda: torch.ones(4, requires_grad=True),
        "parameter": lambda: torch.nn.Parameter(torch.ones(4)),
        "of inference": of_inference,
    }
    others = {
        "strided": lambda: torch.ones(8)[::2],
        "transposed": lambda: torch.ones(2, 2).t(),
        "negative": lambda: torch._neg_view(-torch.ones(4)),
        "subclass": lambda: torch.ones(4).as_subclass(Subclass),
    }
    for is_async in False, True:
        for name, make in (plain | others).items():
            mine = (make if rank == 0 else plain["plain"])()
            ways.clear()
            with torch.no_grad():
                all_reduced(mine, dist.ReduceOp.SUM, is_async)
            got = mine.detach().as_subclass(torch.Tensor).reshape(-1)
            assert torch.equal(got, torch.full((4,), 2.0)), (name, got)
            assert ways == [rank == 1 or name in plain], (name, ways)
    sparse = torch.ones(4).to_sparse()
    ways.clear()
    assert torch.equal(all_reduced(sparse, dist.ReduceOp.SUM, False).to_dense(), torch.full((4,), 2.0))
    assert not any(ways), ways
    single = torch.tensor(3.0)
    assert all_reduced(single, dist.ReduceOp.MAX, False) == 3 and ways[-1]
    all_reduced(torch.ones(0), dist.ReduceOp.SUM, False)
    assert not ways[-1]
    with torch.profiler.profile():
        all_reduced(torch.ones(4), dist.ReduceOp.SUM, False)
    assert not ways[-1]


@case
def short_way_has_its_own_timeout():
    rank, size = start()
    group = dist.new_group()
    options = torch._C._distributed_c10d.AllreduceOptions()
    options.asyncOp = False
    ways = ways_of(group)
    group.allreduce([torch.ones(1)], options)
    options.timeout = seconds(0.3)
    if rank == 0:
        began = time.monotonic()
        raised(dist.DistNetworkError, lambda: group.allreduce([torch.ones(1)], options))
        assert 0.2 < time.monotonic() - began < 30
        touch("timed-out")
    else:
        wait_for_file("timed-out")
    assert ways == [True], ways
    dist.barrier()


@case
def tensor_leaves_the_callers_list():
    """While the call runs, another thread empties the list: the tensor stays until the end."""
    rank, size = start()
    options, alive = torch._C._distributed_c10d.AllreduceOptions(), []
    for is_async in False, True:
        options.asyncOp = is_async
        tensors = [torch.ones(1 << 16)]
        kept = weakref.ref(tensors[0])

        def empty():
            wait_until(dist.group.WORLD._door.busy)
            tensors.clear()
            alive.append(kept() is not None)
            touch(f"emptied-{is_async}")

        if rank == 1:
            wait_for_file(f"emptied-{is_async}")
        else:
            threading.Thread(target=empty).start()
        work = dist.group.WORLD.allreduce(tensors, options)
        if is_async:
            assert torch.equal(work.result()[0], torch.full((1 << 16,), 2.0))
    assert alive == ([True, True] if rank == 0 else []), alive


@case
def interrupted_work_holds_nothing():
    """A handler raises while the thread waits: what the work held goes soon, though no other call follows."""
    rank, size = start()
    group = dist.new_group()
    if rank == 0:
        tensor = torch.ones(64)
        kept, work = weakref.ref(tensor), dist.all_reduce(tensor, group=group, async_op=True)
        interrupted_in(work.wait)
        del tensor, work
        gc.collect()
        wait_until(lambda: kept() is None)
    dist.barrier()


@case
def awaited_works_wake_nobody():
    """The thread that waits for an operation ends it, and drops what it held: another one would want the GIL."""
    start()

    def wakes():
        count = 0
        for one in threading.enumerate():
            if one.name == "gloo_bypass":
                with open(f"/proc/self/task/{one.native_id}/status") as lines:
                    count += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
        return count

    tensor, calls = torch.zeros(64), 1000
    dist.all_reduce(tensor, async_op=True).wait()
    before, began = wakes(), time.monotonic()
    for _ in range(calls):
        dist.all_reduce(tensor, async_op=True).wait()
    woken, looks = wakes() - before, (time.monotonic() - began) / 0.02  # what nobody drops, it drops every 20 ms
    assert woken < calls / 10 + 4 * looks, (woken, looks)


@case
def destroyed_while_an_exception_is_handled():
    """One that the program was handling when it made the group does not end it early."""
    try:
        raise StopIteration
    except StopIteration:
        rank, size = start()
        leave_a_send(rank)
        dist.destroy_process_group()


def leave_a_send(rank):
    message = torch.full((1 << 20,), float(rank))
    if rank == 0:
        dist.isend(message, 1)
        touch("sent")
    else:
        wait_for_file("sent")
        time.sleep(0.3)  # in which an end that waits for nothing would come
        dist.recv(message, 0)
        assert (message == 0).all()


def start_and_leave_a_send():
    leave_a_send(start()[0])


def sum_in_a_thread():
    rank, size = start()

    def sum_late():
        time.sleep(0.3)  # in which the process would end, if it did not wait for this thread
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor == size
        touch(f"summed-{rank}")

    threading.Thread(target=sum_late).start()


def run_by_multiprocessing(method, target):
    child = multiprocessing.get_context(method).Process(target=target)
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode


@case
def forked_rank_leaves_a_send():
    """Ranks that multiprocessing forks end without atexit, and wait for what others need all the same."""
    run_by_multiprocessing("fork", start_and_leave_a_send)


@case
def spawned_rank_leaves_a_send():
    run_by_multiprocessing("spawn", start_and_leave_a_send)


@case
def forked_rank_within_a_handler_leaves_a_send():
    """What its parent handles is no failure of its own."""
    try:
        raise StopIteration
    except StopIteration:
        run_by_multiprocessing("fork", start_and_leave_a_send)


def start_with_a_pool():
    global POOL
    rank, size = start()
    POOL = concurrent.futures.ThreadPoolExecutor(1)
    assert POOL.submit(int).result() == 0
    dist.destroy_process_group()


@case
def forked_rank_has_a_pool():
    """Only Python knows how to end a pool's threads."""
    run_by_multiprocessing("fork", start_with_a_pool)


@case
def forked_rank_sums_in_a_thread():
    run_by_multiprocessing("fork", sum_in_a_thread)
    assert os.path.exists(f"summed-{os.environ['RANK']}")


def interrupted_in(call):
    """Ctrl-C while this thread is in the call."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests in the background ignores it
    began = time.monotonic()
    try:
        sender = send_once_asleep(signal.SIGINT)
        call()
    except KeyboardInterrupt:
        sender.join()
        assert time.monotonic() - began < 50, "it came when the wait was over"
        return
    raise AssertionError("no KeyboardInterrupt")


@case
def ctrl_c():
    """Ends a wait on the caller's thread, and with it the group; a handler that raises nothing ends nothing."""
    rank, size = start()
    tensor = torch.ones(1)
    waits = [
        lambda group: dist.all_reduce(tensor, group=group),
        lambda group: dist.all_reduce(tensor, group=group, async_op=True).wait(),
        lambda group: dist.all_reduce(torch.ones(1 << 20), group=group),
        lambda group: [dist.barrier(group=group, async_op=True), dist.all_reduce(tensor, group=group)],
        lambda group: dist.recv(tensor, group=group, group_src=1),
    ]
    groups = [dist.new_group() for _ in waits]
    other = dist.new_group()
    seen = []
    if rank == 0:
        for wait, group in zip(waits, groups):
            interrupted_in(lambda: wait(group))
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        send_once_asleep(signal.SIGUSR1)
        threading.Thread(target=lambda: (wait_until(lambda: seen), touch("seen"))).start()
    else:
        wait_for_file("seen")
    dist.all_reduce(tensor, group=other)
    if rank == 1:
        for group in groups:
            assert "abort" in raised(dist.DistBackendError, lambda: dist.all_reduce(tensor, group=group))
    dist.barrier()


def handled_in(call, handler):
    """What the call raises; a SIGTERM comes while this thread is in it."""
    signal.signal(signal.SIGTERM, lambda number, frame: handler())
    send_once_asleep(signal.SIGTERM)
    try:
        call()
    except Exception as error:
        return f"{error} {error.__context__}"  # PyTorch's logger asks for the rank in the group, and raises again
    return ""


#: Each waits for the other rank.
COLLECTIVES = [
    lambda group: dist.all_reduce(torch.ones(1), group=group),
    lambda group: dist.all_reduce(torch.ones(1), group=group, async_op=True).wait(),
    lambda group: dist.all_reduce(torch.ones(1 << 20), group=group),
    lambda group: [dist.barrier(group=group, async_op=True), dist.all_reduce(torch.ones(1), group=group)],
]


@case
def handler_destroys_the_group():
    """As a preempted program does; the call under way ends, and its group for all ranks."""
    rank, size = start()
    waits = [*COLLECTIVES, lambda group: dist.recv(torch.ones(1), group=group, group_src=1)]
    groups = [dist.new_group() for _ in waits]
    if rank == 0:
        for wait, group in zip(waits, groups):
            door = group._door
            text = handled_in(lambda: wait(group), lambda: dist.destroy_process_group(group))
            assert "abort" in text or "shut down" in text, text
            assert not door.busy() and "shut down" in raised(dist.DistBackendError, door.describe)
        touch("destroyed")
    else:
        wait_for_file("destroyed")
        assert "abort" in raised(dist.DistBackendError, lambda: COLLECTIVES[0](groups[0]))
    dist.barrier()


@case
def handler_waits_for_a_thread_that_destroys_the_group():
    rank, size = start()
    waits = [*COLLECTIVES, lambda group: dist.recv(torch.ones(1), group=group, group_src=1)]
    groups = [dist.new_group() for _ in waits]

    def elsewhere(group):
        thread = threading.Thread(target=dist.destroy_process_group, args=(group,))
        thread.start()
        thread.join()

    if rank == 0:
        for wait, group in zip(waits, groups):
            door = group._door
            text = handled_in(lambda: wait(group), lambda: elsewhere(group))
            assert "abort" in text or "shut down" in text, text
            assert not door.busy() and "shut down" in raised(dist.DistBackendError, door.describe)
        touch("destroyed")
    else:
        wait_for_file("destroyed")
        assert "abort" in raised(dist.DistBackendError, lambda: COLLECTIVES[0](groups[0]))
    dist.barrier()


@case
def handler_destroys_the_group_and_exits():
    rank, size = start()
    if rank == 0:

        def leave():
            dist.destroy_process_group()
            sys.exit(0)

        try:
            handled_in(lambda: dist.all_reduce(torch.ones(1)), leave)
            raise AssertionError("the handler's exception was lost")
        except SystemExit:
            touch("left")
    else:
        wait_for_file("left")


@case
def handler_calls_the_group():
    """It gets an error rather than wait for the call below it, which goes on. Another group works there."""
    rank, size = start()
    groups, other = [dist.new_group() for _ in COLLECTIVES], dist.new_group()
    errors = []

    def handler():
        for call in [*COLLECTIVES, lambda group: dist.isend(torch.ones(1), group=group, group_dst=1)]:
            errors.append(raised(dist.DistBackendError, lambda: call(group)))
        errors.append(raised(dist.DistBackendError, before.wait))
        assert f"rank {rank}" in repr(group)
        one = torch.ones(1)
        dist.all_reduce(one, group=other)
        assert one == size
        touch(f"handled-{index}")

    for index, (wait, group) in enumerate(zip(COLLECTIVES, groups)):
        if rank == 0:
            before = dist.irecv(torch.ones(1), group=group, group_src=1)
            text = handled_in(lambda: wait(group), handler)
            assert text == "", text
            before.wait()
        else:
            dist.all_reduce(torch.ones(1), group=other)
            wait_for_file(f"handled-{index}")
            wait(group)
            dist.send(torch.ones(1), group=group, group_dst=0)
    assert all("a signal's handler within a call of this group" in text for text in errors), errors
    dist.barrier()


@case
def ctrl_c_while_the_group_is_made():
    """The other rank never comes."""
    if int(os.environ["RANK"]) == 0:
        store = dist.FileStore("store", 2)
        interrupted_in(lambda: dist.init_process_group("bypass", store=store, rank=0, world_size=2))
        touch("interrupted")
    else:
        wait_for_file("interrupted")


@case
def ctrl_c_while_ranks_meet():
    """The other rank has said what the argument names, and stands still."""
    import gloo_bypass._process_group as ours

    rank, store = int(os.environ["RANK"]), dist.FileStore("store", 2)
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupted_at = []

        def interrupt():
            wait_for_file("standing-still")
            time.sleep(0.5)  # until this rank waits for it
            interrupted_at.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        raised(KeyboardInterrupt, lambda: dist.init_process_group("bypass", store=store, rank=0, world_size=2))
        assert time.monotonic() - interrupted_at[0] < 20, "it came when the wait was over"
        touch("interrupted")
        return
    make = ours._store_asked

    def make_standing_still(store):
        ask = make(store)

        def ask_once(what, key, *rest):
            answer = ask(what, key, *rest)
            if what == "set" and sys.argv[2] in key:
                touch("standing-still")
                wait_for_file("interrupted")
                print("end=ok", flush=True)
                os._exit(0)
            return answer

        return ask_once

    ours._store_asked = make_standing_still
    dist.init_process_group("bypass", store=store, rank=1, world_size=2)


@case
def store_after_ctrl_c():
    """The program's store is free again, though a thread of ours was waiting in it."""
    is_first = int(os.environ["RANK"]) == 0
    store = tcp_store("127.0.0.1", int(os.environ["MASTER_PORT"]), 2, is_first)
    if is_first:
        for _ in range(2):
            interrupted_in(lambda: dist.init_process_group("bypass", store=store, rank=0, world_size=2))
            began = time.monotonic()
            store.set("key", "value")
            took = time.monotonic() - began
            assert took < 10, f"set() took {took} s"
        store.set("end", "")
        store.wait(["seen"])
    else:
        store.wait(["end"])
        store.set("seen", "")


@case
def question_outlives_who_asked():
    """A thread that begins to serve after a Ctrl-C leaves alone what the store was to be asked."""
    import gloo_bypass._process_group as ours

    asked = []

    def create(store):
        ours._door.create(ours._table(), 0, 2, 60000, "", "", store)

    def answer(*question):
        asked.append(question)
        return b""

    def refuse(*question):
        raise ValueError("not today")

    interrupted_in(lambda: create(answer))  # no thread serves yet
    ours._work.ensure_serving()
    for _ in range(20):
        assert "not today" in raised(RuntimeError, lambda: create(refuse))
    assert asked == [], asked


@case
def ranks_disagree():
    rank, size = start()
    tensor = torch.ones(8 if rank == 0 else 9)
    text = raised(dist.DistBackendError, lambda: dist.all_reduce(tensor))
    print("error=" + text)


@case
def asynchronous_failure():
    rank, size = start()
    work = dist.all_reduce(torch.ones(8 if rank == 0 else 9), async_op=True)
    future = work.get_future()
    raised(RuntimeError, future.wait)
    raised(dist.DistBackendError, work.wait)
    assert work.is_completed() and not work.is_success() and work.exception() is not None


@case
def a_rank_dies():
    rank, size = start()
    dist.all_reduce(torch.ones(1))
    print("ready", flush=True)
    if rank == size - 1:
        wait_for_file("never")
    text = raised(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(1)))
    print("error=" + text)


@case
def abort():
    rank, size = start()
    if rank == 0:
        threading.Timer(0.3, dist.group.WORLD.abort).start()
        print("error=" + raised(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(1))))
        touch("aborted")
    wait_for_file("aborted")


@case
def forked():
    rank, size = start()
    described = repr(dist.group.WORLD)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            text = raised(RuntimeError, lambda: dist.all_reduce(torch.ones(1)))
            status = 0 if "fork" in text and repr(dist.group.WORLD) == described else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    tensor = torch.ones(1)
    dist.all_reduce(tensor, async_op=True).get_future().wait()
    assert tensor == size


@case
def described_after_its_end():
    """PyTorch's messages have a group's text."""
    rank, size = start()
    group = dist.new_group()
    text = repr(group)
    dist.destroy_process_group(group)
    assert repr(group) == text and f"rank {rank}" in text, text
    assert text in raised(ValueError, lambda: dist.get_group_rank(group, 0))


@case
def tensors_live_until_the_end():
    rank, size = start()
    if rank == 0:
        tensor = torch.ones(1000)
        alive = weakref.ref(tensor.untyped_storage())
        storage = weakref.ref(tensor)
        dist.all_reduce(tensor, async_op=True)  # forgotten at once
        del tensor
        gc.collect()
        assert storage() is not None or alive() is not None
        touch("forgotten")
        dist.barrier()
        while storage() is not None:  # bounded by the test
            gc.collect()
            time.sleep(0.01)
    else:
        wait_for_file("forgotten")
        dist.all_reduce(torch.ones(1000))
        dist.barrier()


@case
def works_do_not_stay():
    """Those that only C++ has held: PyTorch 2.6 leaves their Python part to us."""
    from gloo_bypass._work import Work

    start()
    for _ in range(50):
        waited = functional_collectives.all_reduce(torch.ones(3), "sum", dist.group.WORLD) + 1
    del waited
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(50)]
    while works:
        works.pop().wait()
    result, group = torch.ones(3), dist.new_group()
    alive = weakref.ref(result), weakref.ref(group)
    dist.all_reduce(result, group=group, async_op=True).wait()
    assert len([one for one in gc.get_objects() if isinstance(one, Work)]) < 10
    dist.destroy_process_group(group)
    del result, group
    gc.collect()
    assert [one() for one in alive] == [None, None]


@case
def callbacks_may_wait():
    rank, size = start()
    tensor = torch.ones(3)

    def again(future):
        inner = future.value()[0].clone()
        return (
            dist.all_reduce(inner, async_op=True)
            .get_future()
            .then(lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0])
            .wait()
        )

    result = dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()
    assert result[0] == size**3, result


@case
def ends_without_destroying():
    rank, size = start()
    dist.all_reduce(torch.ones(1))
    dist.barrier(async_op=True)
    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda done: None)


@case
def ends_with_work_under_way():
    rank, size = start()
    dist.barrier()
    if rank == 0:
        dist.recv_anysource = None
        dist.irecv(torch.zeros(1), 1)
        dist.all_reduce(torch.ones(1), async_op=True).get_future()


@case
def leaves_what_others_need():
    """A rank that needs no result has no reason to wait for its operation."""
    rank, size = start()
    group = dist.new_group()
    tensor = torch.full((3,), rank + 1.0)
    if rank == 0:
        dist.reduce(tensor, dst=1, group=group, async_op=True)
        touch("leaves")
        dist.destroy_process_group(group)
    else:
        wait_for_file("leaves")
        time.sleep(0.3)  # in which an end that waits for nothing would come here
        dist.reduce(tensor, dst=1, group=group)
        assert (tensor == 3).all()
    dist.barrier()


@case
def many_groups():
    rank, size = start()
    for _ in range(10):
        group = dist.new_group()
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        assert tensor == size
        dist.destroy_process_group(group)
    tensors = [torch.full((10,), float(number + rank)) for number in range(4)]
    threads = [
        threading.Thread(target=dist.all_reduce, args=(tensor,), kwargs={"group": dist.new_group()})
        for tensor in tensors
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, tensor in enumerate(tensors):
        assert (tensor == size * number + sum(range(size))).all()


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    CASES[sys.argv[1]]()
    if not sys.argv[1].startswith("ends") and dist.is_initialized():
        dist.destroy_process_group()
    print("end=ok")


if __name__ == "__main__":
    main()
