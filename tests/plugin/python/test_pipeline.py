"""_pipeline.py with a device that copies as late as it may (fake_device.py): order, bounds, and errors. No PyTorch."""

import importlib.util
import pathlib
import random

import pytest
from fake_device import FakeDevice

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "plugin" / "python" / "gloo_bypass" / "_pipeline.py"
SPEC = importlib.util.spec_from_file_location("gloo_bypass_pipeline", SOURCE)
pipeline = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pipeline)
SLOT, LEAST = pipeline.SLOT_BYTES, pipeline.LEAST_PIECE_BYTES


def blocks(number, count, width=1, seed=1):
    return [pipeline.Block(bytearray(random.Random(seed + i).randbytes(count * width)), count) for i in range(number)]


def at(device, number):
    """The host's memory at an address, and how far into it."""
    base = max(address for address in device.hosts if address <= number)
    return device.hosts[base], number - base


class Operation:
    """What a group's run() does here: adds one to each byte of input i for output i, or moves block 0 to all."""

    def __init__(self, device, width=1):
        self.device, self.width, self.calls = device, width, []

    def __call__(self, inputs, outputs):
        self.device.log.append(("run", len(self.calls)))
        self.calls.append((inputs[1::2], outputs[1::2]))
        read = []
        for address, count in zip(inputs[::2], inputs[1::2]):
            host, offset = at(self.device, address)
            read.append(bytes(host[offset : offset + count * self.width]))
        for index, (address, count) in enumerate(zip(outputs[::2], outputs[1::2])):
            host, offset = at(self.device, address)
            source = read[index % len(read)] if read else bytes(count * self.width)
            host[offset : offset + count * self.width] = bytes(
                (byte + 1) & 255 for byte in source[: count * self.width]
            )


@pytest.fixture(params=range(5))
def device(request):
    return FakeDevice(request.param)


def small_pieces(monkeypatch, slot=1024, least=256):
    monkeypatch.setattr(pipeline, "SLOT_BYTES", slot)
    monkeypatch.setattr(pipeline, "LEAST_PIECE_BYTES", least)


def carried(device, inputs, outputs, in_place, width=1, breadth=1, slots=None):
    run = Operation(device, width)
    plan = pipeline.Plan(inputs, outputs, in_place, width, breadth)
    last = pipeline.carry(device, plan, device.now(), slots or pipeline.Slots(), run)
    device.catch_up(last)
    device.finish()
    return run


def plus_one(data):
    return bytearray((byte + 1) & 255 for byte in data)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 255, 256, 257, 1000, 5000, 12345])
def test_Carry_InPlace_GivesEveryPieceOnce(device, monkeypatch, count):
    small_pieces(monkeypatch)
    own = blocks(1, count)
    expected = plus_one(own[0].memory)
    run = carried(device, own, own, True)
    assert own[0].memory == expected
    assert sum(counts[0][0] for counts in run.calls) == count and all(counts[0] == counts[1] for counts in run.calls)


@pytest.mark.parametrize("number", [1, 3, 8])
@pytest.mark.parametrize("width", [1, 2, 8])
def test_Carry_SeveralBlocks_PiecesAreTheSameRangeOfEach(device, monkeypatch, number, width):
    small_pieces(monkeypatch)
    inputs, outputs = blocks(number, 900, width), blocks(number, 900, width, seed=100)
    run = carried(device, inputs, outputs, False, width, breadth=2 * number)
    for source, target in zip(inputs, outputs):
        assert target.memory == plus_one(source.memory)
    assert len(run.calls) > 2
    for read, written in run.calls:
        assert len(set(read + written)) == 1


def test_Carry_OnlyInputs_CopiesNothingBack(device, monkeypatch):
    small_pieces(monkeypatch)
    inputs = blocks(1, 3000)
    before = bytes(inputs[0].memory)
    carried(device, inputs, [], False)
    assert inputs[0].memory == before and {entry[0] for entry in device.log} == {"in", "run"}


def test_Carry_OnlyOutputs_WaitsForTheirSlotsToBeFree(device, monkeypatch):
    small_pieces(monkeypatch)
    outputs = blocks(1, 9000)
    carried(device, [], outputs, False)
    assert outputs[0].memory == bytearray(b"\1" * 9000)


def test_Carry_BlocksOfDifferentLengths_StayWhole(device, monkeypatch):
    small_pieces(monkeypatch)
    inputs = [*blocks(1, 5000), *blocks(1, 7, seed=9), *blocks(1, 0)]
    outputs = [*blocks(1, 5000, seed=50), *blocks(1, 7, seed=51), *blocks(1, 0)]
    run = carried(device, inputs, outputs, False, breadth=0)
    assert run.calls == [((5000, 7, 0), (5000, 7, 0))]
    for source, target in zip(inputs, outputs):
        assert target.memory == plus_one(source.memory)
    assert device.allocated == [(10240, False)]  # longer than a slot: not pinned, and not kept


