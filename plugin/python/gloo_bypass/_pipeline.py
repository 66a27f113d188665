"""A collective on tensors of a device: copies to the host, the operation there, copies back. Long ones go in pieces:

    stream TO_HOST       | in 0 | in 1 | in 2  | in 3  | ...
    this thread                 | op 0 | op 1  | op 2  | ...
    stream TO_DEVICE                   | out 0 | out 1 | ...

What is one piece, and synchronous, goes the same way on the caller's stream: nothing would overlap.

A piece is the same range of elements of every block of the operation, and an operation of the same kind. How an
operation is cut depends on its kind, its count and the number of ranks only, so that all ranks cut alike.

Knows neither PyTorch nor CUDA: memory, streams and events are those of a Device (_devices.py has CUDA's).
"""

import collections
import threading
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Protocol, Sequence, Tuple

TO_HOST, TO_DEVICE, CALLERS = range(3)
#: Pieces of a long operation: long enough that a piece's fixed cost (some 100 us) is small, short enough that the first
#: copy in and the last copy out, which nothing overlaps, are.
SLOT_BYTES = 4 << 20
LEAST_PIECE_BYTES = 2 << 20
PIECES = 8
#: One is filled, one is added, one is emptied.
DEPTH = 3
#: Pinned memory that the process keeps between calls. More is in use only while more groups than this serves are at it.
KEPT_BYTES = 64 << 20
#: A cache line, so that pieces of different blocks do not share one.
_ALIGNMENT = 64

Numbers = Tuple[int, ...]  # address, elements, address, elements, ...
Run = Callable[[Numbers, Numbers], Any]


class Device(Protocol):
    """Owner: one group. Thread: one at a time; now() and catch_up() any. A stream is TO_HOST, TO_DEVICE or CALLERS, the
    calling thread's current one. Copies are asynchronous, and in their stream's order; an event stands for what its
    stream had to do when it was made."""

    def now(self) -> Any:
        """The event of the calling thread's current stream."""

    def catch_up(self, event: Any) -> None:
        """The calling thread's current stream waits for the event."""

    def follow(self, stream: int, event: Any) -> None:
        """The stream waits for the event."""

    def mark(self, stream: int) -> Any:
        """The stream's event."""

    def hold(self, event: Any) -> None:
        """This thread waits for the event."""

    def keep(self, memory: Any) -> None:
        """Once the program frees the memory, nobody else gets it before both streams have done what they had to do."""

    def host_memory(self, size: int, kept: bool) -> Any:
        """So many bytes of the host; `kept`: for many calls, so it is worth to pin it."""

    def memory_for_short(self) -> Any:
        """LEAST_PIECE_BYTES, the same each time, for what goes the short way (../door/gpu.h); None: nothing does."""

    def address(self, host: Any) -> int: ...

    def copy_in(self, stream: int, host: Any, at: int, memory: Any, first: int, last: int) -> None:
        """Bytes first to last of the device's memory, to the host's from `at` on."""

    def copy_out(self, stream: int, memory: Any, first: int, last: int, host: Any, at: int) -> None:
        """The way back."""


class Block(NamedTuple):
    memory: Any  # the device's
    elements: int


class Part(NamedTuple):
    """What a piece has of one block."""

    memory: Any
    first: int  # bytes of the block
    last: int
    at: int  # bytes of the slot
    elements: int


