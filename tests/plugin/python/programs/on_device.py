"""Tensors of a device over our collectives, with a device that is none: its tensors are the host's, and its copies run
as late as events allow (fake_device.py). Arguments: cases. What a GPU does is for cuda_collectives.py to see."""

import ctypes
import os
import pathlib
import signal
import sys
import time
import warnings

if "FAKE_LIBCUDA" in os.environ:  # before PyTorch, which may bring the real one
    ctypes.CDLL(os.environ["FAKE_LIBCUDA"])
import torch
import torch.distributed as dist
from asleep import send_once_asleep

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from fake_device import CALLERS, FakeDevice  # noqa: E402

BIG = 1_600_001  # elements: several pieces, and the last is short
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class OnDevice(torch.Tensor):
    is_cpu = property(lambda self: False)
    is_cuda = property(lambda self: True)
    device = property(lambda self: torch.device("cuda", 0))


class Device(FakeDevice):
    """Its memory is tensors. What PyTorch does with them runs at once, so a stream that catches up has to be there."""

    def catch_up(self, event):
        super().catch_up(event)
        self.hold(self.now())

    def host_memory(self, size, kept):
        with torch.inference_mode(False):
            return torch.randint(0, 256, (size,), dtype=torch.uint8)

    def address(self, host):
        return host.data_ptr()

    def copy_in(self, stream, host, at, memory, first, last):
        self.enqueue(stream, lambda: host[at : at + last - first].copy_(memory[first:last].as_subclass(torch.Tensor)))

    def copy_out(self, stream, memory, first, last, host, at):
        self.enqueue(stream, lambda: memory[first:last].as_subclass(torch.Tensor).copy_(host[at : at + last - first]))
        if stream == CALLERS:  # what PyTorch does next on that stream, it does at once
            self.hold(self.now())


def start():
    import gloo_bypass._devices as devices
    import gloo_bypass._work as work

    devices.make = lambda device: Device(int(os.environ["RANK"]))
    work.devices_of = lambda result: []  # a future of PyTorch's would look for a GPU
    torch.cuda.get_device_capability = lambda device: (9, 0)  # broadcast asks
    if not dist.is_initialized():
        dist.init_process_group("bypass")
    return dist.get_rank(), dist.get_world_size()


def the_device(group=None):
    return next(iter((group or dist.group.WORLD)._devices.values()))


def on_device(*shape, value=None, dtype=torch.float32):
    count = 1
    for size in shape:
        count *= size
    values = torch.arange(count) % 97 + 1 if value is None else torch.full((count,), value)
    return values.to(dtype).reshape(shape).as_subclass(OnDevice)


def read(tensor, group=None):
    """What the caller's stream reads next."""
    device = the_device(group)
    device.hold(device.now())
    return tensor.as_subclass(torch.Tensor).clone()


def check(tensor, expected):
    torch.testing.assert_close(read(tensor), expected.as_subclass(torch.Tensor).to(tensor.dtype), rtol=0, atol=0)


class FakeDriver:
    """Plain tensors that are a GPU's by what DLPack says, and fake_libcuda.cc for a driver."""

    GPU, STREAM = 1, 0x77

    def __init__(self, group):
        import gloo_bypass._pipeline as pipeline
        import gloo_bypass._short_way as short_way

        self.library = ctypes.CDLL(os.environ["FAKE_LIBCUDA"])
        self.set(device=self.GPU)
        self.tensors = []
        describe, _ = short_way._of_dlpack()
        real = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(describe)

        def described(tensor, out):
            status = real(tensor, out)
            if any(tensor is one for one in self.tensors):
                device = (ctypes.c_int32 * 2).from_address(out + ctypes.sizeof(ctypes.c_void_p))
                device[0], device[1] = 2, self.GPU  # CUDA
            return status

        def stream(kind, number, out):
            assert (kind, number) == (2, self.GPU)
            ctypes.c_void_p.from_address(out).value = self.STREAM
            return 0

        self.described = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(described)
        self.stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(stream)
        addresses = [ctypes.cast(one, ctypes.c_void_p).value for one in (self.described, self.stream)]
        short_way._of_dlpack = lambda: addresses
        assert short_way.find()
        self.pinned = torch.empty(pipeline.LEAST_PIECE_BYTES + (1 << 16), dtype=torch.uint8)
        group._door.pin(self.pinned.data_ptr(), pipeline.LEAST_PIECE_BYTES, self.pinned)

    def set(self, **values):
        for name, value in values.items():
            ctypes.c_int.in_dll(self.library, f"fake_{name}").value = value

    def take(self, *names):
        """What was counted since, and nothing is left to do on the stream."""
        found = [ctypes.c_int.in_dll(self.library, f"fake_{name}") for name in names]
        values = [one.value for one in found]
        for one in found:
            one.value = 0
        assert ctypes.c_int.in_dll(self.library, "fake_pending").value == 0
        return values

    def all_reduce(self, tensor, **more):
        """[copies in, copies out, rows]; the sum is right, whichever way it went."""
        expected = tensor * dist.get_world_size()
        self.tensors[:] = [tensor]
        work = dist.all_reduce(tensor, **more)
        if work is not None:
            work.wait()
        assert torch.equal(tensor, expected), tensor
        return self.take("copies_in", "copies_out", "rows")


