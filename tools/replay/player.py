"""One rank that plays a trace: computes for as long as the traced rank did, and does its collectives and messages as
real ones, when what they waited for has ended.

    python3 -m gloo_bypass_tools.replay.player PLAN RESULT SETTINGS

PLAN has this rank's actions (execution_traces/plan.py), RESULT is the file that rank 0 writes, SETTINGS are JSON:
repeat, timeout_s, busy.

One thread. Times of computing are kept from when what a node waited for had ended, not from when this program noticed,
so that its own time between two nodes does not add up; what follows a collective starts when its end was seen.
"""

import heapq
import json
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gloo_bypass_tools.common import torch_rank
from gloo_bypass_tools.common.whole_file import write_whole

# The time between two looks at several operations under way, and what a sleep is shorter by than what it should take.
LOOK_S, SLEEP_ERROR_S = 50e-6, 100e-6
# The processor's work, a product of square matrices of this size, takes about ten microseconds.
MATRIX = 64
# Messages and Gloo's reduce-scatters under way, each with a thread.
MOST_WAITED = 4096
# Of buffers that no operation uses.
MOST_KEPT_BYTES = 1 << 30
# Between two marks of progress, for the command that has started this rank.
MARK_S = 1.0
CPU = "cpu"


class Buffers:
    """Zeros of a size, which sums leave zero; those that no operation uses are given again."""

    def __init__(self):
        self.free, self.bytes = {}, 0

    def take(self, elements):
        kept = self.free.get(elements)
        if not kept:
            return torch.zeros(elements)
        self.bytes -= 4 * elements
        return kept.pop()

    def give_back(self, tensors):
        for tensor in tensors:
            self.bytes += 4 * tensor.numel()
            if self.bytes > MOST_KEPT_BYTES:
                self.free, self.bytes = {}, 4 * tensor.numel()
            self.free.setdefault(tensor.numel(), []).append(tensor)


class Operation:
    """A collective under way. `least_bytes`: what this rank sends and receives of it at least."""

    def __init__(self, work, tensors, least_bytes):
        self.work, self.tensors, self.least_bytes = work, tensors, least_bytes

    def has_ended(self):
        return self.work.is_completed()

    def wait(self):
        """Until it has ended; raises what went wrong."""
        self.work.wait()


class Waited(Operation):
    """What ends only in somebody's wait, which there can be but one of: a thread's."""

    def __init__(self, work, tensors, least_bytes):
        super().__init__(work, tensors, least_bytes)
        self.error = None
        self.thread = threading.Thread(target=self.wait_there, daemon=True)
        self.thread.start()

    def wait_there(self):
        try:
            self.work.wait()
        except Exception as error:
            self.error = error

    def has_ended(self):
        return not self.thread.is_alive()

    def wait(self):
        self.thread.join()
        if self.error is not None:
            raise self.error


