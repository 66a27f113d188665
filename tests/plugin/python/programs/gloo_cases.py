"""What PyTorch's test/distributed/test_c10d_gloo.py asks of ProcessGroupGloo, asked of whichever backend the first
argument names: each case of it over a group of its own. Prints the case's name and "ok", or why not."""

import contextlib
import copy
import datetime
import functools
import math
import operator
import os
import pickle
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

c10d = torch._C._distributed_c10d
CASES = {}
MANY = 300  # operations under way at a time


def case(function):
    CASES[function.__name__] = function
    return function


@contextlib.contextmanager
def refused(*texts, kind=RuntimeError):
    """The exception has one of these texts."""
    try:
        yield
    except kind as error:
        assert any(text in str(error) for text in texts), f"{error} has none of {texts}"
        return
    raise AssertionError(f"nothing was raised, {texts} were expected")


def options(kind, **fields):
    made = kind()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def one(values, dtype=torch.float32):
    return torch.tensor([values], dtype=dtype)


def value_of(work):
    future = work.get_future()
    future.wait()
    return future.value()


def equal(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def by_size(rank, size):
    """(reduction, input, result) for one element."""
    cases = [
        (dist.ReduceOp.SUM, one(rank + 1.0), one(size * (size + 1) / 2)),
        (dist.ReduceOp.PRODUCT, one(rank + 1.0), one(math.factorial(size))),
        (dist.ReduceOp.MIN, one(rank + 1.0), one(1.0)),
        (dist.ReduceOp.MAX, one(rank + 1.0), one(size)),
    ]
    for bit in range(4):
        cases.append((dist.ReduceOp.BAND, one(rank | 1 << bit, torch.int32), one(1 << bit, torch.int32)))
    for width in range(1, 5):
        for reduction, function in ((dist.ReduceOp.BOR, operator.or_), (dist.ReduceOp.BXOR, operator.xor)):
            own = functools.reduce(function, range(rank * width, rank * width + width))
            whole = functools.reduce(function, range(size * width))
            cases.append((reduction, one(own, torch.int32), one(whole, torch.int32)))
    return cases


# --- one to all and back ---


@case
def empty_tensors(group, rank, size):
    for call in (
        lambda tensor: group.broadcast([tensor], options(c10d.BroadcastOptions)),
        lambda tensor: group.allreduce([tensor], options(c10d.AllreduceOptions)),
        lambda tensor: group.reduce([tensor], options(c10d.ReduceOptions)),
    ):
        value = value_of(call(torch.zeros(0)))
        assert value[0].numel() == 0
    outputs = [[torch.zeros(0) for _ in range(size)]]
    group.allgather(outputs, [torch.zeros(0)]).wait()


@case
def broadcast_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    single, double, pair = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    for text, tensors, root, tensor in (
        ("invalid root rank", [single], -1, 0),
        ("invalid root rank", [single], size, 0),
        ("invalid root tensor", [single], rank, -1),
        ("invalid root tensor", [single], rank, 1),
        ("invalid root tensor", [], rank, 0),
        ("invalid tensor type", [single, double], rank, 0),
        ("invalid tensor size", [single, pair], rank, 0),
    ):
        with refused(text):
            backend.broadcast(tensors, options(c10d.BroadcastOptions, rootRank=root, rootTensor=tensor))


@case
def broadcast_basics(group, rank, size):
    for root in range(size):
        value = value_of(group.broadcast([one(rank)], options(c10d.BroadcastOptions, rootRank=root)))
        equal(value[0], one(root))
        for which in range(2):
            tensors = [one(rank * 2.0), one(rank * 2.0 + 1)]
            value = value_of(group.broadcast(tensors, options(c10d.BroadcastOptions, rootRank=root, rootTensor=which)))
            equal(list(value), [one(root * 2.0 + which)] * 2)
    equal(value_of(group.broadcast(one(rank + 1.0), root=0))[0], one(1.0))


@case
def broadcast_many(group, rank, size):
    tensors = [one(number * size + rank) for number in range(MANY)]
    works = [group.broadcast(tensor, root=number % size) for number, tensor in enumerate(tensors)]
    for number, work in enumerate(works):
        work.wait()
        equal(tensors[number], one(number * size + number % size))


@case
def scatter_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    single, double, pair = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    for text, outputs, inputs, root in (
        ("invalid root rank", [single], [], -1),
        ("invalid root rank", [single], [], size),
        ("requires a single-element output tensor list", [], [], 0),
        ("requires a single-element output tensor list", [single, single], [], 0),
        ("requires a single-element input list", [single], [], rank),
        ("requires a single-element input list", [single], [[single] * size] * 2, rank),
        (
            f"Incorrect input list size {size - 1}. Input list size should be {size}",
            [single],
            [[single] * (size - 1)],
            rank,
        ),
        (
            f"Incorrect input list size {size + 1}. Input list size should be {size}",
            [single],
            [[single] * (size + 1)],
            rank,
        ),
        ("invalid tensor type", [single], [[double] * size], rank),
        ("invalid tensor size", [single], [[pair] * size], rank),
        ("requires empty input on non-root", [single], [[single] * size], (rank + 1) % size),
    ):
        with refused(text):
            backend.scatter(outputs, inputs, options(c10d.ScatterOptions, rootRank=root))


@case
def scatter_many(group, rank, size):
    works, outputs = [], []
    for number in range(MANY):
        for root in range(size):
            outputs.append(one(-1.0))
            inputs = [[one(number + rank + 0.0) for _ in range(size)]] if rank == root else []
            works.append(group.scatter([outputs[-1]], inputs, options(c10d.ScatterOptions, rootRank=root)))
    for number, work in enumerate(works):
        equal(value_of(work)[0], one(number // size + number % size + 0.0))
        equal(outputs[number], one(number // size + number % size + 0.0))


@case
def gather_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    single, double, pair = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    for text, outputs, inputs, root in (
        ("invalid root rank", [], [single], -1),
        ("invalid root rank", [], [single], size),
        ("requires a single-element input tensor list", [], [], 0),
        ("requires a single-element input tensor list", [], [single, single], 0),
        ("requires a single-element output list", [], [single], rank),
        ("requires a single-element output list", [[single] * size] * 2, [single], rank),
        (
            f"Incorrect output list size {size - 1}. Output list size should be {size}",
            [[single] * (size - 1)],
            [single],
            rank,
        ),
        (
            f"Incorrect output list size {size + 1}. Output list size should be {size}",
            [[single] * (size + 1)],
            [single],
            rank,
        ),
        ("invalid tensor type", [[double] * size], [single], rank),
        ("invalid tensor size", [[pair] * size], [single], rank),
        ("requires empty output on non-root", [[single] * size], [single], (rank + 1) % size),
    ):
        with refused(text):
            backend.gather(outputs, inputs, options(c10d.GatherOptions, rootRank=root))


def gathers(group, rank, size, made, many):
    works, outputs = [], []
    for number in range(many):
        for root in range(size):
            outputs.append([made(-1.0) for _ in range(size)])
            targets = [outputs[-1]] if rank == root else []
            works.append(group.gather(targets, [made(number + rank + 0.0)], options(c10d.GatherOptions, rootRank=root)))
    for number, work in enumerate(works):
        value = value_of(work)
        if number % size == rank:
            equal(list(value), [made(number // size + peer + 0.0) for peer in range(size)])


def column(value):
    """Not dense."""
    return one(value).expand(2, 2).contiguous()[:, 0]


@case
def gather_many(group, rank, size):
    gathers(group, rank, size, one, MANY)


@case
def gather_columns(group, rank, size):
    gathers(group, rank, size, column, 2)


# --- reductions ---


@case
def all_reduce_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    single, double, pair = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    for text, tensors in (
        ("requires non-empty tensor list", []),
        ("invalid tensor type", [single, double]),
        ("invalid tensor size", [single, pair]),
    ):
        with refused(text):
            backend.allreduce(tensors, options(c10d.AllreduceOptions))


@case
def all_reduce_basics(group, rank, size):
    for reduction, tensor, wanted in by_size(rank, size):
        equal(value_of(group.allreduce([tensor], options(c10d.AllreduceOptions, reduceOp=reduction)))[0], wanted)
    for reduction, first, wanted in (
        (dist.ReduceOp.SUM, 2.0 * rank, size * (2 * size - 1)),
        (dist.ReduceOp.PRODUCT, 2.0 * rank + 1, math.factorial(2 * size)),
        (dist.ReduceOp.MIN, 2.0 * rank + 1, 1),
        (dist.ReduceOp.MAX, 2.0 * rank + 1, 2 * size),
    ):
        tensors = [one(first), one(first + 1)]
        value_of(group.allreduce(tensors, options(c10d.AllreduceOptions, reduceOp=reduction)))
        equal(tensors, [one(wanted, torch.float32)] * 2)
    equal(value_of(group.allreduce(one(rank + 1.0)))[0], one(size * (size + 1) / 2))


@case
def all_reduce_many(group, rank, size):
    futures = [group.allreduce(one(number + rank)).get_future() for number in range(MANY)]
    for number, future in enumerate(futures):
        future.wait()
        equal(future.value()[0], one(number * size + size * (size - 1) // 2))


@case
def all_reduce_coalesced_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    sparse = torch.sparse_coo_tensor([[0]], [1.0], size=(1,))
    for texts, tensors in (
        (["requires non-empty tensor list"], []),
        (["tensors must all have the same type"], [single, double]),
        (["invalid tensor layout at index"], [single, sparse]),
        (["unsupported layout"], [sparse, sparse.clone()]),
    ):
        with refused(*texts):
            backend.allreduce_coalesced(tensors, options(c10d.AllreduceCoalescedOptions))


@case
def all_reduce_coalesced_basics(group, rank, size):
    for reduction, tensors, wanted in (
        (
            dist.ReduceOp.SUM,
            [rank + 1, (rank + 1) ** 2],
            [size * (size + 1) / 2, size * (size + 1) * (2 * size + 1) / 6],
        ),
        (dist.ReduceOp.PRODUCT, [rank + 1, rank + 2], [math.factorial(size), math.factorial(size + 1)]),
        (dist.ReduceOp.MIN, [rank, rank + 1], [0, 1]),
        (dist.ReduceOp.MAX, [rank + 1, rank + 2], [size, size + 1]),
    ):
        work = group.allreduce_coalesced(
            [one(number) for number in tensors], options(c10d.AllreduceCoalescedOptions, reduceOp=reduction)
        )
        equal(list(value_of(work)), [one(number) for number in wanted])


@case
def all_reduce_coalesced_many(group, rank, size):
    works = [group.allreduce_coalesced([one(number + rank), one(number + rank)]) for number in range(MANY)]
    for number, work in enumerate(works):
        equal(list(value_of(work)), [one(number * size + size * (size - 1) // 2)] * 2)
    futures = [dist.all_reduce_coalesced([one(number + rank)] * 2, async_op=True) for number in range(2)]
    torch.futures.wait_all(futures)


@case
def sparse_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    dense = torch.zeros(1)
    two, four = (torch.sparse_coo_tensor([[0]], [1.0], size=(length,)) for length in (2, 4))
    for text, tensors in (
        ("requires non-empty tensor list", []),
        ("invalid tensor layout", [dense, two]),
        ("invalid tensor size", [two, four]),
    ):
        with refused(text):
            backend.allreduce(tensors, options(c10d.AllreduceOptions))
    for reduction in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        with refused("unsupported reduction operation"):
            backend.allreduce([four], options(c10d.AllreduceOptions, reduceOp=reduction))


def sparse_of(rank, size, columns, inner=()):
    """Its rows are the ranks up to this one, and one that all ranks have."""
    rows = torch.arange(rank + 1).repeat(columns)
    where = torch.stack([rows, torch.arange(columns).repeat_interleave(rank + 1)]) if columns > 1 else rows.unsqueeze(0)
    values = torch.arange(1.0, where.shape[1] + 1).reshape(-1, *([1] * len(inner))).expand(-1, *inner).contiguous()
    shape = (size, columns, *inner) if columns > 1 else (size, *inner)
    return torch.sparse_coo_tensor(where, values, shape)


@case
def sparse_basics(group, rank, size):
    for columns, inner in ((1, ()), (1, (3,)), (2, ()), (2, (2, 2))):
        for number in (1, 2):
            tensors = [sparse_of(rank, size, columns, inner) for _ in range(number)]
            wanted = sum(number * sparse_of(peer, size, columns, inner).to_dense() for peer in range(size))
            value = value_of(group.allreduce(tensors))
            for tensor in [*tensors, *value]:
                assert tensor.is_sparse
                equal(tensor.to_dense(), wanted)


@case
def reduce_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    single = torch.zeros(1)
    for text, tensors, root, tensor in (
        ("invalid root rank", [single], -1, 0),
        ("invalid root rank", [single], size, 0),
        ("invalid root tensor", [single], rank, 1),
        ("requires a single-element tensor list", [single, single], rank, 0),
    ):
        with refused(text):
            backend.reduce(tensors, options(c10d.ReduceOptions, rootRank=root, rootTensor=tensor))


@case
def reduce_basics(group, rank, size):
    for reduction, tensor, wanted in by_size(rank, size):
        for root in range(size):
            own = tensor.clone()
            value = value_of(group.reduce([own], options(c10d.ReduceOptions, reduceOp=reduction, rootRank=root)))
            if rank == root:
                equal(value[0], wanted)


@case
def reduce_many(group, rank, size):
    works = [
        group.reduce([one(number + rank)], options(c10d.ReduceOptions, rootRank=root))
        for number in range(MANY)
        for root in range(size)
    ]
    for number, work in enumerate(works):
        value = value_of(work)
        if number % size == rank:
            equal(value[0], one(number // size * size + size * (size - 1) // 2))


@case
def reduce_scatter_uneven(group, rank, size):
    torch.manual_seed(42)
    inputs, output = [torch.rand(peer) for peer in range(size)], torch.empty(rank)
    dist.reduce_scatter(output, inputs, group=group, async_op=True).wait()
    torch.testing.assert_close(output, inputs[rank] * size)


@case
def reduce_scatter_tensors(group, rank, size):
    torch.manual_seed(42)
    inputs = [torch.rand(side * size, side) for side in (5, 10, 15)]
    outputs = [torch.empty(side, side) for side in (5, 10, 15)]
    group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    single = torch.empty(5, 5)
    dist.reduce_scatter_tensor(single, inputs[0], group=group, async_op=True).wait()
    equal(single, outputs[0])
    for whole, output in zip(inputs, outputs):
        torch.testing.assert_close(output, whole.chunk(size)[rank] * size)


# --- all to all ---


@case
def all_gather_checks(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))  # the dispatcher has checks of its own
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    pair = torch.zeros(2)
    for text, outputs, inputs in (
        ("requires non-empty input tensor list", [], []),
        ("requires input/output tensor lists to have the same length", [], [single]),
        ("requires input/output tensor lists to have the same length", [[single] * size] * 2, [single]),
        ("invalid output tensor list", [[single] * (size - 1)], [single]),
        ("invalid output tensor list", [[single] * (size + 1)], [single]),
        ("invalid tensor type", [[single, single] * size] * 2, [single, double]),
        ("invalid tensor size", [[single, single] * size] * 2, [single, pair]),
        ("invalid tensor type", [([single, double] * size)[:size]], [single]),
    ):
        with refused(text):
            backend.allgather(outputs, inputs)


def all_gathers(group, rank, size, made):
    for number in (1, 2, 3):
        inputs = [made(number * rank + index + 0.0) for index in range(number)]
        outputs = [[made(-1.0) for _ in range(number * size)] for _ in range(number)]
        wanted = [[made(index + 0.0) for index in range(number * size)]] * number
        value = list(value_of(group.allgather(outputs, inputs)))
        equal([list(row) for row in ([value] if number == 1 else value)], wanted)
        equal(outputs, wanted)


@case
def all_gather_basics(group, rank, size):
    all_gathers(group, rank, size, one)


@case
def all_gather_columns(group, rank, size):
    all_gathers(group, rank, size, column)


@case
def all_gather_in_inference_mode(group, rank, size):
    with torch.inference_mode():
        all_gathers(group, rank, size, one)


@case
def all_gather_many(group, rank, size):
    outputs = [[[one(-1.0) for _ in range(size)]] for _ in range(MANY)]
    inputs = [[one(number + rank + 0.0)] for number in range(MANY)]
    works = [group.allgather(target, source) for target, source in zip(outputs, inputs)]
    for number, work in enumerate(works):
        equal(list(value_of(work)), [one(number + peer + 0.0) for peer in range(size)])


@case
def all_gather_coalesced(group, rank, size):
    lists = [[torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)] for _ in range(size)]
    future = dist.all_gather_coalesced(lists, [one(rank, torch.int64), one(-rank, torch.int64)], group, async_op=True)
    torch.futures.wait_all([future])
    equal(lists, [[one(peer, torch.int64), one(-peer, torch.int64)] for peer in range(size)])
    inputs = [torch.zeros(1)]
    with refused("output lists should be equal to world size"):
        dist.all_gather_coalesced([[torch.zeros(1)] for _ in range(size + 1)], inputs, group)
    with refused("Invalid function argument", kind=TypeError):
        dist.all_gather_coalesced([torch.zeros(0)], inputs, group)


@case
def all_gather_into_tensors(group, rank, size):
    torch.manual_seed(42)
    inputs = [torch.rand(side, side) for side in (5, 10, 15)]
    outputs = [torch.empty(side * size, side) for side in (5, 10, 15)]
    group.allgather_into_tensor_coalesced(outputs, inputs).wait()
    equal(outputs, [torch.cat([tensor] * size) for tensor in inputs])


@case
def messages_all_to_all(group, rank, size):
    peers = [peer for peer in range(size) if peer != rank]
    inputs, outputs = one(rank), {peer: one(-1) for peer in peers}
    sends = [group.send([inputs], peer, 0) for peer in peers]
    receives = [group.recv([outputs[peer]], peer, 0) for peer in peers]
    for work in sends + receives:
        work.wait()
        assert work.is_completed()
    equal(list(outputs.values()), [one(peer) for peer in peers])


@case
def messages_from_any(group, rank, size):
    if rank == 0:
        seen = []
        for _ in range(size - 1):
            tensor = one(-1)
            work = group.recv_anysource([tensor], 7)
            work.wait()
            assert work._source_rank() == int(tensor)
            seen.append(int(tensor))
        assert sorted(seen) == list(range(1, size))
    else:
        group.send([one(rank)], 0, 7).wait()


@case
def messages_in_a_batch(group, rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    output = torch.zeros(3)
    operations = [
        dist.P2POp(dist.isend, torch.full((3,), float(rank)), group_peer=right, group=group),
        dist.P2POp(dist.irecv, output, group_peer=left, group=group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    equal(output, torch.full((3,), float(left)))


@case
def barrier_implies_wait(group, rank, size):
    tensors = [torch.full((100, 100), float(number)) for number in range(16)]
    for tensor in tensors:
        group.allreduce(tensor)  # its work is dropped
    group.barrier().get_future().wait()
    for number, tensor in enumerate(tensors):
        equal(tensor, torch.full((100, 100), float(number * size)))


@case
def objects(group, rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank}, group=group)
    assert gathered == [{"rank": peer} for peer in range(size)]
    shared = [rank, "text", None]
    dist.broadcast_object_list(shared, group_src=size - 1, group=group)
    assert shared == [size - 1, "text", None]
    mine = [None]
    dist.scatter_object_list(mine, [str(peer) for peer in range(size)], group_src=0, group=group)
    assert mine == [str(rank)]
    at_root = [None] * size if rank == 0 else None
    dist.gather_object(rank, at_root, group_dst=0, group=group)
    assert rank != 0 or at_root == list(range(size))
    if rank == 0:
        dist.send_object_list([{"a": 1}], group_dst=1, group=group)
    if rank == 1:
        received = [None]
        dist.recv_object_list(received, group_src=0, group=group)
        assert received == [{"a": 1}]
    dist.barrier(group)  # a rank that left before the first message would have the others wait for it


# --- the group ---


@case
def timeouts_are_set(group, rank, size):
    backend = group._get_backend(torch.device("cpu"))
    assert backend.options._timeout == datetime.timedelta(seconds=50)
    group.set_timeout(datetime.timedelta(seconds=23))
    assert backend.options._timeout == datetime.timedelta(seconds=23)
    group.allreduce(torch.rand(10)).wait()


@case
def monitored_barriers(group, rank, size):
    dist.monitored_barrier(group)
    dist.monitored_barrier(group, datetime.timedelta(seconds=20), wait_all_ranks=True)
    group.monitored_barrier()


@case
def sequence_numbers(group, rank, size):
    group._set_sequence_number_for_group()
    before = group._get_sequence_number_for_group()
    group.allreduce(one(1.0)).wait()
    group.broadcast(one(1.0), root=0).wait()
    assert group._get_sequence_number_for_group() == before + 2
    numbers = [None] * size
    dist.all_gather_object(numbers, before, group=group)
    assert len(set(numbers)) == 1


@case
def groups_with_local_synchronization(group, rank, size):
    half = [peer for peer in range(size) if peer % 2 == rank % 2]
    own = dist.new_group(half, use_local_synchronization=True)
    tensor = one(1.0)
    dist.all_reduce(tensor, group=own)
    assert tensor == len(half)
    again = dist.new_group(half, use_local_synchronization=True)
    dist.barrier(again)
    for made in own, again:
        dist.destroy_process_group(made)


@case
def ranks_outside_of_a_group(group, rank, size):
    pair = dist.new_group([0, 1])
    if rank < 2:
        assert dist.get_rank(pair) == rank and dist.get_world_size(pair) == 2
        dist.all_reduce(one(1.0), group=pair)
    else:
        assert dist.get_rank(pair) == dist.get_world_size(pair) == -1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.all_reduce(one(1.0), group=pair)
            dist.barrier(pair)
        assert len([each for each in caught if "does not belong to" in str(each.message)]) == 2


@case
def what_a_group_says(group, rank, size):
    with refused("pickle", kind=(TypeError, RuntimeError)):
        pickle.dumps(group)
    store = group.get_group_store()
    store.set(f"said/{rank}", str(rank))
    assert store.get(f"said/{(rank + 1) % size}").decode() == str((rank + 1) % size)
    backend = group._get_backend(torch.device("cpu"))
    assert not backend.supports_coalescing and not backend.supports_time_estimate
    with refused("not safe to split"):
        dist.split_group(group, [[0], list(range(1, size))])
    # Other types of one tensor than another's.
    with refused("type", "dtype", kind=(RuntimeError, ValueError)):
        dist.all_gather([torch.zeros(2, dtype=torch.int32)] * size, torch.zeros(2), group=group)


@case
def complex_and_bool(group, rank, size):
    numbers = torch.tensor([1 + 1j, rank - 2j])
    dist.all_reduce(numbers, group=group)
    equal(numbers, torch.tensor([size + size * 1j, size * (size - 1) / 2 - 2j * size]))
    with refused("all_reduce does not support", kind=(ValueError, RuntimeError)):
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=group)
    flags = torch.tensor([rank == 0, False])
    dist.broadcast(flags, group_src=0, group=group)
    assert flags.tolist() == [True, False]


# --- DistributedDataParallel ---


class Embedded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(10, 3, sparse=True)

    def forward(self, numbers):
        return torch.nn.functional.softmax(self.embedding(numbers), dim=1)


def sparse_training(group, rank, size, hook=None, **more):
    torch.manual_seed(1337)
    plain = Embedded()
    wrapped = DistributedDataParallel(copy.deepcopy(plain), process_group=group, **more)
    if hook is not None:
        wrapped.register_comm_hook(None, hook)
    loss, numbers, target = (
        torch.nn.CrossEntropyLoss(),
        torch.randint(0, 10, [2 * size, 2]),
        torch.randint(0, 3, [2 * size]),
    )
    loss(plain(numbers), target).backward()
    loss(wrapped(numbers.split(2)[rank]), target.split(2)[rank]).backward()
    wanted, got = (next(module.parameters()).grad.coalesce() for module in (plain, wrapped))
    torch.testing.assert_close(got, wanted)


@case
def ddp_sparse_gradients(group, rank, size):
    sparse_training(group, rank, size)
    sparse_training(group, rank, size, gradient_as_bucket_view=True)

    def hook(state, bucket):
        return group.allreduce([bucket.buffer()]).get_future().then(lambda future: future.wait()[0] / size)

    sparse_training(group, rank, size, hook)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 10, bias=False)
        self.second = torch.nn.Linear(10, 4, bias=False)
        self.third = torch.nn.Linear(4, 4, bias=False)

    def forward(self, values, third=True):
        values = torch.relu(self.second(torch.relu(self.first(values)).float()))
        return torch.softmax(self.third(values) if third else values, dim=1)


@case
def ddp_ignored_outputs(group, rank, size):
    for unused in (False, True):
        model = DistributedDataParallel(Layers(), process_group=group, find_unused_parameters=unused)
        values, target = torch.rand(4, 2), torch.randint(0, 4, (4,))
        for _ in range(4):
            model(values)
        for _ in range(4):
            torch.nn.functional.cross_entropy(model(values, third=not unused), target).backward()


@case
def ddp_locally_unused(group, rank, size):
    class Tasks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tasks = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2, 2)) for _ in range(3)])

        def forward(self, value):
            return self.tasks[0] * value if rank == 0 else self.tasks[1] * value

    for more in ({}, {"gradient_as_bucket_view": True}):
        model = DistributedDataParallel(Tasks(), process_group=group, find_unused_parameters=True, **more)
        model(8.0).mean().backward()
        gradients = [parameter.grad is not None for parameter in model.module.tasks]
        assert gradients == [True, True, False], gradients


@case
def ddp_hooks(group, rank, size):
    def hook(state, bucket):
        future = torch.futures.Future()
        future.set_result(2 * torch.ones_like(bucket.buffer()))
        return future

    model = DistributedDataParallel(Layers(), process_group=group)
    with refused("must be callable", kind=TypeError):
        model.register_comm_hook(None, 1)
    model.register_comm_hook(None, hook)
    with refused("can only be called once"):
        model.register_comm_hook(None, hook)
    model(torch.rand(3, 2)).sum().backward()
    assert all((parameter.grad == 2).all() for parameter in model.parameters())


def reducer_of(group, model, **more):
    parameters = list(model.parameters())
    types = sorted({parameter.dtype for parameter in parameters}, key=str)
    buckets = [[i for i, parameter in enumerate(parameters) if parameter.dtype == dtype] for dtype in types]
    limits = [dist._DEFAULT_FIRST_BUCKET_BYTES] * len(buckets)
    return dist.Reducer(parameters, buckets, limits, group, **more)


@case
def reducers(group, rank, size):
    torch.manual_seed(1)
    mixed = Layers()
    mixed.first.double()
    parameters = list(mixed.parameters())
    with refused("", kind=RuntimeError):
        limit = [dist._DEFAULT_FIRST_BUCKET_BYTES]
        dist.Reducer(parameters, [list(range(len(parameters)))], limit, group)
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return  # a reducer wants names of parameters there, which DDP has
    values, target = torch.rand(10, 2, dtype=torch.double), torch.randint(0, 4, (10,))
    for unused in (True, False):
        reducer = reducer_of(group, mixed, find_unused_parameters=unused)
        optimizer = torch.optim.Adam(mixed.parameters())
        for _ in range(3):  # buckets are built again after the first
            optimizer.zero_grad()
            reducer.prepare_for_forward()
            output = torch.nn.functional.cross_entropy(mixed(values, third=not unused), target)
            reducer.prepare_for_backward([output] if unused else [])
            output.backward()
            assert (mixed.third.weight.grad is None) == unused
            optimizer.step()
        mixed = copy.deepcopy(mixed)  # without the first reducer's hooks


@case
def coalesced_broadcast_and_verified_shapes(group, rank, size):
    for root in range(size):
        wanted = [*torch.arange(60.0).chunk(5), *torch.arange(60, dtype=torch.float64).chunk(5)]
        tensors = [tensor.clone() if rank == root else torch.zeros_like(tensor) for tensor in wanted]
        dist._broadcast_coalesced(group, tensors, buffer_size=256, src=root)
        equal(tensors, wanted)
    dist._verify_params_across_processes(group, [torch.ones(2, 3)], None)
    if rank > 0:  # rank 0 has the shapes that count
        with refused("appears not to match", "sizes"):
            dist._verify_params_across_processes(group, [torch.ones(2, 4)], None)
    else:
        dist._verify_params_across_processes(group, [torch.ones(2, 3)], None)


def main():
    backend = sys.argv[1]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = sys.argv[2:] or CASES
    store = dist.FileStore("store", int(os.environ["WORLD_SIZE"]))
    for name in chosen:
        # A new world for each: a case that fails must not fail the next one.
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(name, store),
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=datetime.timedelta(seconds=50),
        )
        group = dist.group.WORLD
        try:
            CASES[name](group, dist.get_rank(), dist.get_world_size())
            outcome = "ok"
        except Exception:
            outcome = " | ".join(traceback.format_exc().strip().splitlines()[-12:])
        print(f"{name}={outcome}", flush=True)
        del group
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
