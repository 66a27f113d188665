"""Gloo's ring all-reduce (gloo/allreduce.cc), iteration by iteration in virtual time, over described edges. Pure;
numpy.

A vector is cut into N x m segments (m at least 2, a segment at most 1 MiB). Both halves of the ring take (N-1) m
iterations; iteration i waits for the receive and the send of iteration i-2, sums (first half), then posts its own. What
a transport adds depends on when data may leave and when a send is complete:

buffered      data leaves at once, and the send is complete: this project's long paths. One edge of one-way delay D in a
              ring without other delays: 2 N iterations in D.
granted       data leaves when the receiver's notice of its posted receive is here, the send is complete once written:
              Gloo's TCP. 2 iterations in D plus the notice's way back, whatever N.
acknowledged  as granted, and the send is complete when the peer has it: this project's short paths. 2 iterations in the
same.
"""

from dataclasses import dataclass

import numpy as np

COMPLETIONS = ("buffered", "granted", "acknowledged")
SEGMENT_BYTES = 2**20
# Iterations computed one by one; what is longer is in a steady state long before and is extrapolated.
MAX_ITERATIONS = 20_000


@dataclass(frozen=True)
class Edge:
    """From a rank to the one before it in Gloo's ring. rate in bytes/s; delays one way, there and back, in seconds."""

    rate: float
    delay_s: float = 0.0
    back_s: float = 0.0


@dataclass(frozen=True)
class Cut:
    """How a vector is cut: m segments a rank, bytes of a segment, how many of all are not empty, bytes of the last of
    these."""

    per_rank: int
    segment: int
    filled: int
    last: int

    def segments(self):
        """(how many, bytes) of the segments that are sent."""
        return [(self.filled - 1, self.segment), (1, self.last)] if self.filled > 1 else [(1, self.last)]


def rounded_up(value, multiple):
    return -(-value // multiple) * multiple


def cut(size, ranks, segment_bytes=SEGMENT_BYTES, element_bytes=4):
    """As Gloo's ring cuts `size` bytes of whole elements."""
    largest = element_bytes * max(1, segment_bytes // element_bytes)
    wanted = max(-(-size // largest), 2 * ranks)
    number = rounded_up(wanted, ranks)
    segment = rounded_up(-(-size // number), element_bytes)
    filled = -(-size // segment)
    return Cut(number // ranks, segment, filled, size - (filled - 1) * segment)


def iterations(ranks, per_rank):
    return 2 * (ranks - 1) * per_rank


def time_s(size, edges, completion="buffered", gamma=0.0, segment_bytes=SEGMENT_BYTES, element_bytes=4, late=None):
    """When the last rank has the whole sum. edges[r] leads from rank r to rank r-1. late(), if given, is called
    in each iteration: an array of seconds by which each rank's segment arrives later, because a part of it is sent
    again."""
    if completion not in COMPLETIONS:
        raise ValueError(f"completion {completion!r} is none of {', '.join(COMPLETIONS)}")
    ranks = len(edges)
    parts = cut(size, ranks, segment_bytes, element_bytes)
    most = max(4, MAX_ITERATIONS // iterations(ranks, 1))
    if parts.per_rank <= most:
        return run(ranks, parts.per_rank, parts.segment, edges, completion, gamma, late)
    half = run(ranks, most // 2, parts.segment, edges, completion, gamma, late)
    whole = run(ranks, most, parts.segment, edges, completion, gamma, late)
    return whole + (whole - half) / (most - most // 2) * (parts.per_rank - most)


def run(ranks, per_rank, segment, edges, completion, gamma, late=None):
    """Every iteration of every rank, with segments of one size; a rank's iterations follow one another. Element r of
    each array is rank r's."""
    rank = np.arange(ranks)
    to, origin = (rank - 1) % ranks, (rank + 1) % ranks
    serialise = np.array([segment / edge.rate for edge in edges])
    delay, back = np.array([edge.delay_s for edge in edges]), np.array([edge.back_s for edge in edges])
    now = free = np.zeros(ranks)  # free: when the edge has put out what it was given
    arrived, sent = [now, now], [now, now]  # of the last two iterations: data here, and the send complete
    each = (ranks - 1) * per_rank
    for half in range(2):
        summing = gamma * segment if half == 0 else 0.0
        # Two iterations more wait for what the last two posted.
        for i in range(each + 2):
            if i >= 2:
                now = np.maximum(np.maximum(now, arrived[i % 2]) + summing, sent[i % 2])
            if i >= each:
                continue
            start = now if completion == "buffered" else np.maximum(now, now[to] + back)
            free = np.maximum(start, free) + serialise
            there = free + delay + (late() if late else 0.0)
            arrived[i % 2] = there[origin]
            sent[i % 2] = there + back if completion == "acknowledged" else start
    return float(now.max())


def ring_of(ranks, rate, delay_s=0.0, slow=None):
    """N equal edges, of which `slow` (an Edge), if given, replaces the one from rank N-1 to rank N-2, as in the
    published studies."""
    edges = [Edge(rate, delay_s, delay_s) for _ in range(ranks)]
    if slow is not None:
        edges[-1] = slow
    return edges


def perfect_s(size, ranks, edge):
    """Propagation and serialisation on that edge alone: what no schedule of a ring can beat. All bytes cross it, and
    the last one takes a delay. With more than two ranks some chunks cross it in each half of the ring, one delay after
    another."""
    crossings = 2 if ranks > 2 else 1
    return max(crossings * edge.delay_s, edge.delay_s + 2 * (ranks - 1) / ranks * size / edge.rate)