class Operations:
    """Begins what a plan's actions are. Bytes that are no multiple of a group's size times four are rounded up to
    one."""

    def __init__(self, groups, timeout_s):
        """`groups`: all ranks, then the ranks of each further group, which may be all again."""
        self.buffers, self.rank = Buffers(), dist.get_rank()
        self.members, timeout = groups, timedelta(seconds=timeout_s)
        self.groups = [dist.group.WORLD, *(dist.new_group(ranks, timeout=timeout) for ranks in groups[1:])]

    def take(self, size, parts=1):
        """A vector of at least `size` bytes that has `parts` equal parts."""
        return self.buffers.take(parts * max(1, -(-size // (4 * parts))))

    def begin(self, action):
        if action["kind"] in ("send", "receive"):
            vector, function = self.take(action["bytes"]), dist.isend if action["kind"] == "send" else dist.irecv
            work = function(vector, action["peer"], tag=action["tag"])
            return Waited(work, [vector], action["bytes"])
        ranks = self.members[action["group"]]
        name = action["operation"].removesuffix("_BLOCK").lower()
        tensors, work = getattr(self, name)(
            action["bytes"], ranks, {"group": self.groups[action["group"]], "async_op": True}
        )
        moved = action["bytes"] // (len(ranks) if name == "scatter" else 1)
        moved = 0 if len(ranks) == 1 or name == "barrier" else moved
        if name == "reduce_scatter" and not torch_rank.own_collectives():
            return Waited(work, tensors, moved)
        return Operation(work, tensors, moved)

    def all_reduce(self, size, ranks, how):
        vector = self.take(size)
        return [vector], dist.all_reduce(vector, **how)

    def reduce(self, size, ranks, how):
        vector = self.take(size)
        return [vector], dist.reduce(vector, ranks[0], **how)

    def broadcast(self, size, ranks, how):
        vector = self.take(size)
        return [vector], dist.broadcast(vector, ranks[0], **how)

    def all_gather(self, size, ranks, how):
        own, parts = self.take(size), [self.take(size) for _ in ranks]
        return [own, *parts], dist.all_gather(parts, own, **how)

    def gather(self, size, ranks, how):
        own = self.take(size)
        parts = [self.take(size) for _ in ranks] if self.rank == ranks[0] else []
        return [own, *parts], dist.gather(own, parts or None, ranks[0], **how)

    def scatter(self, size, ranks, how):
        part = -(-size // len(ranks))
        own = self.take(part)
        parts = [self.take(part) for _ in ranks] if self.rank == ranks[0] else []
        return [own, *parts], dist.scatter(own, parts or None, ranks[0], **how)

    def all_to_all(self, size, ranks, how):
        given, got = self.take(size, len(ranks)), self.take(size, len(ranks))
        return [given, got], dist.all_to_all_single(got, given, **how)

    def reduce_scatter(self, size, ranks, how):
        given = self.take(size, len(ranks))
        own = self.take(4 * given.numel() // len(ranks))
        names = ("reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base")  # PyTorch 2.13's, 1.13's
        function = next(getattr(dist, name) for name in names if hasattr(dist, name))
        return [given, own], function(own, given, **how)

    def barrier(self, size, ranks, how):
        return [], dist.barrier(**how)


class Run:
    """Plays the actions once. All times are seconds of time.perf_counter."""

    def __init__(self, actions, operations, settings, mark):
        """`mark()` is called now and then while there is progress."""
        self.actions, self.operations, self.settings, self.mark = actions, operations, settings, mark
        self.missing = [len(action["after"]) + (action["follows"] is not None) for action in actions]
        self.dependents = [[] for _ in actions]  # (place, whether it waits for the begin only)
        for place, action in enumerate(actions):
            for other in action["after"]:
                self.dependents[other].append((place, False))
            if action["follows"] is not None:
                self.dependents[action["follows"]].append((place, True))
        self.ready_at = [0.0] * len(actions)
        self.began, self.ended = [None] * len(actions), [None] * len(actions)
        self.under_way = {}  # place: Operation
        self.sent = []  # messages whose actions have ended
        self.computing = {}  # CPU, or an accelerator's stream: (place, when it ends)
        self.waiting = {}  # the same: a heap of places that are to be computed there
        self.free_at = {}
        self.left, self.bytes, self.waited_s = len(actions), 0, 0.0
        self.ready = []  # places that can begin now
        self.matrix = torch.full((MATRIX, MATRIX), 1 / MATRIX)
        self.product = torch.empty_like(self.matrix)

    def play(self):
        begin = time.perf_counter()
        for place, missing in enumerate(self.missing):
            self.ready_at[place] = begin
            if missing == 0:
                heapq.heappush(self.ready, place)
        last = marked = begin
        while self.left:
            if self.begin_ready() or self.look():
                last = time.perf_counter()
                if last - marked > MARK_S:
                    marked = last
                    self.mark()
            elif time.perf_counter() - last > self.settings["timeout_s"]:
                raise TimeoutError(f"nothing ended for {self.settings['timeout_s']:g} s")
            else:
                self.pass_time()
        while self.sent:
            self.sent[0].wait()
            self.look_at_sent()

    def finish(self, operation):
        self.operations.buffers.give_back(operation.tensors)
        self.bytes += operation.least_bytes

    # --- one action ---

    def begin_ready(self):
        """Begins all that can, the first ones first. Whether there were any."""
        found = bool(self.ready)
        while self.ready:
            self.begin(heapq.heappop(self.ready))
        return found

    def begin(self, place):
        action = self.actions[place]
        if action["kind"] == "compute" and action["duration_us"] > 0:
            lane = CPU if action["on_cpu"] else action["stream"]
            heapq.heappush(self.waiting.setdefault(lane, []), place)
            self.next_of(lane)
        elif action["kind"] in ("compute", "nothing"):
            self.began[place] = self.ready_at[place]
            self.end(place, self.ready_at[place])
        else:
            self.began[place] = time.perf_counter()
            operation = self.operations.begin(action)
            self.settle(place, begun=True)
            if len(self.sent) + len(self.under_way) > MOST_WAITED:
                raise RuntimeError(f"more than {MOST_WAITED} operations are under way at one time")
            if action["kind"] == "send":  # from a buffer: what follows need not wait for the receiver
                self.sent.append(operation)
                self.end(place, time.perf_counter())
            else:
                self.under_way[place] = operation

    def next_of(self, lane):
        """Begins the first of those that are ready, where nothing is computed there."""
        if lane not in self.computing and self.waiting.get(lane):
            place = heapq.heappop(self.waiting[lane])
            begin = max(self.ready_at[place], self.free_at.get(lane, 0.0))
            self.began[place] = begin
            self.computing[lane] = place, begin + self.actions[place]["duration_us"] / 1e6

    def end(self, place, when):
        self.ended[place] = when
        self.left -= 1
        self.settle(place, begun=False)

    def settle(self, place, begun):
        for other, for_begin in self.dependents[place]:
            if for_begin == begun:
                self.missing[other] -= 1
                if not begun:
                    self.ready_at[other] = max(self.ready_at[other], self.ended[place])
                if self.missing[other] == 0:
                    heapq.heappush(self.ready, other)

    # --- time ---

    def look(self):
        """Ends what has ended. Whether anything has."""
        found = False
        for place, operation in list(self.under_way.items()):
            if operation.has_ended():
                operation.wait()
                del self.under_way[place]
                self.finish(operation)
                self.end(place, time.perf_counter())
                found = True
        self.look_at_sent()
        now = time.perf_counter()
        for lane, (place, when) in list(self.computing.items()):
            if when <= now:
                del self.computing[lane]
                self.free_at[lane] = when
                self.end(place, when)
                self.next_of(lane)
                found = True
        return found

    def look_at_sent(self):
        ended = [operation for operation in self.sent if operation.has_ended()]
        if ended:
            self.sent = [operation for operation in self.sent if operation not in ended]
        for operation in ended:
            operation.wait()
            self.finish(operation)

    def pass_time(self):
        """Computes a little where the processor has something to compute; else waits, without using it."""
        if CPU in self.computing and self.settings["busy"]:
            torch.mm(self.matrix, self.matrix, out=self.product)
            return
        begin = time.perf_counter()
        if not self.computing and len(self.under_way) == 1:
            next(iter(self.under_way.values())).wait()
        else:
            ends = min((when for _, when in self.computing.values()), default=begin + 1.0)
            left = ends - begin - SLEEP_ERROR_S
            if self.under_way:
                left = min(left, LOOK_S)
            if left > 0:
                time.sleep(left)
        if self.under_way and not self.computing:
            self.waited_s += time.perf_counter() - begin

    # --- what came of it ---

    def steps_s(self):
        """{step: from the first begin of its actions to their last end}"""
        found = {}
        for action, began, ended in zip(self.actions, self.began, self.ended):
            step = action["step"]
            if step is not None and action["kind"] != "nothing":
                first, last = found.get(step, (began, ended))
                found[step] = min(first, began), max(last, ended)
        return {step: last - first for step, (first, last) in found.items()}


def play(plan, result, settings):
    torch_rank.join(settings["timeout_s"])
    operations, rounds = Operations(plan["groups"], settings["timeout_s"]), []
    mark = Path(f"{result}-{dist.get_rank()}.progress")
    least_bytes = 0
    for _ in range(settings["repeat"]):
        dist.barrier()
        mark.touch()
        run = Run(plan["actions"], operations, settings, mark.touch)
        run.play()
        least_bytes += run.bytes
        whole_s = max(run.ended) - min(run.began)
        rounds.append({"steps_s": run.steps_s(), "whole_s": whole_s, "waited_s": run.waited_s})
    dist.barrier()  # so that the end of a rank which fails now is not the failure of another one
    torch_rank.require_transport(least_bytes)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {"rounds": rounds, "least_bytes": least_bytes})
    if dist.get_rank() == 0:
        write_whole(result, json.dumps(everyone).encode())
    dist.barrier()


def main():
    plan, result, settings = sys.argv[1:]
    with open(plan) as file:
        actions = json.load(file)
    torch_rank.run(lambda: play(actions, result, json.loads(settings)))


if __name__ == "__main__":
    main()