def test_Carry_LongOperation_CopiesOverlapTheOperations():
    """While piece k runs, the copies of k + 1 and k + 2 are enqueued already."""

    class Eager(FakeDevice):
        def do_something(self):
            self.finish()

    device, own = Eager(), blocks(1, 16 * LEAST)
    carried(device, own, own, True)
    order = [entry[0] if entry[0] == "run" else (entry[0], entry[1] // (2 * LEAST)) for entry in device.log]
    expected = [("in", 0), ("in", 1), ("in", 2)]
    for piece in range(8):
        expected += ["run", ("out", piece)] + ([("in", piece + 3)] if piece + 3 < 8 else [])
    assert order == expected


def test_Carry_BeforeTheProgramsKernel_WaitsForIt(device):
    """What the caller's stream has still to do to the tensor comes first."""
    own = blocks(1, 10)

    def kernel():
        own[0].memory[:] = bytes(range(10))

    device.enqueue(pipeline.CALLERS, kernel)
    carried(device, own, own, True)
    assert own[0].memory == bytearray(range(1, 11))


def test_Carry_OutputThatTheProgramsKernelWrites_IsWrittenAfterIt(device):
    outputs = blocks(1, 10)

    def kernel():
        outputs[0].memory[:] = bytes(10)

    device.enqueue(pipeline.CALLERS, kernel)
    carried(device, [], outputs, False)
    assert outputs[0].memory == bytearray(b"\1" * 10)


def test_Carry_CallersStream_SeesTheResultAfterCatchingUp(device):
    own, seen = blocks(1, 3 * LEAST), []
    expected = plus_one(own[0].memory)
    plan = pipeline.Plan(own, own, True, 1, 1)
    last = pipeline.carry(device, plan, device.now(), pipeline.Slots(), Operation(device))
    device.catch_up(last)
    device.enqueue(pipeline.CALLERS, lambda: seen.append(bytes(own[0].memory)))
    device.finish()
    assert seen == [expected]


def test_Carry_AgainAndAgain_ReusesThePinnedMemory(device, monkeypatch):
    small_pieces(monkeypatch)
    slots = pipeline.Slots(4 * 1024)
    for seed in range(10):
        own = blocks(1, 5000, seed=seed)
        expected = plus_one(own[0].memory)
        carried(device, own, own, True, slots=slots)
        assert own[0].memory == expected
    assert device.allocated == [(1024, True)] * pipeline.DEPTH


def test_Slots_GivenBackTooMany_AreDropped(device, monkeypatch):
    small_pieces(monkeypatch)
    slots = pipeline.Slots(2 * 1024)
    taken = slots.take(device, 5, 1024)
    slots.give(taken)
    assert len(slots._kept) == 2
    assert len(slots.take(device, 3, 10)) == 3 and len(device.allocated) == 6


def test_Carry_OperationFails_ErrorComesThroughAndSlotsAreNotReused(device, monkeypatch):
    small_pieces(monkeypatch)
    slots, own = pipeline.Slots(), blocks(1, 5000)
    run = Operation(device)

    def fails(inputs, outputs):
        run(inputs, outputs)
        if len(run.calls) == 2:
            raise RuntimeError("rank 1 has ended")

    with pytest.raises(RuntimeError, match="rank 1 has ended"):
        pipeline.carry(device, pipeline.Plan(own, own, True, 1, 1), device.now(), slots, fails)
    assert not slots._kept and len(run.calls) == 2


@pytest.mark.parametrize("in_place", [True, False])
def test_CarryOnCallersStream_AgainAndAgain_IsAfterWhatItHadToDoAndBeforeWhatFollows(device, in_place):
    slots, seen = pipeline.Slots(), []
    for seed in range(5):
        inputs = blocks(2, 100, seed=seed)
        outputs = inputs if in_place else blocks(2, 100, seed=7)
        written = bytes([seed] * 100)
        device.enqueue(
            pipeline.CALLERS, lambda inputs=inputs, written=written: inputs[0].memory.__setitem__(slice(None), written)
        )
        plan = pipeline.Plan(inputs, outputs, in_place, 1, 1)
        pipeline.carry_on_callers_stream(device, plan, slots, Operation(device))
        device.enqueue(pipeline.CALLERS, lambda outputs=outputs: seen.append(bytes(outputs[0].memory)))
    device.finish()
    assert seen == [bytes([seed + 1] * 100) for seed in range(5)]
    assert not device.kept and device.allocated == [(SLOT, True)]


def test_CarryOnCallersStream_OnlyOutputs_WaitsForTheSlotToBeFree(device):
    slots = pipeline.Slots()
    for _ in range(5):
        outputs = blocks(1, 100)
        pipeline.carry_on_callers_stream(device, pipeline.Plan([], outputs, False, 1, 1), slots, Operation(device))
        device.finish()
        assert outputs[0].memory == bytearray(b"\1" * 100)


@pytest.mark.parametrize("breadth", [1, 3, 9, 65])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_Plan_AnyRank_CutsByTheKindAndCountOnly(breadth, width):
    for count in (1, 1000, 15_000, 100_000, 3_000_001):
        memory = memoryview(bytearray())  # plans look at counts only
        root = pipeline.Plan([pipeline.Block(memory, count)] * breadth, [], False, width, breadth)
        other = pipeline.Plan([pipeline.Block(memory, count)], [], False, width, breadth)
        assert len(root) == len(other)
        for index in {0, len(root) - 1}:
            assert root.piece(index).inputs[0][1:3] == other.piece(index).inputs[0][1:3]
            assert root.piece(index).size <= max(SLOT, 64 * width * breadth + 64 * breadth)
