"""Every collective of torch.distributed, through our backend and through Gloo among the same ranks: the same results.

Prints checked=N, the number of comparisons. Values are small whole numbers, so that every order of additions and every
element type gives the same bits.
"""

import datetime
import functools
import itertools
import os
import sys

import torch
import torch.distributed as dist

RELEASE = tuple(int(word) for word in torch.__version__.split(".")[:2])
SEED = int(os.environ.get("DOOR_SEED", "1"))
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]
SHAPES = [(1,), (0,), (7,), (3, 5), (1000,), (70000,), ()]
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def made(rank, shape, dtype=torch.float32, salt=0):
    generator = torch.Generator().manual_seed(SEED * 1000 + rank * 10 + salt)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def on_view(view, call, group):
    """Gloo takes a strided view's memory as if it were dense, and changes what lies between: give it a dense copy."""
    if dist.get_backend(group) == "gloo":
        dense = view.contiguous()
        call(dense)
        view.copy_(dense)
    else:
        call(view)


def for_gloo(tensor, group):
    """PyTorch's Gloo has not always known each type, even where it only moves bytes: then the bytes, for it alone."""
    known = RELEASE >= (2, 9) or tensor.dtype in DTYPES
    return tensor if known or dist.get_backend(group) != "gloo" else tensor.view(torch.uint8)


def reduce_scatter_list(output, inputs, group):
    """PyTorch's Gloo has not always had it: then all-reduces, for it alone."""
    if RELEASE >= (2, 9) or dist.get_backend(group) != "gloo":
        dist.reduce_scatter(output, inputs, group=group)
        return
    wholes = [given.clone() for given in inputs]
    for whole in wholes:
        dist.all_reduce(whole, group=group)
    output.copy_(wholes[dist.get_rank(group)])


# Each takes the group, this rank and the number of ranks; the result is a list of tensors or objects.


