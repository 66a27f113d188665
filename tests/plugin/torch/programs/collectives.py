"""PyTorch's use of groups: every collective, objects, point to point, many groups, several threads. Checks itself."""

import threading

import load  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def ranks_tensor(count=5):
    return torch.full((count,), float(rank))


def collectives(group=None):
    dist.barrier(group)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        tensor = torch.ones(1001, dtype=dtype) * (rank + 1)
        dist.all_reduce(tensor, group=group)
        assert (tensor == size * (size + 1) // 2).all()
    tensor = ranks_tensor()
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
    assert (tensor == size - 1).all()
    for source in range(size):
        tensor = ranks_tensor()
        dist.broadcast(tensor, source, group=group)
        assert (tensor == source).all()
        gathered = [torch.empty(5) for _ in range(size)] if rank == source else None
        dist.gather(ranks_tensor(), gathered, dst=source, group=group)
        assert gathered is None or all((tensor == r).all() for r, tensor in enumerate(gathered))
        parts = [torch.full((3,), float(10 * source + r)) for r in range(size)] if rank == source else None
        part = torch.empty(3)
        dist.scatter(part, parts, src=source, group=group)
        assert (part == 10 * source + rank).all()
        tensor = ranks_tensor()
        dist.reduce(tensor, source, group=group)
        assert rank != source or (tensor == size * (size - 1) // 2).all()
    gathered = [torch.empty(5) for _ in range(size)]
    dist.all_gather(gathered, ranks_tensor(), group=group)
    assert all((tensor == r).all() for r, tensor in enumerate(gathered))
    received = torch.empty(2 * size)
    dist.all_to_all_single(received, torch.arange(2.0 * size) + 100 * rank, group=group)
    assert (received == torch.cat([torch.tensor([2.0 * rank, 2.0 * rank + 1]) + 100 * r for r in range(size)])).all()


def objects():
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * (1000 * rank)})
    assert [thing["rank"] for thing in everything] == list(range(size))
    thing = [("from", rank)]
    dist.broadcast_object_list(thing, src=1)
    assert thing == [("from", 1)]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]


def point_to_point():
    large = torch.arange(500_000, dtype=torch.float32)
    right, left = (rank + 1) % size, (rank - 1) % size
    received = [torch.empty_like(large) for _ in range(3)]
    works = [dist.isend(large + rank + tag, right, tag=tag) for tag in range(3)]
    works += [dist.irecv(received[tag], left, tag=tag) for tag in reversed(range(3))]
    for work in works:
        work.wait()
    assert all(torch.equal(received[tag], large + left + tag) for tag in range(3))
    if rank == 0:  # from any
        senders = set()
        for _ in range(size - 1):
            tensor = torch.empty(4)
            senders.add(dist.recv(tensor))
        assert senders == set(range(1, size))
    else:
        dist.send(ranks_tensor(4), 0)


def many_groups():
    groups = [dist.new_group(list(range(size))) for _ in range(24)]
    for number, group in enumerate(groups):
        tensor = torch.full((number + 1,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert (tensor == size * (size - 1) // 2).all()
    pair = dist.new_group([0, 1])
    if rank < 2:
        tensor = ranks_tensor()
        dist.all_reduce(tensor, group=pair)
        assert (tensor == 1).all()

    def from_thread(group, failures):
        try:
            for _ in range(20):
                tensor = torch.full((4000,), 1.0)
                dist.all_reduce(tensor, group=group)
                assert (tensor == size).all()
        except Exception as error:  # handed to the main thread
            failures.append(error)

    failures = []
    threads = [threading.Thread(target=from_thread, args=(group, failures)) for group in groups[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def asynchronous():
    tensors = [torch.full((3000 * (i + 1),), float(rank + i)) for i in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    for i, tensor in enumerate(tensors):
        assert (tensor == size * (size - 1) // 2 + size * i).all()


def leave():
    """PyTorch 2.6 joins the group's workers while it holds the interpreter's lock, and hangs if one of them then drops
    the last reference to a tensor, for which it needs that lock. All-reduces of a tensor that stays give the workers
    time, since waiting releases the lock."""
    stays = torch.ones(1)
    for _ in range(20):
        dist.all_reduce(stays, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()


collectives()
objects()
point_to_point()
asynchronous()
many_groups()
collectives()
print("all=right")
leave()
