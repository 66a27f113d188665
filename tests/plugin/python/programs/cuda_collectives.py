"""CUDA tensors over our collectives, copied to the host and back. Needs a GPU; the ranks may share one.

    python3 -m torch.distributed.run --nproc_per_node 2 tests/plugin/python/programs/cuda_collectives.py bypass all
    ... cuda_collectives.py bypass speed                      # ms of all-reduces; "gloo" instead, for comparison

Arguments: the backend; a case, "all" of them, or "speed". With "cpu:bypass,cuda:nccl" each rank needs a GPU of its own.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

#: Elements: nothing, what goes at once, one piece, many and a short one.
COUNTS = (0, 5, 200_000, 4_000_001)
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def base(count, dtype=torch.float32):
    return (torch.arange(count, device="cuda") % 97 + 1).to(dtype)


def check(tensor, expected):
    torch.testing.assert_close(tensor, expected.to(tensor.dtype), rtol=0, atol=0)


@case
def every_kind(rank, size):
    for count in COUNTS:
        for dtype in (torch.float32, torch.float64, torch.int64):
            for asynchronous in (False, True):
                kinds(rank, size, base(count, dtype), asynchronous)


def kinds(rank, size, own, asynchronous):
    def done(work):
        if asynchronous:
            work.wait()

    many = {"async_op": asynchronous}
    total, each = own * (size * (size + 1) // 2), [own * (other + 1) for other in range(size)]
    mine, count = each[rank].clone(), len(own)
    sums = mine.clone()
    done(dist.all_reduce(sums, **many))
    check(sums, total)
    sums = mine.clone()
    done(dist.reduce(sums, 1, **many))
    if rank == 1:
        check(sums, total)
    sent = mine.clone()
    done(dist.broadcast(sent, 1, **many))
    check(sent, each[1])
    gathered = [torch.zeros_like(own) for _ in range(size)]
    done(dist.all_gather(gathered, mine, **many))
    for got, expected in zip(gathered, each):
        check(got, expected)
    flat = own.new_zeros(size * count)
    done(dist.all_gather_into_tensor(flat, mine, **many))
    check(flat, torch.cat(each))
    parts = [own * (10 * rank + other) for other in range(size)]
    expected = own * sum(10 * other + rank for other in range(size))
    part = torch.zeros_like(own)
    done(dist.reduce_scatter(part, parts, **many))
    check(part, expected)
    part = torch.zeros_like(own)
    done(dist.reduce_scatter_tensor(part, torch.cat(parts), **many))
    check(part, expected)
    got = [torch.zeros_like(own) for _ in range(size)]
    done(dist.all_to_all(got, parts, **many))
    for other in range(size):
        check(got[other], own * (10 * other + rank))
    got = own.new_zeros(size * count)
    done(dist.all_to_all_single(got, torch.cat(parts), **many))
    check(got, torch.cat([own * (10 * other + rank) for other in range(size)]))
    # Rank r sends r + 1 copies to each.
    got = own.new_zeros(sum(range(size + 1)) * count)
    splits = [count * (other + 1) for other in range(size)], [count * (rank + 1)] * size
    done(dist.all_to_all_single(got, mine.repeat(size * (rank + 1)), *splits, **many))
    check(got, torch.cat([each[other].repeat(other + 1) for other in range(size)]))
    if dist.get_backend() == "bypass":
        got = torch.zeros_like(own)
        done(dist.scatter(got, each if rank == 0 else None, 0, **many))
        check(got, mine)
        gathered = [torch.zeros_like(own) for _ in range(size)] if rank == 0 else None
        done(dist.gather(mine, gathered, 0, **many))
        for got, expected in zip(gathered or [], each):
            check(got, expected)


@case
def messages(rank, size):
    """The sender's kernel is late."""
    for count in COUNTS:
        got = base(count) * 0
        if rank == 0:
            torch.cuda._sleep(20_000_000)
            dist.send(base(count) * 2, 1)
        elif rank == 1:
            dist.recv(got, 0)
            check(got, base(count) * 2)