class Piece(NamedTuple):
    inputs: List[Part]
    outputs: List[Part]
    size: int  # bytes of a slot

    def numbers(self, parts: Sequence[Part], base: int) -> Numbers:
        return tuple(number for part in parts for number in (base + part.at, part.elements))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _elements_of_a_piece(count: int, breadth: int, width: int) -> int:
    whole = count * breadth * width
    size = min(SLOT_BYTES, max(LEAST_PIECE_BYTES, whole // PIECES))
    step = max(1, _ALIGNMENT // width)
    return max(step, size // (breadth * width) // step * step)


class Plan:
    """How an operation is cut. `in_place`: outputs are the inputs. `width`: bytes of an element. `breadth`: the most
    blocks that any rank has, by which all ranks cut; 0: blocks may differ in length, between ranks too, so that the
    operation stays whole."""

    def __init__(
        self, inputs: Sequence[Block], outputs: Sequence[Block], in_place: bool, width: int, breadth: int
    ) -> None:
        self.inputs, self.outputs, self.width = inputs, outputs, width
        self.in_place = bool(inputs) and in_place
        self.blocks = list(inputs) if self.in_place else [*inputs, *outputs]
        count = max((block.elements for block in self.blocks), default=0)
        self._step = _elements_of_a_piece(count, breadth, width) if breadth else max(1, count)
        self.count = count  # elements of a block

    def __len__(self) -> int:
        return max(1, -(-self.count // self._step))

    def piece(self, index: int) -> Piece:
        first = index * self._step
        parts: List[Part] = []
        at = 0
        for block in self.blocks:
            begin, end = min(first, block.elements), min(first + self._step, block.elements)
            parts.append(Part(block.memory, begin * self.width, end * self.width, at, end - begin))
            at += _aligned((end - begin) * self.width)
        inputs = len(self.inputs)
        return Piece(parts[:inputs], parts if self.in_place else parts[inputs:], at)


class Slot:
    """Host memory of a piece."""

    def __init__(self, memory: Any, size: int) -> None:
        self.memory, self.size = memory, size
        self.free: Any = None  # the event of the last copy out of it; None: nothing uses it


class Slots:
    """Those that the process keeps. Any thread. Never waits: another rank may need the group that waited."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._lock = threading.Lock()
        self._kept: List[Slot] = []
        self._most = most_bytes // SLOT_BYTES

    def take(self, device: Device, number: int, size: int) -> List[Slot]:
        if size > SLOT_BYTES:
            return [Slot(device.host_memory(size, kept=False), size) for _ in range(number)]
        with self._lock:
            taken = [self._kept.pop() for _ in range(min(number, len(self._kept)))]
        while len(taken) < number:
            taken.append(Slot(device.host_memory(SLOT_BYTES, kept=True), SLOT_BYTES))
        return taken

    def give(self, slots: Sequence[Slot]) -> None:
        with self._lock:
            for slot in slots:
                if slot.size == SLOT_BYTES and len(self._kept) < self._most:
                    self._kept.append(slot)


def carry(device: Device, plan: Plan, began: Any, slots: Slots, run: Run) -> Any:
    """Runs the operation piece by piece, after `began`. Returns once the last one has run: the event of its copy back,
    if there is one. An error of `run` leaves the tensors as they are then."""
    for stream in (TO_HOST, TO_DEVICE):
        device.follow(stream, began)
    for block in plan.blocks:
        device.keep(block.memory)
    return _carried(device, plan, slots, run, TO_HOST, TO_DEVICE) or began


def carry_on_callers_stream(device: Device, plan: Plan, slots: Slots, run: Run) -> None:
    """The same, so that what this stream has to do later finds the results. Nothing overlaps: for one piece."""
    _carried(device, plan, slots, run, CALLERS, CALLERS)


def _carried(device: Device, plan: Plan, slots: Slots, run: Run, to_host: int, to_device: int) -> Any:
    number = len(plan)
    taken = slots.take(device, min(DEPTH, number), plan.piece(0).size)
    loaded: Deque[Tuple[Piece, Any]] = collections.deque()

    def load(index: int) -> None:
        piece, slot = plan.piece(index), taken[index % len(taken)]
        ready = slot.free
        if piece.inputs:
            if ready is not None:
                device.follow(to_host, ready)
            for part in piece.inputs:
                device.copy_in(to_host, slot.memory, part.at, part.memory, part.first, part.last)
            ready = device.mark(to_host)
        loaded.append((piece, ready))

    for index in range(len(taken)):
        load(index)
    last = None
    for index in range(number):
        slot = taken[index % len(taken)]
        piece, ready = loaded.popleft()
        if ready is not None:
            device.hold(ready)
        base = device.address(slot.memory)
        run(piece.numbers(piece.inputs, base), piece.numbers(piece.outputs, base))
        slot.free = None
        if piece.outputs:
            for part in piece.outputs:
                device.copy_out(to_device, part.memory, part.first, part.last, slot.memory, part.at)
            last = slot.free = device.mark(to_device)
        if index + len(taken) < number:
            load(index + len(taken))
    slots.give(taken)  # not after an error: copies into them may be under way
    return last


class Arrival:
    """When the results of an operation are in the device's memory."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.event: Optional[Any] = None  # once the operation has ended

    def catch_up(self) -> None:
        """The calling thread's current stream waits for them."""
        if self.event is not None:
            self.device.catch_up(self.event)
