"""All-reduces of float32 vectors one after the other, by whatever library `group` has: the first calls of a process,
then many of each size. Values are zeros while time is taken, so that none grows; each size is checked once.

A group has `rank`, `size`, `all_reduce(vector)` in place, `barrier()`, `zeros(bytes)`, `filled(bytes, value)` and
`bytes_of(vector)`.
"""

import hashlib
import time

from gloo_bypass_tools.compare_programs.measuring import seconds_since


def calls_of(settings, size):
    """Many short ones, a few long ones."""
    return max(settings["least_calls"], min(settings["most_calls"], (64 << 20) // size))


def first_calls(group, settings, samples):
    size = settings["first_bytes"]
    vector = group.zeros(size)
    for _ in range(settings["first_calls"]):
        begin = time.perf_counter()
        group.all_reduce(vector)
        samples.add(seconds_since(begin), "first calls", size)


def one_after_the_other(group, settings, samples):
    for size in settings["sizes"]:
        many(group, settings, samples, size, "one after the other", group.all_reduce)


def many(group, settings, samples, size, quantity, all_reduce):
    vector, calls = group.zeros(size), calls_of(settings, size)
    group.barrier()
    for _ in range(max(2, calls // 5)):
        all_reduce(vector)
    last = time.perf_counter()
    for _ in range(calls):
        all_reduce(vector)
        now = time.perf_counter()
        samples.add(now - last, quantity, size)
        last = now


def checked_sums(group, settings):
    """A digest of the sums of each size, which must be right."""
    digest = hashlib.sha256()
    for size in settings["sizes"]:
        vector = group.filled(size, float(group.rank + 1))
        group.all_reduce(vector)
        wanted = group.size * (group.size + 1) / 2
        if not bool((vector == wanted).all()):
            raise RuntimeError(f"a sum of {size} bytes is wrong: not {wanted} everywhere")
        digest.update(group.bytes_of(vector))
    return digest.hexdigest()


def measure(group, settings, samples):
    """Returns a digest of checked sums, which is the same over every library and transport."""
    first_calls(group, settings, samples)
    one_after_the_other(group, settings, samples)
    return checked_sums(group, settings)
