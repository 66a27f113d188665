"""dist.all_reduce by itself: one after the other, in the ways in which programs call it, and with computing between two
of them. Values are zeros while time is taken, so that none grows.
"""

import time

import torch

from gloo_bypass_tools.compare_programs import vectors
from gloo_bypass_tools.compare_programs.measuring import seconds_since

MATRIX = 192
# Rounds with an all-reduce, then as many without: few enough for a machine that is now fast and now slow, and so many
# that what lies between two all-reduces is one round.
TURN = 10


def in_other_ways(group, settings, samples):
    """A small one: what a large one costs does not lie in how it is called."""
    ways = {"asynchronous, awaited at once": group.all_reduce_later}
    if group.has_functional:
        ways["functional"] = group.all_reduce_functionally
    for quantity, all_reduce in ways.items():
        vectors.many(group, settings, samples, settings["first_bytes"], quantity, all_reduce)


class Computing:
    """Products of small matrices that take so many milliseconds, on all ranks the same."""

    def __init__(self, group, milliseconds):
        self.matrix = torch.randn(MATRIX, MATRIX) / MATRIX**0.5
        self.count = 1
        group.barrier()
        for _ in range(3):  # the first ones find cold caches
            self.count = max(8, self.count)
            begin = time.perf_counter()
            self.run()
            mine = torch.tensor([self.count * milliseconds / 1e3 / seconds_since(begin)])
            group.all_reduce(mine)
            self.count = max(1, round(mine.item() / group.size))

    def run(self):
        for _ in range(self.count):
            self.matrix @ self.matrix


def with_computing(group, settings, samples):
    """What an all-reduce adds to a round of computing; the ranks' skew is in it, as it is in programs."""
    for milliseconds in settings["compute_ms"]:
        computing = Computing(group, milliseconds)
        for size in settings["compute_sizes"]:
            vector = group.zeros(size)
            computing.run()
            group.barrier()
            for first in range(0, settings["compute_rounds"], TURN):
                count = min(TURN, settings["compute_rounds"] - first)
                for _ in range(count):
                    begin = time.perf_counter()
                    computing.run()
                    computed = time.perf_counter()
                    group.all_reduce(vector)
                    samples.add(seconds_since(computed), "call after computing", size, milliseconds)
                    samples.add(seconds_since(begin), "round", size, milliseconds)
                for _ in range(count):
                    begin = time.perf_counter()
                    computing.run()
                    samples.add(seconds_since(begin), "round without its all-reduce", size, milliseconds)


def measure(group, settings, samples):
    """Returns a digest of checked sums, which is the same over every transport."""
    digest = vectors.measure(group, settings, samples)
    in_other_ways(group, settings, samples)
    with_computing(group, settings, samples)
    return digest
