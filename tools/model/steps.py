"""The time of a collective by its own schedule: the steps that `schedule --json` prints, in virtual time. Pure.

A message costs alpha whatever its size, and its bytes at the rate beta (R. W. Hockney, The communication challenge for
MPP, 1994). Whom it keeps busy depends on what the link is:

a link of its own   alpha is the delay and beta the rate from each rank to each other one, as in an emulated network.
                    Messages of one pair follow one another, others do not disturb them. Ranks cost nothing.
cores               the ranks' processor does the work, as between namespaces or in memory: half of a message's time at
                    its sender, half at its receiver. A rank does one thing at a time, and at most `cores` ranks do
                    anything. Two ranks with cores of their own exchange messages in alpha + bytes / beta, as above.

A step begins when the steps that it waits for have ended. It ends when its message has left, or all its messages are
here and added; adding costs no more than receiving. Data beyond a schedule's parts is done in slices, some at a time:
always as many, though ours begin more where a rank has nothing left to send, as over links with a long delay.
"""

import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass, field

from gloo_bypass_tools.report import records

SCHEMA = "gloo-bypass/schedule/1"
SEND = "send"
# Of a calibration: beta is found to this share.
PRECISION, HALVINGS = 1e-3, 60


@dataclass(frozen=True)
class Link:
    """`cores`: that all ranks share; None: each pair has a link of its own. alpha_s in seconds, beta in bytes/s."""

    alpha_s: float
    beta: float
    cores: int | None = None


@dataclass(frozen=True)
class Step:
    """`messages`: (other rank, number) of each message that it sends or awaits. `before`: steps that wait for it."""

    sends: bool
    parts: tuple
    messages: tuple
    waits_for: int
    before: tuple


@dataclass(frozen=True)
class Schedule:
    """`steps`: of each rank. Data beyond parts x part_bytes is done in slices, `under_way` at a time."""

    algorithm: str
    size: int
    parts: int
    part_bytes: int
    under_way: int
    steps: tuple

    @property
    def ranks(self):
        return len(self.steps)

    def slices(self):
        """Bytes of each."""
        whole = self.parts * self.part_bytes
        full, rest = divmod(self.size, whole)
        return [whole] * full + ([rest] if rest or not full else [])


def schedule_of(record, place="schedule --json"):
    """From the object that the program printed; RecordError where it is none."""
    if records.value_at(place, record, "schema", str) != SCHEMA:
        raise records.RecordError(f"{place}: schema {record['schema']!r}, not {SCHEMA!r}")
    whole = {name: records.whole_at(place, record, name, least) for name, least in NUMBERS.items()}
    listed = records.value_at(place, record, "steps_of_ranks", list)
    steps = tuple(tuple(step_of(rank, one, place) for one in of_rank) for rank, of_rank in enumerate(listed))
    return Schedule(
        records.text_at(place, record, "algorithm"),
        whole["bytes"],
        whole["parts"],
        whole["part_bytes"],
        whole["slices_under_way"],
        steps,
    )


NUMBERS = {"bytes": 0, "parts": 1, "part_bytes": 1, "slices_under_way": 1}


def step_of(rank, record, place):
    peers = zip(records.value_at(place, record, "peers", list), records.value_at(place, record, "numbers", list))
    return Step(
        records.value_at(place, record, "action", str) == SEND,
        tuple(records.value_at(place, record, "parts", list)),
        tuple((peer, number) for peer, number in peers if peer != rank),
        records.whole_at(place, record, "waits_for"),
        tuple(records.value_at(place, record, "before", list)),
    )


def sent_bytes(schedule):
    """By each rank."""
    return [
        sum(piece * (step.parts[1] - step.parts[0]) / schedule.parts for piece in schedule.slices() for step in sending)
        for sending in ([step for step in steps if step.sends] for steps in schedule.steps)
    ]


def time_s(schedule, link):
    """When the last rank has its result; all begin at 0."""
    return Run(schedule, link).time_s()


def calibrated(small, large, cores):
    """A Link of `cores` by two measurements of schedules, (Schedule, seconds) each: alpha from the small one's
    messages, beta from what the bytes of the large one take besides."""
    schedule, seconds = small
    alpha_s = seconds / time_s(schedule, Link(1.0, math.inf, cores))
    schedule, seconds = large
    low, high = 1.0, 1e15
    for _ in range(HALVINGS):
        beta = math.sqrt(low * high)
        if time_s(schedule, Link(alpha_s, beta, cores)) > seconds:
            low = beta
        else:
            high = beta
        if high / low < 1 + PRECISION:
            break
    return Link(alpha_s, math.sqrt(low * high), cores)


@dataclass
class State:
    """Of a step in one slice: how many steps, and how many of its messages, it still waits for."""

    waits_for: int
    messages: int
    arrived: list = field(default_factory=list)  # before the step began: bytes each


