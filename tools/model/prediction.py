"""The model's figure for a published one. Pure.

bytes      2 (N-1) S and the headers of frames as a bridge between containers sees them (framing: TCP, offloaded)
one edge   the buckets of DistilGPT2 go through Gloo's ring over Gloo's TCP (schedule: granted), two at once. The
           unconstrained run gives what the model cannot know: how long backward takes from the first bucket to the
           last, and the rest of the step
the rest   figures that follow from other published ones: TH from bytes and time, OH_ar from T_ar and T_step
"""

import functools
import re
from dataclasses import dataclass, replace

from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.model import buckets, framing, overlap, ring, schedule

MODEL = buckets.MODELS["distilgpt2"]
SAMPLES = 400  # of an epoch
LINK_CHECK_RATE = 25e9 / 8  # bytes/s that iperf3 found between containers
THREADS = 2  # c10d's; each runs one bucket's all-reduce at a time


@dataclass(frozen=True)
class Setting:
    """ranks, samples a rank and step, bits of a gradient; the slow edge's rate in bytes/s and one-way delay in
    seconds."""

    ranks: int = 2
    batch: int = 8
    bits: int = 32
    rate: float = LINK_CHECK_RATE
    delay_s: float = 0.0

    @property
    def base(self):
        return self.rate == LINK_CHECK_RATE and not self.delay_s

    @property
    def element_bytes(self):
        return self.bits // 8

    @property
    def size(self):
        return int(ring.gradient_bytes(MODEL.parameter_count(), self.bits))

    @property
    def events(self):
        return SAMPLES // (self.batch * self.ranks)


@dataclass(frozen=True)
class Prediction:
    """value in the unit of the published figure; how: what it follows from; modelled: not from other published figures
    alone."""

    value: float
    how: str
    modelled: bool = True


def setting_of(study, variant):
    """What a variant of a study is, or None where the file has one that this does not know."""
    if study in ("barrier", "flow-symmetry"):
        return Setting()
    if study == "ws4-flows" or variant == "base":
        return Setting(ranks=4)
    found = re.fullmatch(r"(bs=|ws=|fp)?(\d+)(Mbit|ms)?", variant)
    if not found:
        return None
    before, number, after = found.group(1), int(found.group(2)), found.group(3)
    made = {
        ("bs=", None): {"batch": number},
        ("ws=", None): {"ranks": number},
        ("fp", None): {"bits": number},
        (None, "Mbit"): {"ranks": 4, "rate": number * 1e6 / 8},
        (None, "ms"): {"ranks": 4, "delay_s": number * 1e-3},
    }
    return Setting(**made[before, after]) if (before, after) in made else None


def path():
    return next(one for one in framing.paths() if one.name == "TCP, offloaded")


