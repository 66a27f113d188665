"""The model's figure for a figure of an article. Pure; numpy for the fits.

DDP's volume and time are those of the ring (tools/model/ring.py), overlap is tools/model/overlap.py's timeline. Memory
is bytes a parameter: 16-bit weights and gradients, and Adam's moments, without masters (Rajbhandari et al. 2020,
section 3.1). A size of all_reduce_perf follows from alpha and beta, fitted to all published sizes of that pair of
devices.
"""

import functools
import math
import re
import statistics

from gloo_bypass_tools.model import fitting, overlap, ring
from gloo_bypass_tools.model.prediction import Prediction
from gloo_bypass_tools.study.published import articles

LARGE, SMALL = 70e9, 7e9  # parameters
LARGE_RANKS = 8  # of the memory's and the volume's figures
SIZES = re.compile(r"(\d+) bytes")
BENCHMARK = "all_reduce_perf"


def first_number(text):
    return float(re.search(r"\d+(\.\d+)?", text).group())


@functools.lru_cache(maxsize=None)
def link_of(study):
    """Fitted to the times of one pair of devices, in and out of place."""
    points = [
        fitting.Point(2, int(SIZES.fullmatch(one.variant).group(1)), one.value * 1e-6)
        for one in articles.read()
        if one.study == study and one.metric.startswith("time_")
    ]
    return fitting.fit(points, bootstraps=1).link


def bus_bandwidth(size, link):
    """GB/s of two ranks, whose bus carries the vector once."""
    return size / ring.time_s(2, size, link) / 1e9


def benchmark(figure):
    """Of the published sizes themselves: no model."""
    link, how = link_of(figure.study), "alpha and beta, fitted to this pair's sizes"
    if figure.variant == "mean":
        sizes = {int(SIZES.fullmatch(one.variant).group(1)) for one in articles.read() if SIZES.fullmatch(one.variant)}
        return statistics.fmean(bus_bandwidth(size, link) for size in sizes), how, False
    size = int(SIZES.fullmatch(figure.variant).group(1))
    if figure.metric.startswith("time_"):
        return ring.time_s(2, size, link) * 1e6, how, False
    return bus_bandwidth(size, link), how, False


def shared_bus(figure):
    if figure.metric == "allreduce_ratio_expected":
        return ring.event_bytes(4, 1) / ring.event_bytes(2, 1), "2(N-1) S: all bytes cross one bus"
    return None


def volume_ratio(_figure):
    return ring.rank_bytes(4, 1) / ring.rank_bytes(2, 1), "2(N-1)/N S"


# Bytes a parameter: weights and gradients in 16 bits, two moments in 16 (the small model) or 32 bits (the large one).
WEIGHTS, GRADIENTS, SMALL_MOMENTS, LARGE_MOMENTS = 2, 2, 4, 8


def small_memory(figure):
    each = {"weights": WEIGHTS, "gradients": GRADIENTS, "optimizer states": SMALL_MOMENTS}
    each["total"] = sum(each.values())
    return 120e6 * each[figure.variant] / 1e6, "bytes a parameter"


def activations(figure):
    sizes = [int(one) for one in figure.variant.split()[-1].split("x")]
    return math.prod(sizes) * 2 / 1e9, "2 bytes each"


def sharded_memory(figure):
    """What a rank holds: ZeRO-1 shares the moments, 2 the gradients too, 3 also the weights."""
    parts, stage = (LARGE_MOMENTS, GRADIENTS, WEIGHTS), int(figure.variant[-1]) if figure.variant != "DDP" else 0
    each = sum(part / LARGE_RANKS if at < stage else part for at, part in enumerate(parts))
    return LARGE * each / 1e9, f"{each:g} bytes a parameter"


def large_ring(figure):
    ranks = int(first_number(figure.variant))
    volume = ring.rank_bytes(ranks, LARGE * 4) / 1e9
    if figure.metric == "volume_per_rank":
        return volume, "2(N-1)/N S"
    return volume / first_number(figure.variant.partition(", ")[2]), "2(N-1)/N S / beta"


def volumes(figure):
    """PowerSGD's depends on the matrices, which the article does not give; top-k's pairs go to all ranks."""
    dense = ring.rank_bytes(LARGE_RANKS, LARGE * 4) / 1e9
    made = {"fp32": (dense, "2(N-1)/N S"), "fp16": (dense / 2, "half of it")}
    return made.get(figure.variant)


def buckets(figure):
    if figure.metric == "buckets":
        return SMALL * 4 / (first_number(figure.variant) * 1e6), "S / size"
    return None


def staleness(figure):
    steps = [15] if figure.variant == "t=15" else range(16)
    return 100 * statistics.fmean(math.exp(-0.1 * step) for step in steps), "exp(-0.1 t)"


LAYERS, BACKWARD_MS, REDUCE_MS = 100, 80.0, 100.0


def overlapped(figure):
    """Each layer's all-reduce follows its own backward; one at a time."""
    ready = [layer * BACKWARD_MS / LAYERS for layer in range(LAYERS)]
    first_ms = BACKWARD_MS / LAYERS
    # In milliseconds throughout.
    made = overlap.timeline(ready, [1] * LAYERS, lambda size, together: REDUCE_MS / LAYERS, threads=1)
    step_ms = first_ms + made.ar_s
    known = {
        "step": step_ms,
        "speedup": (BACKWARD_MS + REDUCE_MS) / step_ms,
        "overlap": 100 * (BACKWARD_MS + REDUCE_MS - step_ms) / REDUCE_MS,
    }
    return known[figure.metric], "the timeline of 100 buckets"


PAIRS = 2 / (0.01 * (2 + 4))  # of fp16: a value is 2 bytes, an index 4, and 1 % is sent


def pairs(_figure):
    return PAIRS, "2 bytes against 1 % of 6"


def top_k_time(figure):
    time_ms = 5 + 50 / PAIRS + 5
    return (time_ms if figure.metric == "time" else 50 / time_ms), "5 ms, the all-reduce / 33, 5 ms"


def accumulated(_figure):
    return 4 * 100 + 40.0, "4 T_c + T_r"


def low_rank(figure):
    """(m + n) r numbers for m n."""
    rows, columns, rank = (int(one) for one in re.findall(r"\d+", figure.study))
    share = (rows + columns) * rank / (rows * columns)
    return (100 * share if figure.metric == "ratio" else 1 / share), "(m + n) r for m n"


# The first words of an article's study -> its formula.
FORMULAS = {
    BENCHMARK: benchmark,
    "shared bus": shared_bus,
    "volume a step": volumes,
    "volume": volume_ratio,
    "memory, 120M": small_memory,
    "memory, 70B": sharded_memory,
    "activations": activations,
    "70B fp32": large_ring,
    "bucket size": buckets,
    "staleness": staleness,
    "overlap": overlapped,
    "top 1 %, 50 ms all-reduce, fp16": pairs,
    "top 1 %, 50 ms all-reduce, 5 ms": top_k_time,
    "accumulation": accumulated,
    "PowerSGD": low_rank,
}


def by_study(table, study, default=None):
    """The entry whose key the study's name begins with."""
    return next((made for begin, made in table.items() if study.startswith(begin)), default)


def predict(figure):
    """A Prediction in the figure's unit, or None where the model says nothing."""
    formula = by_study(FORMULAS, figure.study)
    found = formula(figure) if formula else None
    return Prediction(*found) if found else None