@case
def short_way(rank, size):
    """By the driver from the second one on, on the caller's stream, after a late kernel."""
    group, side = dist.group.WORLD, torch.cuda.Stream()
    if dist.get_backend() != "bypass" or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return
    ways, attempt = [], group._all_reduce

    def counted(*arguments):
        ways.append(attempt(*arguments))
        return ways[-1]

    group._all_reduce = counted
    dist.all_reduce(base(1))
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        for count in (1, 2, 3, 4_095, 4_096, 8_191, 8_192, 16_384, 32_767, 32_768, 500_000):
            for stream in (torch.cuda.current_stream(), side):
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(2_000_000)
                    tensor = (base(count) % 5).to(dtype) + rank
                    dist.all_reduce(tensor)
                    expected = ((base(count) % 5) * size + size * (size - 1) // 2).to(dtype)
                    check(tensor, expected)
    assert ways[0] is False and all(way is True for way in ways[1:]), ways


@case
def streams(rank, size):
    """The tensor is made on a side stream, late, and used on another one after wait()."""
    making, using = torch.cuda.Stream(), torch.cuda.Stream()
    for asynchronous in (True, False):
        for round in range(20):
            with torch.cuda.stream(making):
                torch.cuda._sleep(20_000_000)
                tensor = torch.full((3_000_000,), float(rank + round), device="cuda")
                work = dist.all_reduce(tensor, async_op=asynchronous)
            with torch.cuda.stream(using):
                if asynchronous:
                    work.wait()
                else:
                    using.wait_stream(making)
                doubled = tensor * 2
                tensor.record_stream(using)
            using.synchronize()
            assert (doubled == 2 * (size * round + size * (size - 1) / 2)).all()
            # Memory that was freed while copies were under way is not another tensor's before they are done.
            del tensor
            with torch.cuda.stream(making):
                torch.zeros(3_000_000, device="cuda")


@case
def order(rank, size):
    """Operations of CPU tensors among asynchronous ones of the GPU's."""
    works, tensors = [], []
    for _ in range(10):
        gpu, host = base(2_000_000), torch.ones(1000)
        works.append(dist.all_reduce(gpu, async_op=True))
        dist.all_reduce(host)
        works.append(dist.all_reduce(gpu[:10], async_op=True))
        dist.barrier()
        tensors.append((gpu, host))
    for work in works:
        work.wait()
    for gpu, host in tensors:
        check(host, torch.ones(1000) * size)
        check(gpu[:10], base(10) * size * size)
        check(gpu[10:], base(2_000_000)[10:] * size)


@case
def futures(rank, size):
    tensor = base(3_000_000)
    result = dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0] / size).wait()
    check(result, base(3_000_000))


@case
def ddp(rank, size):
    """The same gradients as one process has from all the samples."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.Tanh(), torch.nn.Linear(2048, 512)).cuda()
    samples = torch.randn(size * 8, 512, device="cuda")
    model(samples).square().mean().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=2)
    for _ in range(3):
        model.zero_grad()
        parallel(samples[rank * 8 : rank * 8 + 8]).square().mean().backward()
        for parameter, gradient in zip(model.parameters(), expected):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)


@case
def memory(rank, size):
    """Pinned memory stays within its bound."""
    import gloo_bypass._calls as calls
    import gloo_bypass._pipeline as pipeline

    for _ in range(30):
        dist.all_reduce(base(20_000_000))
    kept = calls.SLOTS._kept
    assert len(kept) <= pipeline.KEPT_BYTES // pipeline.SLOT_BYTES and all(slot.memory.is_pinned() for slot in kept)


def speed(rank, size):
    """Medians in ms, from the call until the result is on the GPU."""
    for count in (1, 2 << 10, 16 << 10, 256 << 10, 4 << 20, 16 << 20):
        tensor, took = torch.ones(count, device="cuda"), []
        for _ in range(30):
            torch.cuda.synchronize()
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
            took.append(1000 * (time.perf_counter() - began))
        if rank == 0:
            print(f"{4 * count} bytes: {statistics.median(took[5:]):.3f} ms", flush=True)


def main():
    backend, name = sys.argv[1:3]
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    if "nccl" in backend and torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]):
        print("why=NCCL needs a GPU for each rank\nend=skipped")
        return
    torch.cuda.set_device(local % torch.cuda.device_count())
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    for run in {"all": CASES.values(), "speed": [speed]}.get(name) or [CASES[name]]:
        run(rank, size)
        if rank == 0:
            print(f"{run.__name__}: ok", flush=True)
    dist.destroy_process_group()
    print("end=ok")


if __name__ == "__main__":
    main()