@case
def short_way():
    start()
    driver = FakeDriver(dist.group.WORLD)
    for count, dtype in ((1, torch.bfloat16), (1, torch.float32), (4096, torch.float32), (8191, torch.float32)):
        assert driver.all_reduce(torch.arange(count).to(dtype) % 7) == [1, 0, 1], (count, dtype)
    assert driver.all_reduce(torch.arange(3).to(torch.int8)) == [1, 1, 0]
    for size in 32 << 10, 2 << 20:
        assert driver.all_reduce(torch.arange(size // 4).to(torch.float32) % 7) == [1, 1, 0]
    # Longer ones are several pieces at ranks whose tensor goes the usual way.
    assert driver.all_reduce(torch.ones((2 << 20) // 4 + 1)) == [0, 0, 0]
    assert driver.all_reduce(torch.ones(8), async_op=True) == [0, 0, 0]
    driver.set(device=0)
    assert driver.all_reduce(torch.ones(8)) == [0, 0, 0]
    driver.set(device=driver.GPU, refuses_in=1)
    assert driver.all_reduce(torch.ones(8)) == [0, 0, 0]
    # One rank's tensor is of the host.
    driver.set(refuses_in=0)
    assert dist.get_rank() == 1 or driver.all_reduce(torch.ones(8)) == [1, 0, 1]
    assert dist.get_rank() == 0 or dist.all_reduce(torch.ones(8)) is None
    driver.set(refuses_rows=1)
    assert driver.all_reduce(torch.ones(8)) == [1, 1, 0]
    driver.set(refuses_out=1)
    try:
        driver.all_reduce(torch.ones(8))
    except RuntimeError as error:
        assert "CUDA's driver refuses" in str(error), error
    else:
        raise AssertionError("the result is not on the GPU")


@case
def every_kind():
    rank, size = start()
    for count in (0, 5, 40_000, BIG):
        for asynchronous in (False, True):
            kinds(rank, size, count, asynchronous)


def kinds(rank, size, count, asynchronous):
    def done(work):
        if asynchronous:
            work.wait()

    many = {"async_op": asynchronous}
    base = on_device(count)
    mine, total = base * (rank + 1), base * (size * (size + 1) // 2)
    each = [base * (other + 1) for other in range(size)]
    sums = mine.clone()
    done(dist.all_reduce(sums, **many))
    check(sums, total)
    sums = mine.clone()
    done(dist.reduce(sums, 1, **many))
    check(sums, total if rank == 1 else mine)
    sent = mine.clone()
    done(dist.broadcast(sent, 1, **many))
    check(sent, each[1])
    gathered = [on_device(count, value=0) for _ in range(size)]
    done(dist.all_gather(gathered, mine, **many))
    for got, expected in zip(gathered, each):
        check(got, expected)
    flat = on_device(size * count, value=0)
    done(dist.all_gather_into_tensor(flat, mine, **many))
    check(flat, torch.cat(each))
    parts = [base * (10 * rank + other) for other in range(size)]
    part = on_device(count, value=0)
    expected = base * sum(10 * other + rank for other in range(size))
    done(dist.reduce_scatter(part, parts, **many))
    check(part, expected)
    part = on_device(count, value=0)
    done(dist.reduce_scatter_tensor(part, torch.cat(parts), **many))
    check(part, expected)
    gathered = [on_device(count, value=0) for _ in range(size)] if rank == 0 else None
    done(dist.gather(mine, gathered, 0, **many))
    for got, expected in zip(gathered or [], each):
        check(got, expected)
    got = on_device(count, value=0)
    done(dist.scatter(got, each if rank == 0 else None, 0, **many))
    check(got, mine)
    got = [on_device(count, value=0) for _ in range(size)]
    done(dist.all_to_all(got, parts, **many))
    for other in range(size):
        check(got[other], base * (10 * other + rank))
    got = on_device(size * count, value=0)
    done(dist.all_to_all_single(got, torch.cat(parts), **many))
    check(got, torch.cat([base * (10 * other + rank) for other in range(size)]))
    # Rank r sends r + 1 copies to each.
    got = on_device(sum(range(size + 1)) * count, value=0)
    splits = [count * (other + 1) for other in range(size)], [count * (rank + 1)] * size
    done(dist.all_to_all_single(got, mine.repeat(size * (rank + 1)), *splits, **many))
    check(got, torch.cat([each[other].repeat(other + 1) for other in range(size)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [mine.clone(), (mine * 2).clone()]
        done(dist.all_reduce_coalesced(tensors, **many))
    for factor, tensor in enumerate(tensors, 1):
        check(tensor, total * factor)


@case
def messages():
    rank, size = start()
    dist.all_reduce(on_device(5))  # makes the device
    for count in (0, 5, BIG):
        sent = on_device(count)
        if rank == 0:
            dist.send(sent, 1)
        elif rank == 1:
            got = on_device(count, value=0)
            dist.recv(got, 0)
            check(got, sent)


@case
def uneven_and_strided():
    """What is not cut, and what goes the simple way."""
    rank, size = start()
    lengths = [300_000 + 7 * other for other in range(size)]
    gathered = [on_device(length, value=0) for length in lengths]
    dist.all_gather(gathered, on_device(lengths[rank]))
    for got, length in zip(gathered, lengths):
        check(got, on_device(length))
    # One rank's blocks are strided, and the others' are dense: all cut alike.
    wide = on_device(400_000, size)
    got = on_device(400_000, 1, value=0)
    dist.scatter(got, list(wide.chunk(size, dim=1)) if rank == 0 else None, 0)
    check(got, wide[:, rank : rank + 1])
    tensor = on_device(300, 500)
    dist.all_reduce(tensor.t())
    torch.testing.assert_close(tensor.as_subclass(torch.Tensor), on_device(300, 500).as_subclass(torch.Tensor) * size)
    for dtype in (torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.complex64, torch.float8_e5m2):
        sent = on_device(BIG, dtype=dtype) if rank == 0 else on_device(BIG, value=0, dtype=dtype)
        dist.broadcast(sent, 0)
        assert torch.equal(read(sent).view(torch.uint8), on_device(BIG, dtype=dtype).view(torch.uint8))
    for asynchronous in (False, True):  # the input lies across two outputs
        whole = on_device(size * BIG)
        mine = whole[BIG // 2 :][:BIG]
        expected = torch.cat([mine * (other + 1) for other in range(size)])
        mine *= rank + 1
        work = dist.all_gather_into_tensor(whole, mine, async_op=asynchronous)
        if asynchronous:
            work.wait()
        check(whole, expected)
    with torch.inference_mode():
        inferred = on_device(BIG)
    dist.all_reduce(inferred, async_op=True).wait()
    check(inferred, on_device(BIG) * size)
    # Memory of the host that is kept serves calls in this mode and others.
    with torch.inference_mode():
        inferred = on_device(BIG)
        dist.all_reduce(inferred)
        check(inferred, on_device(BIG) * size)
    for asynchronous in (False, True):
        tensor = on_device(BIG)
        work = dist.all_reduce(tensor, async_op=asynchronous)
        if asynchronous:
            work.wait()
        check(tensor, on_device(BIG) * size)


@case
def order_is_kept():
    """Operations on the host's tensors wait behind asynchronous ones on the device's, at all ranks."""
    rank, size = start()
    works, tensors = [], []
    for round in range(6):
        big, small, host = on_device(BIG), on_device(10), torch.ones(10)
        tensors += [big, small, host]
        works.append(dist.all_reduce(big, async_op=True))
        if rank == round % size:
            time.sleep(0.01)  # the queue of one rank is empty where another's is not
        if round % 2:
            works.append(dist.all_reduce(host, async_op=True))
            dist.all_reduce(small)
        else:
            dist.all_reduce(host)
            works.append(dist.all_reduce(small, async_op=True))
        dist.barrier()
    for work in works:
        work.wait()
    for index, tensor in enumerate(tensors):
        expected = (torch.ones(10) if index % 3 == 2 else on_device(*tensor.shape)) * size
        check(tensor, expected)
    assert dist.group.WORLD._queue.pending == 0


@case
def kernels_come_first():
    """A copy waits for what the caller's stream does to the tensor; what comes after wait() waits for the copy back."""
    rank, size = start()
    dist.all_reduce(on_device(BIG))  # makes the device
    device, tensor, seen = the_device(), on_device(BIG, value=0), []

    def fill():
        tensor.as_subclass(torch.Tensor).fill_(rank + 1)

    device.enqueue(CALLERS, fill)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    for _ in range(2):  # wait() by another stream, later
        work.wait()
    device.enqueue(CALLERS, lambda: seen.append(tensor.as_subclass(torch.Tensor).clone()))
    device.hold(device.now())
    assert (seen[0] == size * (size + 1) / 2).all()
    assert work.is_completed() and work.is_success() and work.exception() is None


@case
def futures():
    """A callback runs on a thread of ours, and may wait for further operations."""
    rank, size = start()

    def again(future):
        inner = read(future.value()[0]).as_subclass(OnDevice)
        dist.all_reduce(inner, async_op=True).wait()
        return inner

    tensor = on_device(BIG, value=1)
    result = dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()
    assert (read(result) == size**2).all()


@case
def ranks_disagree():
    rank, size = start()
    tensor = on_device(BIG if rank == 0 else BIG - 1)
    work = dist.all_reduce(tensor, async_op=True)
    behind = dist.all_reduce(on_device(BIG), async_op=True)
    for each in (work, behind):
        try:
            each.wait()
        except dist.DistBackendError as error:
            text = str(error)
        else:
            raise AssertionError("no error")
        assert "rank 0" in text and "float32" in text, text
        assert each.is_completed() and not each.is_success() and each.exception() is not None
        try:
            each.get_future().wait()
        except RuntimeError:
            continue
        raise AssertionError("no error from the future")


@case
def ranks_disagree_alike_at_first():
    """The pieces of these lengths are of one size: what the whole has is compared."""
    rank, size = start()
    for other in (1 << 19, 1 << 21):
        group, text = dist.new_group(), ""
        try:
            dist.all_reduce(on_device(1 << 20 if rank == 0 else other), group=group)
        except dist.DistBackendError as error:
            text = str(error)
        said = (
            f"rank 0 calls all-reduce of {1 << 20} float32, sum, in pieces, rank 1 calls all-reduce of {other} float32"
        )
        assert said in text, text
    # Where another rank's tensor is the host's, it is whole.
    group, text = dist.new_group(), ""
    try:
        dist.all_reduce(on_device(1 << 20) if rank == 0 else torch.ones(1 << 20), group=group)
    except dist.DistBackendError as error:
        text = str(error)
    assert "in pieces, rank 1 calls all-reduce of" in text, text


@case
def a_rank_dies():
    rank, size = start()
    dist.all_reduce(on_device(BIG))
    print("ready", flush=True)
    if rank == size - 1:
        time.sleep(600)  # until it is killed
    try:
        dist.all_reduce(on_device(BIG), async_op=True).wait()
    except dist.DistBackendError as error:
        print(f"error={error}")
    os._exit(0)


@case
def ctrl_c():
    rank, size = start()
    dist.all_reduce(on_device(BIG))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if rank == 0:
        send_once_asleep(signal.SIGINT)
        try:
            dist.all_reduce(on_device(BIG), async_op=True).wait()
        except KeyboardInterrupt:
            pathlib.Path("interrupted").touch()
            return
        raise AssertionError("no KeyboardInterrupt")
    while not pathlib.Path("interrupted").exists():  # bounded by the test
        time.sleep(0.01)
    try:
        dist.all_reduce(on_device(BIG))
    except dist.DistBackendError as error:
        assert "abort" in str(error), error


@case
def ends_with_work_under_way():
    rank, size = start()
    dist.all_reduce(on_device(BIG))
    if rank == 0:
        dist.all_reduce(on_device(BIG), async_op=True)
        dist.all_reduce(on_device(BIG), async_op=True).get_future()


@case
def destroyed_with_work_under_way():
    rank, size = start()
    dist.all_reduce(on_device(BIG))
    group = dist.new_group()
    if rank == 0:
        works = [dist.all_reduce(on_device(BIG), group=group, async_op=True) for _ in range(3)]
        dist.destroy_process_group(group)
        for work in works:
            try:
                work.wait()
            except dist.DistBackendError:
                continue
            raise AssertionError("no error")
    dist.barrier()


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        CASES[name]()
    if not sys.argv[1].startswith("ends"):
        dist.destroy_process_group()
    print("end=ok")


if __name__ == "__main__":
    main()