@case
def all_reduce(group, rank, size):
    results = []
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        results.append(made(rank, shape, dtype))
        dist.all_reduce(results[-1], group=group)
    operations = [dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    for dtype, operation in itertools.product([torch.float32, torch.float64, torch.int32, torch.int64], operations):
        results.append(made(rank, (33,), dtype))
        dist.all_reduce(results[-1], operation, group=group)
    for operation in dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR:
        results.append(made(rank, (33,), torch.int32))
        dist.all_reduce(results[-1], operation, group=group)
    return results


@case
def all_reduce_views(group, rank, size):
    results = []
    for view in (lambda t: t[::2], lambda t: t.t(), lambda t: t[:, 1:3], lambda t: t[2:]):
        whole = made(rank, (6, 8))
        on_view(view(whole), lambda tensor: dist.all_reduce(tensor, group=group), group)
        results.append(whole)
    channels_last = made(rank, (2, 3, 4, 5)).to(memory_format=torch.channels_last)
    dist.all_reduce(channels_last, group=group)
    leaf = torch.nn.Parameter(made(rank, (4, 4)).t().contiguous().t())
    dist.all_reduce(leaf.data, group=group)
    return [*results, channels_last, leaf.detach()]


@case
def all_reduce_complex(group, rank, size):
    tensor = torch.complex(made(rank, (9,)), made(rank, (9,), salt=1))
    dist.all_reduce(tensor, group=group)
    return [tensor]


@case
def all_reduce_sparse(group, rank, size):
    dense = made(rank, (6, 4)) * (torch.arange(6) % size == rank).float().unsqueeze(1)
    tensor = dense.to_sparse(1)
    dist.all_reduce(tensor, group=group)
    return [tensor.to_dense()]


@case
def all_reduce_asynchronous(group, rank, size):
    tensors = [made(rank, (n + 1,), salt=n) for n in range(20)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait()
        assert work.is_completed()
    future = dist.all_reduce(tensors[0], group=group, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    return [*tensors, doubled.wait()]


@case
def all_reduce_coalesced(group, rank, size):
    tensors = [made(rank, shape, salt=len(shape)) for shape in ((3,), (0,), (4, 5), (1,))]
    with dist.distributed_c10d._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return tensors


@case
def reduce(group, rank, size):
    results = []
    for root in range(size):
        tensor = made(rank, (11,), salt=root)
        dist.reduce(tensor, root, group=group)
        if rank == root:  # elsewhere Gloo's rings leave partial sums
            results.append(tensor)
    return results


@case
def broadcast(group, rank, size):
    results = []
    for dtype in [*DTYPES, torch.bool, torch.complex64]:
        for root in range(size):
            results.append(made(rank, (3, 4), dtype, salt=root))
            dist.broadcast(for_gloo(results[-1], group), root, group=group)
    whole = made(rank, (8, 8))
    on_view(whole.t()[1:, ::2], lambda tensor: dist.broadcast(tensor, 0, group=group), group)
    return [*results, whole]


@case
def all_gather(group, rank, size):
    results = []
    for dtype, shape in itertools.product([torch.float32, torch.int64, torch.bool], SHAPES):
        outputs = [torch.zeros(shape, dtype=dtype) for _ in range(size)]
        dist.all_gather(outputs, made(rank, shape, dtype), group=group)
        results += outputs
    outputs = [torch.zeros(3, 4) if dist.get_backend(group) == "gloo" else torch.zeros(4, 3).t() for _ in range(size)]
    dist.all_gather(outputs, made(rank, (4, 3)).t().contiguous(), group=group)
    return results + outputs


@case
def all_gather_into_tensor(group, rank, size):
    output, later = torch.zeros(size * 5, 2), torch.zeros(size * 5, 2)
    dist.all_gather_into_tensor(output, made(rank, (5, 2)), group=group)
    dist.all_gather_into_tensor(later, made(rank, (5, 2)), group=group, async_op=True).wait()
    return [output, later]


@case
def gather(group, rank, size):
    results = []
    for root in range(size):
        outputs = [torch.zeros(6) for _ in range(size)] if rank == root else None
        dist.gather(made(rank, (6,), salt=root), outputs, root, group=group)
        results += outputs or []
    return results


@case
def scatter(group, rank, size):
    results = []
    for root in range(size):
        inputs = [made(rank, (6,), salt=peer) for peer in range(size)] if rank == root else None
        results.append(torch.zeros(6))
        dist.scatter(results[-1], inputs, root, group=group)
    return results


@case
def reduce_scatter(group, rank, size):
    output, second = torch.zeros(7), torch.zeros(4)
    reduce_scatter_list(output, [made(rank, (7,), salt=peer) for peer in range(size)], group)
    dist.reduce_scatter_tensor(second, made(rank, (4 * size,)), group=group)
    return [output, second]


@case
def all_to_all_single(group, rank, size):
    output = torch.zeros(2 * size, 3)
    dist.all_to_all_single(output, made(rank, (2 * size, 3)), group=group)
    sends = [(rank + peer) % 3 for peer in range(size)]  # rows from rank to peer
    uneven = torch.zeros(sum(sends), 2)  # symmetric, so this rank gets as much from each
    dist.all_to_all_single(uneven, made(rank, (sum(sends), 2)), sends, sends, group=group)
    return [output, uneven]


@case
def inputs_in_outputs(group, rank, size):
    """A block lies in a whole, where this rank's is, where another's is, and across two: one of them is the input."""
    results = []

    def given(tensor):  # Gloo need not know
        return tensor.clone() if dist.get_backend(group) == "gloo" else tensor

    def parts(whole):
        return [given(part) for part in whole.chunk(size)]

    calls = [
        lambda whole, block: dist.all_gather_into_tensor(whole, given(block), group=group),
        lambda whole, block: dist.all_gather(list(whole.chunk(size)), given(block), group=group),
        lambda whole, block: dist.reduce_scatter_tensor(block, given(whole), group=group),
        lambda whole, block: reduce_scatter_list(block, parts(whole), group),
    ]
    for root in range(size):
        outputs = (lambda whole: list(whole.chunk(size))) if rank == root else (lambda whole: None)
        inputs = parts if rank == root else (lambda whole: None)
        calls += [
            lambda whole, block, to=root, at=outputs: dist.gather(given(block), at(whole), to, group=group),
            lambda whole, block, of=root, at=inputs: dist.scatter(block, at(whole), of, group=group),
        ]
    for count in (1, 2 << 20) if size == 2 else (1, 1000):
        for first in sorted({0, count // 2, count} if size > 1 else {0}):
            for call in calls:
                whole = made(rank, (size * count,), salt=first % 7)
                call(whole, whole[first : first + count])
                results.append(torch.dot(whole.long(), torch.arange(size * count)))  # instead of all these tensors
    return results


@case
def objects(group, rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (rank * 100)}, group=group)
    shared = [rank, "from", {0: [rank]}]
    dist.broadcast_object_list(shared, size - 1, group=group)
    at_root = [None] * size if rank == 0 else None
    dist.gather_object((rank, "g"), at_root, 0, group=group)
    mine = [None]
    dist.scatter_object_list(mine, [f"for {peer}" for peer in range(size)] if rank == 0 else None, 0, group=group)
    return [gathered, shared, at_root, mine]


@case
def messages(group, rank, size):
    if size == 1:
        return []
    after, before = (rank + 1) % size, (rank - 1) % size
    results = [torch.zeros(n) for n in (5, 0, 9, 100000)]
    # Tags decide which message goes where, not the order; and sends do not wait for receives.
    works = [
        dist.isend(made(rank, result.shape, salt=tag), after, group=group, tag=tag)
        for tag, result in enumerate(results)
    ]
    works += [dist.irecv(results[tag], before, group=group, tag=tag) for tag in (2, 0, 3, 1)]
    for work in works:
        work.wait()
    if rank == 0:
        seen = {}
        for _ in range(size - 1):
            tensor = torch.zeros(3)
            source = dist.recv(tensor, group=group, tag=9)
            seen[source] = tensor.tolist()
        results.append(seen)
    else:
        dist.send(made(rank, (3,)), 0, group=group, tag=9)
    exchanged = torch.zeros(4)
    operations = [
        dist.P2POp(dist.isend, made(rank, (4,)), after, group),
        dist.P2POp(dist.irecv, exchanged, before, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    strided = torch.zeros(4, 6)
    work = dist.isend(made(rank, (4, 3)), after, group=group)
    on_view(strided[:, ::2], lambda tensor: dist.recv(tensor, before, group=group), group)
    work.wait()
    return [*results, exchanged, strided]


@case
def barriers(group, rank, size):
    dist.barrier(group)
    dist.barrier(group, async_op=True).wait()
    dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=60))
    return []


def compare(name, ours, gloos):
    assert len(ours) == len(gloos), f"{name}: {len(ours)} results, Gloo has {len(gloos)}"
    for index, (own, other) in enumerate(zip(ours, gloos)):
        same = torch.equal(own, other) if isinstance(own, torch.Tensor) else own == other
        assert same, f"{name}, result {index}, seed {SEED}:\n{own}\nGloo:\n{other}"
    return len(ours)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("bypass", timeout=datetime.timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=60))
    assert dist.get_backend() == "bypass" and dist.get_backend(gloo) == "gloo"
    checked = 0
    for name in sys.argv[1:] or [name for name in CASES if name != "messages"]:
        run = functools.partial(CASES[name], rank=rank, size=size)
        try:
            checked += compare(name, run(dist.group.WORLD), run(gloo))
        except Exception as error:
            raise RuntimeError(f"case {name}") from error
    print(f"checked={checked}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