@functools.lru_cache(maxsize=None)
def bucket_list(bits):
    return tuple(buckets.of_model(MODEL, bits // 8))


@functools.lru_cache(maxsize=None)
def event_cost(ranks, bits):
    """All frames of an event; all buckets."""
    total = framing.NOTHING
    for bucket in bucket_list(bits):
        parts = schedule.cut(bucket.size, ranks, element_bytes=bits // 8)
        total += framing.event_cost(path(), ranks, parts.segments())
    return total


def edge_bytes(setting, variant):
    """Bytes of an event from one rank to another, and of the broadcast before the first: (event, broadcast)."""
    start, end = (int(text) for text in re.fullmatch(r"(?:rank)?(\d)->(?:rank)?(\d)", variant).groups())
    cost = event_cost(setting.ranks, setting.bits)
    event = 0.0
    if (start, end) in ring.ring_edges(setting.ranks):
        event += cost.forward / setting.ranks
    if (end, start) in ring.ring_edges(setting.ranks):
        event += cost.backward / setting.ranks
    return event, setting.size if (start, end) in ring.broadcast_edges(setting.ranks) else 0.0


def edge_duration(setting, completion):
    """duration(size, n) of overlap.timeline, for this setting's ring with its slow edge."""
    cost = event_cost(setting.ranks, setting.bits)
    share = setting.size * 2 * (setting.ranks - 1) / cost.forward  # of the edge's rate that is payload

    def duration(size, together):
        slow = schedule.Edge(setting.rate * share / together, setting.delay_s, 0.0)
        edges = schedule.ring_of(setting.ranks, LINK_CHECK_RATE * share / together, slow=slow)
        return schedule.time_s(size, edges, completion, element_bytes=setting.element_bytes)

    return duration


@functools.lru_cache(maxsize=None)
def all_reduce_s(setting, base_s, completion="granted"):
    """T_ar over the slow edge, if it takes base_s without one: that tells when each bucket is ready."""
    unconstrained = Setting(setting.ranks, setting.batch, setting.bits)
    unlimited, limited = (edge_duration(one, completion) for one in (unconstrained, setting))
    return overlap.stretched(bucket_list(setting.bits), base_s, unlimited, limited, THREADS).ar_s


def sibling(figure, **changes):
    """Another figure of the same line of the study, or None."""
    parts = dict(zip(measurements.KEY, figure.key)) | changes
    if changes.get("table") == "any":
        for one in measurements.index().values():
            if all(getattr(one, name) == value for name, value in parts.items() if name != "table"):
                return one
        return None
    return measurements.index().get(tuple(parts.values()))


def bytes_of(figure, setting):
    """Predicts bytes_per_event and total_bytes."""
    if "->" in figure.variant:
        event, broadcast = edge_bytes(setting, figure.variant)
    else:
        event = event_cost(setting.ranks, setting.bits).total
        broadcast = ring.broadcast_bytes(setting.ranks, setting.size)
    if figure.metric == "bytes_per_event":
        return event / 1e6, "2(N-1) S and headers" if event else "nothing"
    return (setting.events * event + broadcast) / 1e6, "events x bytes, and the first broadcast"


def rate_of(figure, setting):
    """Predicts th_peak and th_avg_overall: published bytes over published time."""
    peak = figure.metric == "th_peak"
    if figure.statistic != ("median" if peak else "mean"):
        return None
    statistics = ("median", "median") if peak else ("sum", "sum")
    names = ("bytes_per_event", "event_duration") if peak else ("total_bytes", "total_duration")
    found = [sibling(figure, table="any", metric=name, statistic=one) for name, one in zip(names, statistics)]
    if peak and figure.study == "ws4-flows":
        found[1] = measurements.figure("5.14", "world-size", "ws=4", "event_duration", "median")
    if not peak and figure.study == "ws4-flows":
        found[1] = measurements.figure("5.13", "world-size", "ws=4", "total_duration", "sum")
    if not peak and figure.study == "flow-symmetry":
        found[1] = measurements.figure("5.6", "batch-size", "bs=8", "total_duration", "sum")
    if None in found:
        return None
    return (
        8 * found[0].base / found[1].base / measurements.UNITS[figure.unit],
        "published bytes x 8 / published time",
        False,
    )


def time_of(figure, setting):
    """Predicts event_duration, t_ar and t_step over a slow edge."""
    if figure.study not in ("edge-bandwidth", "edge-latency") or figure.statistic != "median":
        return None
    base = sibling(figure, variant="base")
    if setting.base or base is None:
        return None
    unit = measurements.UNITS[figure.unit]
    if figure.metric == "t_step":
        base_ar = sibling(figure, variant="base", metric="t_ar")
        step_s = base.base - base_ar.base + all_reduce_s(setting, base_ar.base)
        return step_s / unit, "T_ar of the model, the rest as unconstrained"
    return all_reduce_s(setting, base.base) / unit, "Gloo's ring over TCP, buckets against backward"


def share_of(figure, setting):
    """Predicts oh_ar."""
    parts = [sibling(figure, metric="t_ar"), sibling(figure, metric="t_step")]
    if figure.statistic != "median" or None in parts:
        return None
    timed = [time_of(part, setting) for part in parts]
    if None not in timed:
        return 100 * timed[0][0] / timed[1][0], "T_ar / T_step of the model"
    return 100 * parts[0].base / parts[1].base, "median T_ar / median T_step, as published", False


def predicted_ratio(figure):
    """The ratio of two predictions that need no published figure: of bytes or of counts."""
    metric = figure.metric.removesuffix(measurements.RATIO)
    if metric not in ("allreduce_events", "bytes_per_event", "total_bytes"):
        return None
    first = measurements.FIRST[figure.study]
    above, below = (predict(replace(figure, metric=metric, variant=one, unit="MB")) for one in (figure.variant, first))
    return Prediction(above.value / below.value, f"model's {metric} over that of {first}")


def predict(figure):
    """A Prediction for a published Figure, or None where the model says nothing."""
    setting = setting_of(figure.study, figure.variant)
    if setting is None:
        return None
    if figure.metric.endswith(measurements.RATIO):
        return predicted_ratio(figure)
    if figure.metric == "allreduce_events":
        return Prediction(float(setting.events), "floor(400 / (batch x N))")
    if figure.metric == "tx_bytes":
        total = event_cost(setting.ranks, setting.bits).total
        return Prediction(setting.events * total / setting.ranks / 1e9, "events x bytes / N")
    made = {
        "bytes_per_event": bytes_of,
        "total_bytes": bytes_of,
        "th_peak": rate_of,
        "th_avg_overall": rate_of,
        "event_duration": time_of,
        "t_ar": time_of,
        "t_step": time_of,
        "oh_ar": share_of,
    }.get(figure.metric)
    found = made(figure, setting) if made else None
    return Prediction(*found) if found else None


@dataclass(frozen=True)
class Ratio:
    """Two published figures' ratio, and the model's, with what it says about the difference."""

    label: str
    published: float
    model: float
    how: str


def ratios():
    """What changes by how much from one setting to another."""

    def median(table, study, variant, metric):
        return measurements.published(table, study, variant, metric, "median")

    def of(table, study, top, bottom, metric):
        return median(table, study, top, metric) / median(table, study, bottom, metric)

    def outside(variant):
        return median("5.15", "world-size", variant, "t_step") - median("5.15", "world-size", variant, "t_ar")

    two, four, size = event_cost(2, 32).total, event_cost(4, 32).total, Setting().size
    doubles, batches = ("5.10", "precision", "fp64", "fp32"), ("5.7", "batch-size", "bs=16", "bs=8")
    ranks = ("5.14", "world-size", "ws=4", "ws=2")
    more_events = ring.event_bytes(4, size) / ring.event_bytes(2, size)
    shared = "one shared machine carries 3 x the bytes; a link for each rank: 1.5"
    crowded = "twice the ranks on 4 virtual processors: why the duration grows beyond the bytes"
    busy = "the edge is busy all the time, from the first bucket on"
    waits = "Gloo's TCP waits for the receiver's notice; without that: {buffered:.2f}"
    bytes_, duration = "bytes_per_event", "event_duration"
    return [
        Ratio("bytes per event, FP64 / FP32", of(*doubles, bytes_), event_cost(2, 64).total / two, "S doubles"),
        Ratio("event duration, FP64 / FP32", of(*doubles, duration), 2.0, "beta alone"),
        Ratio("bytes per event, batch 16 / 8", of(*batches, bytes_), 1.0, "S does not depend on the batch"),
        Ratio("bytes per event, 4 ranks / 2", of(*ranks, bytes_), four / two, "2(N-1) S"),
        Ratio("event duration, 4 ranks / 2", of(*ranks, duration), more_events, shared),
        Ratio("step outside T_ar, 4 ranks / 2", outside("ws=4") / outside("ws=2"), 2.0, crowded),
        edge_ratio("5.17", "edge-bandwidth", "50Mbit", busy),
        edge_ratio("5.20", "edge-latency", "300ms", waits),
    ]


def edge_ratio(table, study, variant, how):
    """Event duration over a slow edge against none; `how` may tell what it would be if data did not wait for the
    receive."""
    base_s = measurements.published(table, study, "base", "event_duration", "median")
    setting = setting_of(study, variant)
    published = measurements.published(table, study, variant, "event_duration", "median") / base_s
    said = how.format(buffered=all_reduce_s(setting, base_s, "buffered") / base_s)
    return Ratio(f"event duration, {variant} / no limit", published, all_reduce_s(setting, base_s) / base_s, said)
