"""Bytes and time of a ring all-reduce of S bytes over N ranks. Pure.

bytes   a rank sends and receives 2 (N-1)/N S, all ranks together 2 (N-1) S; a broadcast moves S along N-1 edges of a
        tree
time    T = 2 (N-1) alpha + 2 (N-1)/N S / beta + gamma (N-1)/N S
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """alpha_s: seconds of a round, whatever its size; beta: bytes/s of a rank's link, each direction; gamma: seconds to
    sum a byte."""

    alpha_s: float
    beta: float
    gamma: float = 0.0


def gradient_bytes(parameters, bits):
    return parameters * bits / 8


def rounds(ranks):
    return 2 * (ranks - 1)


def rank_bytes(ranks, size):
    """What one rank sends; it receives as much."""
    return 2 * (ranks - 1) / ranks * size


def event_bytes(ranks, size):
    """What all ranks send."""
    return 2 * (ranks - 1) * size


def broadcast_bytes(ranks, size):
    return (ranks - 1) * size


def ring_edges(ranks):
    """Gloo's ring: each rank sends to the one before it."""
    return [(rank, (rank - 1) % ranks) for rank in range(ranks)]


def broadcast_edges(ranks):
    """Gloo's tree from rank 0: in round k every rank that has the data gives it to the one 2^k above it."""
    edges, have = [], 1
    while have < ranks:
        edges += [(rank, rank + have) for rank in range(min(have, ranks - have))]
        have *= 2
    return edges


def time_s(ranks, size, link):
    return rounds(ranks) * link.alpha_s + (ranks - 1) / ranks * size * (2 / link.beta + link.gamma)


def half_size(ranks, link):
    """The size whose bytes take as long as its rounds: below it latency decides, above it bandwidth."""
    return rounds(ranks) * link.alpha_s / ((ranks - 1) / ranks * (2 / link.beta + link.gamma))


def serialisation_s(ranks, size, rate):
    """How long one edge of `rate` bytes/s needs for its share, whatever else happens."""
    return rank_bytes(ranks, size) / rate
