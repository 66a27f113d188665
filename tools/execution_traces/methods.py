"""Traces of training by methods as their papers describe them: what ranks would compute and exchange, without a run.

DDP      S. Li et al., "PyTorch Distributed", VLDB 2020, section 3.2: gradients in buckets, each summed while the rest
         of the backward pass is computed.
DiLoCo   A. Douillard et al., "DiLoCo", 2023, algorithm 1: each rank takes H steps on its own, then all wait for the
         mean of their parameters. Local SGD (S. Stich, 2019, algorithm 1) exchanges as many bytes at the same moments.
streaming-diloco   A. Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, sections 2.2 to 2.4:
         P fragments of the parameters take turns, each every H steps; a fragment's sum may take `overlap` steps, while
         the ranks go on; few bits a number. Sums of fewer bits than a float's count as all-reduces of as many bytes.

Pure. A rank computes step_s in each step; what an optimiser takes is part of it.
"""

from dataclasses import dataclass

from gloo_bypass_tools.execution_traces.timeline import Timeline
from gloo_bypass_tools.execution_traces.trace import MOST_COMM_BYTES, MOST_NODES, TraceError

DDP, DILOCO, STREAMING = "ddp", "diloco", "streaming-diloco"
NAMES = (DDP, DILOCO, STREAMING)
# No bucket has more, as in torch.nn.parallel.DistributedDataParallel, though here all are equal. A backward pass takes
# twice as long as a forward one.
BUCKET_BYTES = 25 * 1024 * 1024
FORWARD_SHARE = 1 / 3


@dataclass(frozen=True)
class Method:
    """`bits`: of a number that is exchanged. `inner_steps` (H) is 1 for DDP, `fragments` (P) 1 and `overlap` 0 for all
    but streaming-diloco."""

    name: str
    parameters: int
    bits: float
    step_s: float
    steps: int
    inner_steps: int = 1
    fragments: int = 1
    overlap: int = 0

    @property
    def bytes(self):
        """Of all parameters."""
        return round(self.parameters * self.bits / 8)


def problem_of(method):
    """Why there is no such training; empty if there is."""
    if method.name != STREAMING and (method.fragments, method.overlap) != (1, 0):
        return f"{method.name} has neither fragments nor overlap: these are {STREAMING}'s"
    if method.name == DDP and method.inner_steps != 1:
        return f"{DDP} exchanges all gradients in each step: it has no inner steps"
    if method.inner_steps % method.fragments:
        return f"{method.inner_steps} inner steps are no multiple of {method.fragments} fragments"
    if method.overlap > method.inner_steps:
        return f"a fragment's sum may not take {method.overlap} steps, and be due each {method.inner_steps}"
    least = 1 if method.name == DDP else method.inner_steps + method.overlap
    if method.steps < least:
        return f"{method.steps} steps are too few: all is exchanged, and has arrived, after {least}"
    if method.bytes > MOST_COMM_BYTES or method.bytes < method.fragments:
        return f"{method.parameters} numbers of {method.bits:g} bits are {method.bytes} bytes: too many or too few"
    nodes = method.steps * (3 + 2 * max(1, method.bytes // BUCKET_BYTES + 1 if method.name == DDP else 1))
    return "" if nodes <= MOST_NODES else f"that would be {nodes} nodes: take fewer steps"


def part(total, number, parts):
    """The size of one of so many parts that are as equal as possible."""
    return total * (number + 1) // parts - total * number // parts


def add_ddp_step(timeline, method, begin_us):
    step_us = 1e6 * method.step_s
    buckets = -(-method.bytes // BUCKET_BYTES)
    timeline.compute(begin_us + FORWARD_SHARE * step_us, "forward")
    under_way = []
    for bucket in range(buckets):
        share = FORWARD_SHARE + (1 - FORWARD_SHARE) * (bucket + 1) / buckets
        timeline.compute(begin_us + share * step_us, "backward")
        size = part(method.bytes, bucket, buckets)
        under_way.append(timeline.collective("ALL_REDUCE", size, f"all-reduce of bucket {bucket}"))
    timeline.wait(under_way, begin_us + step_us)


class Fragments:
    """Those under way: (the step after which they are applied, the collective)."""

    def __init__(self, timeline, method):
        self.timeline, self.method, self.under_way = timeline, method, []

    def after(self, step):
        """What is begun and waited for once `step` steps are done."""
        method = self.method
        every = method.inner_steps // method.fragments
        if step % every == 0 and step + method.overlap <= method.steps:
            fragment = (step // every - 1) % method.fragments
            size = part(method.bytes, fragment, method.fragments)
            name = f"all-reduce of fragment {fragment}"
            self.under_way.append((step + method.overlap, self.timeline.collective("ALL_REDUCE", size, name)))
        due = [node for when, node in self.under_way if when <= step]
        self.under_way = [one for one in self.under_way if one[0] > step]
        if due:
            self.timeline.wait(due, self.timeline.cursor_us)


def trace_of(method):
    """The Trace of each rank; TraceError where there is no such training."""
    if problem := problem_of(method):
        raise TraceError(problem)
    timeline = Timeline(0)
    fragments = Fragments(timeline, method)
    for step in range(1, method.steps + 1):
        begin_us = 1e6 * method.step_s * (step - 1)
        timeline.begin_step(step, 1e6 * method.step_s)
        if method.name == DDP:
            add_ddp_step(timeline, method, begin_us)
        else:
            timeline.compute(1e6 * method.step_s * step, "inner step")
            fragments.after(step)
        timeline.end_step()
    return timeline.trace()
