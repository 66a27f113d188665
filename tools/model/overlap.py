"""Buckets of gradients against backward: when each all-reduce runs, and what of it backward does not hide. Pure.

A bucket's all-reduce is queued when its last gradient is ready; the process group runs them in order on `threads`
threads (c10d: 2). duration(size, n) is the time of one of `size` bytes while n run at once; it may stretch with n as
far as they share links.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Seconds of computation: before the first bucket is ready, from there to the last one's readiness, after all are
    reduced."""

    before_s: float = 0.0
    window_s: float = 0.0
    after_s: float = 0.0


@dataclass(frozen=True)
class Timeline:
    """ar_s: first bucket ready to last one reduced; exposed_s: of it, after the last was ready; spans: (start, end) of
    each bucket."""

    ar_s: float
    exposed_s: float
    step_s: float
    spans: tuple


def timeline(ready, sizes, duration, step=Step(), threads=2):
    """`ready`: seconds after the first bucket's readiness, ascending. Fluid: progress runs at 1 / duration(size, how
    many run)."""
    if not sizes or len(ready) != len(sizes) or threads < 1:
        raise ValueError("a timeline needs buckets, as many times of readiness, and a thread")
    cache = {}

    def lasting(index, together):
        key = sizes[index], together
        if key not in cache:
            cache[key] = duration(*key)
        return cache[key]

    now, waiting, running = 0.0, list(range(len(sizes))), {}
    spans = [None] * len(sizes)
    while waiting or running:
        while waiting and len(running) < threads and ready[waiting[0]] <= now:
            index = waiting.pop(0)
            running[index] = 1.0
            spans[index] = [now, None]
        if not running:
            now = ready[waiting[0]]
            continue
        left = {index: share * lasting(index, len(running)) for index, share in running.items()}
        until = min(left.values())
        if waiting and len(running) < threads:
            until = min(until, ready[waiting[0]] - now)
        now += until
        for index in list(running):
            running[index] -= until / lasting(index, len(left)) if lasting(index, len(left)) else running[index]
            if left[index] <= until:
                del running[index]
                spans[index][1] = now
    end = max(span[1] for span in spans)
    last_ready = max(ready)
    return Timeline(
        end, end - last_ready, step.before_s + max(end, step.window_s) + step.after_s, tuple(map(tuple, spans))
    )


def stretched(buckets, base_s, unlimited, limited, threads=2):
    """The timeline where an all-reduce lasts limited(size, n), of a step whose all-reduces took base_s where each
    lasted unlimited(size, n): from that follows when each bucket was ready."""
    sizes = [bucket.size for bucket in buckets]
    window_s = max(0.0, base_s - unlimited(sizes[-1], 1))
    return timeline([bucket.ready * window_s for bucket in buckets], sizes, limited, threads=threads)