class Run:
    """One operation in virtual time."""

    def __init__(self, schedule, link):
        self.schedule, self.link = schedule, link
        self.events, self.order = [], itertools.count()
        self.now = 0.0
        self.free_at = {}  # pair -> when its link has put out what it was given
        self.waiting, self.busy = deque(), set()  # work for processors; ranks that do some
        self.pieces = schedule.slices()
        self.states = {}  # (rank, slice) -> [State]
        self.left = {}  # (rank, slice) -> steps that have not ended
        self.next_slice = [0] * schedule.ranks
        self.early = {}  # (rank, slice) -> messages for a slice that the rank has not begun
        self.receivers = [receivers_of(steps) for steps in schedule.steps]

    def time_s(self):
        for rank in range(self.schedule.ranks):
            for _ in range(self.schedule.under_way):
                self.begin_slice(rank)
        self.dispatch()
        while self.events:
            self.now, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
            self.dispatch()
        if any(self.left.values()) or min(self.next_slice) < len(self.pieces):
            raise ValueError(f"{self.schedule.algorithm}: this schedule never ends")
        return self.now

    def at(self, when, action, *arguments):
        heapq.heappush(self.events, (when, next(self.order), action, arguments))

    def begin_slice(self, rank):
        number = self.next_slice[rank]
        if number >= len(self.pieces):
            return
        self.next_slice[rank] += 1
        steps, key = self.schedule.steps[rank], (rank, number)
        self.states[key] = [State(step.waits_for, 0 if step.sends else len(step.messages)) for step in steps]
        self.left[key] = len(steps)
        for index, step in enumerate(steps):
            if step.waits_for == 0:
                self.begin_step(rank, number, index)
        for message in self.early.pop(key, ()):
            self.receive(rank, number, *message)

    def bytes_of(self, step, number):
        first, end = step.parts
        return self.pieces[number] * (end - first) / self.schedule.parts

    def begin_step(self, rank, number, index):
        step, state = self.schedule.steps[rank][index], self.states[rank, number][index]
        if not step.sends:
            for size in state.arrived:
                self.add(rank, number, index, size)
            state.arrived = []
            return
        ((to, message),) = step.messages
        size = self.bytes_of(step, number)
        if self.link.cores:
            self.work(rank, size, self.sent, rank, number, index, to, message, size)
            return
        began = max(self.now, self.free_at.get((rank, to), 0.0))
        left = self.free_at[rank, to] = began + size / self.link.beta
        self.at(left, self.end_step, rank, number, index)
        self.at(left + self.link.alpha_s, self.receive, to, number, rank, message, size)

    def sent(self, rank, number, index, to, message, size):
        self.end_step(rank, number, index)
        self.receive(to, number, rank, message, size)

    def receive(self, rank, number, sender, message, size):
        """A message is at this rank."""
        if (rank, number) not in self.states:
            self.early.setdefault((rank, number), []).append((sender, message, size))
            return
        index = self.receivers[rank][sender, message]
        state = self.states[rank, number][index]
        if state.waits_for:
            state.arrived.append(size)
        else:
            self.add(rank, number, index, size)

    def add(self, rank, number, index, size):
        if self.link.cores:
            self.work(rank, size, self.added, rank, number, index)
        else:
            self.added(rank, number, index)

    def added(self, rank, number, index):
        state = self.states[rank, number][index]
        state.messages -= 1
        if state.messages == 0:
            self.end_step(rank, number, index)

    def end_step(self, rank, number, index):
        for later in self.schedule.steps[rank][index].before:
            state = self.states[rank, number][later]
            state.waits_for -= 1
            if state.waits_for == 0:
                self.begin_step(rank, number, later)
        self.left[rank, number] -= 1
        if self.left[rank, number] == 0:
            self.begin_slice(rank)

    def work(self, rank, size, done, *arguments):
        """Half a message's time on this rank's processor, then `done`."""
        self.waiting.append((rank, (self.link.alpha_s + size / self.link.beta) / 2, done, arguments))

    def dispatch(self):
        """Gives cores to ranks that have work, in its order."""
        put_off = deque()
        while self.waiting and len(self.busy) < (self.link.cores or 0):
            rank, seconds, done, arguments = work = self.waiting.popleft()
            if rank in self.busy:
                put_off.append(work)
                continue
            self.busy.add(rank)
            self.at(self.now + seconds, self.worked, rank, done, arguments)
        self.waiting.extendleft(reversed(put_off))

    def worked(self, rank, done, arguments):
        self.busy.remove(rank)
        done(*arguments)


def receivers_of(steps):
    """(sender, number of its message) -> which step of a rank awaits it."""
    return {message: index for index, step in enumerate(steps) if not step.sends for message in step.messages}
