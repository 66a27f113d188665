"""Medians, 99th percentiles and ratios of what was measured. Pure: frames in, rows out.

A ratio says how many times better a transport is than the first one, the baseline: above 1 is better, for a time
(lower is better) as for a rate (higher is better). Its range is over the repeats, each repeat of the one held against
the same repeat of the other, since those ran next to each other.
"""

from dataclasses import dataclass, field, replace

import numpy
import pandas

from gloo_bypass_tools.report import steadiness

# Up to this size tables show an all-reduce's time, above it the bandwidth.
SMALL_BYTES = 65536
# The sizes of the short table, where they were measured: 1 element, a small and a middle one, 10M floats.
HEADLINE_BYTES = (4, 1024, 65536, 2**20, 40_000_000)
# So many are all shown.
FEW_SIZES = 6
ONE_ELEMENT_BYTES, TEN_MILLION_BYTES = 4, 40_000_000
# What RDMA must be beside Gloo's own transport over verbs.
LEAST_TO_IBVERBS = 1.4


@dataclass(frozen=True)
class Figure:
    """A quantity over all its samples.

    99 in 100 samples are at least as good as `tail`: the 99th percentile of a time, the 1st of a rate.
    """

    median: float
    tail: float
    samples: int


@dataclass(frozen=True)
class Ratio:
    """`low` and `high` are None where there was one repeat."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of a table: a quantity, a figure for each transport, a ratio for each but the baseline.

    `better` is 'lower', 'higher', or '' where neither is.
    """

    section: str
    key: str
    label: str
    unit: str
    better: str
    figures: dict = field(default_factory=dict)
    ratios: dict = field(default_factory=dict)


# The section of the table that the forward pass may put in doubt.
TRAINING = "Training"
# key, label, unit, what a frame's value is multiplied by, which way is better
TRAINING_QUANTITIES = (
    ("step_s", "Step, T_step", "s", 1.0, "lower"),
    ("forward_s", "Forward", "s", 1.0, "lower"),
    ("backward_s", "Backward, without waiting", "s", 1.0, "lower"),
    ("optimizer_s", "Optimiser", "s", 1.0, "lower"),
    ("all_reduce_s", "All-reduce, T_ar", "s", 1.0, "lower"),
    ("exposed_s", "T_ar not hidden behind backward", "s", 1.0, "lower"),
    ("share_percent", "T_ar of the step, OH_ar", "%", 1.0, ""),
    ("tokens_per_s", "Tokens a second, all ranks", "", 1.0, "higher"),
    ("sent_bytes", "Sent by a rank in a step", "MB", 1e-6, ""),
    ("received_bytes", "Received by a rank in a step", "MB", 1e-6, ""),
)
IDLE_QUANTITIES = (
    ("cpu_percent", "Idle, connected rank", "% of a core", 1.0, ""),
    ("memory_bytes", "Memory of being connected", "MiB", 2.0**-20, ""),
)


def figure_of(values, better="lower"):
    """The Figure of a sequence of numbers, or None where there is none."""
    samples = numpy.asarray(pandas.Series(values, dtype=float).dropna())
    if samples.size == 0:
        return None
    tail = numpy.percentile(samples, 1 if better == "higher" else 99)
    return Figure(float(numpy.median(samples)), float(tail), int(samples.size))


def times_better(baseline, other, better):
    """How many times better `other` is; None where it cannot be said."""
    if better not in ("lower", "higher") or baseline is None or other is None:
        return None
    above, below = (baseline, other) if better == "lower" else (other, baseline)
    return above / below if below > 0 and above > 0 else None


def ratio_of(medians, other_medians, overall, better):
    """The Ratio of the overall medians, with its range over the repeats that both have.

    `overall` is the pair of medians over all samples; the others map a repeat to its median.
    """
    value = times_better(*overall, better)
    if value is None:
        return None
    each = [
        times_better(medians[repeat], other_medians[repeat], better) for repeat in medians if repeat in other_medians
    ]
    each = [one for one in each if one is not None]
    return Ratio(value, min(each), max(each)) if len(each) > 1 else Ratio(value)


def row_of(frame, transports, section, key, label, unit, scale, better):
    """The Row of one column of a frame that has transport and repeat; None where all of it is empty."""
    figures, medians = {}, {}
    for transport in transports:
        part = frame[frame["transport"] == transport]
        values = part[key].astype(float) * scale
        figure = figure_of(values, better)
        if figure is not None:
            figures[transport] = figure
            medians[transport] = values.groupby(part["repeat"]).median().dropna().to_dict()
    if not figures:
        return None

    def ratio(first, other):
        return ratio_of(medians[first], medians[other], (figures[first].median, figures[other].median), better)

    return Row(section, key, label, unit, better, figures, ratios_to_first(figures, transports, ratio))


def ratios_to_first(figures, transports, ratio):
    """{transport: `ratio(first, transport)`} of those that have figures, where it can be said."""
    first, *others = transports
    found = {other: ratio(first, other) for other in others if first in figures and other in figures}
    return {other: one for other, one in found.items() if one is not None}


def ratios_of(figures, transports, better):
    """The Ratios of medians."""

    def ratio(first, other):
        value = times_better(figures[first].median, figures[other].median, better)
        return value and Ratio(value)

    return ratios_to_first(figures, transports, ratio)


def measured_steps(steps):
    """Without the warm-up steps."""
    return steps[~steps["warm_up"].astype(bool)] if len(steps) else steps


def training_rows(steps, transports):
    measured = measured_steps(steps).copy()
    if not len(measured):
        return []
    measured["share_percent"] = 100.0 * measured["all_reduce_s"] / measured["step_s"]
    rows = (row_of(measured, transports, TRAINING, *quantity) for quantity in TRAINING_QUANTITIES)
    return [row for row in rows if row is not None]


def idle_rows(idle, transports):
    if not len(idle):
        return []
    rows = (row_of(idle, transports, "Idle", *quantity) for quantity in IDLE_QUANTITIES)
    return [row for row in rows if row is not None]


def size_text(size):
    """A size as people say it: 4 B, 64 KiB, 16 MiB, and 40 MB where it is round in powers of ten."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    if size >= 10**6:
        return f"{size / 1e6:g} MB"
    return f"{size} B" if size < 10**4 else f"{size / 1e3:g} kB"


def count_text(elements):
    if elements >= 10**6 and elements % 10**6 == 0:
        return f"{elements // 10**6}M elements"
    return f"{elements:,} element" + ("" if elements == 1 else "s")


def busbw(size, microseconds, ranks):
    """GB/s as nccl-tests defines it: size / time x 2 (N-1) / N."""
    return size / microseconds / 1e3 * 2 * (ranks - 1) / ranks


def all_reduce_rows(reduces, transports, section="Ring all-reduce", key="all_reduce"):
    """A Row for each size: microseconds up to SMALL_BYTES, else GB/s.

    The benchmark has made medians and percentiles of its samples already; bandwidths here are those of the median and
    of the 99th percentile of the time.
    """
    rows = []
    for size in sorted(reduces["bytes"].unique()):
        figures = {}
        for transport in transports:
            part = reduces[(reduces["bytes"] == size) & (reduces["transport"] == transport)]
            if len(part):
                one = part.iloc[-1]
                times = (one["p50_us"], one["p99_us"])
                values = times if size <= SMALL_BYTES else [busbw(size, time, one["ranks"]) for time in times]
                figures[transport] = Figure(float(values[0]), float(values[1]), int(one["samples"]))
        unit, better = ("us", "lower") if size <= SMALL_BYTES else ("GB/s", "higher")
        elements = int(reduces[reduces["bytes"] == size]["elements"].iloc[0])
        label = f"{size_text(int(size))}, {count_text(elements)}"
        rows.append(Row(section, f"{key}_{size}", label, unit, better, figures, ratios_of(figures, transports, better)))
    return rows


def digests(runs):
    """Transport -> the sorted SHA-256 digests that all ranks of all its runs ended with: one if they all agree."""
    return {transport: sorted(set(part["sha256"])) for transport, part in runs.groupby("transport", sort=False)}


def identical(runs, transports):
    """Whether all ranks of all runs ended with the same bits; None where not every transport was trained."""
    found = digests(runs)
    if len(transports) < 2 or any(transport not in found for transport in transports):
        return None
    return len(set().union(*found.values())) == 1


def identical_in_each(frames, transports):
    """The same of several series of runs, each for itself, since their numbers of steps differ; those without any do
    not count."""
    found = [identical(runs, transports) for runs in frames if len(runs)]
    return None if not found or None in found else all(found)


def ratio_at(rows, key, transport):
    """The Ratio of one row, or None."""
    return next((row.ratios[transport] for row in rows if row.key == key and transport in row.ratios), None)


def figure_at(rows, key, transport):
    return next((row.figures.get(transport) for row in rows if row.key == key), None)


def doubted(training, transports):
    """{transport: ratio of the forward pass}, which nothing is sent in, where that took differently long than over the
    first one: what else was measured in training says little about these transports."""
    found = {}
    for transport in transports[1:]:
        one = ratio_at(training, "forward_s", transport)
        ends = [] if one is None or one.low is None else [one.low, one.high]
        ratio = one and steadiness.unsteady_ratio(one.value, ends)
        if ratio:
            found[transport] = ratio
    return found


def doubt(training, transports):
    """A sentence on those that are doubted; '' where none is."""
    said = steadiness.in_words(doubted(training, transports), transports[0])
    return said and (
        f"{said}: the machine was not steady, or a transport's threads take processor time from the "
        "computation. What training says about that transport is in doubt."
    )


@dataclass(frozen=True)
class Target:
    """What the project set out to reach over a transport; `met` is None where it was not measured or the repeats cannot
    tell."""

    label: str
    wanted: str
    measured: str
    met: bool | None
    said: str


def idle_target(idle, transport, label):
    """What an idle rank takes of a core."""
    cpu = figure_at(idle, "cpu_percent", transport)
    if cpu is None:
        return Target(label, "under 1 % of a core", "not measured", None, "")
    met = cpu.median < 1.0
    return Target(label, "under 1 % of a core", f"{cpu.median:.2f} %", met, "reached" if met else "not reached")


def target_of(label, wanted, one, least):
    """The Target of a Ratio that must be `least`; repeats on both sides of it, near it, decide nothing."""
    if one is None:
        return Target(label, wanted, "not measured", None, "")
    measured = f"{one.value:.2f} x"
    if one.value >= least:
        return Target(label, wanted, measured, True, "reached")
    if one.value >= 0.95 * least and one.high is not None and one.high >= least:
        return Target(label, wanted, measured, None, "reached in some repeats only")
    return Target(label, wanted, measured, False, "not reached")


def headline_rows(rows):
    """The rows of the short table."""
    keys = {f"all_reduce_{size}" for size in HEADLINE_BYTES}
    return rows if len(rows) <= FEW_SIZES else [row for row in rows if row.key in keys]


def bound_rows(bound, transports):
    """Rows of the algorithm on bound buffers, which every transport runs, Gloo's own over verbs included."""
    return all_reduce_rows(bound, transports, "Ring-chunked all-reduce", "bound") if len(bound) else []


def columns_of(bound, transports):
    """The transports of the bound rows: those compared, and what was measured beside them."""
    return list(dict.fromkeys([*transports, *bound["transport"]]))


def share_of_write(beside, transport):
    """The Ratio of a transport's bus bandwidth to that of ib_write_bw in one direction with both busy, and both in
    GB/s; or None."""
    part = beside[beside["transport"] == transport]
    if not len(part):
        return None
    ours = part.apply(lambda one: busbw(one["bytes"], one["p50_us"], one["ranks"]), axis=1)
    each = ours / part["write_gbps"]
    low, high = (float(each.min()), float(each.max())) if len(part) > 1 else (None, None)
    reached, possible = float(ours.median()), float(part["write_gbps"].median())
    return Ratio(reached / possible, low, high), reached, possible


def ratio_between(row, transport, other):
    """How many times better `transport` was than `other` in a row; the Ratio, or None."""
    ours, theirs = row.figures.get(transport), row.figures.get(other)
    value = times_better(theirs and theirs.median, ours and ours.median, row.better)
    return value and Ratio(value)


def one_element_target(reduces, bound):
    """One element in the ring, which PyTorch runs and Gloo's ibverbs cannot, beside what that needs in the algorithm
    that it can run."""
    ours = figure_at(reduces, f"all_reduce_{ONE_ELEMENT_BYTES}", "RDMA")
    theirs = figure_at(bound, f"bound_{ONE_ELEMENT_BYTES}", "GLOO_IBVERBS")
    value = times_better(theirs and theirs.median, ours and ours.median, "lower")
    one = target_of(
        "RDMA, ring all-reduce of 1 element, median",
        "at most a tenth of what Gloo's own ibverbs transport needs, ring-chunked",
        value and Ratio(value),
        10.0,
    )
    return replace(one, measured=f"1/{value:.1f} ({ours.median:,.0f} of {theirs.median:,.0f} us)") if value else one


def rdma_targets(beside, reduces, bound, idle):
    """The project's targets for RDMA: beside what the adapter can do, and beside Gloo's own transport over verbs."""
    share = share_of_write(beside, "RDMA")
    size = size_text(int(beside["bytes"].iloc[0])) if len(beside) else "4 MiB"
    wanted = "at least 0.85 x ib_write_bw's, one direction with both busy"
    one = target_of(f"RDMA, ring all-reduce of {size}, bus bandwidth", wanted, share[0] if share else None, 0.85)
    if share:
        one = replace(one, measured=f"{share[0].value:.2f} x ({share[1]:.3g} of {share[2]:.3g} GB/s)")
    found = [one, one_element_target(reduces, bound)]
    wanted = f"at least {LEAST_TO_IBVERBS:g} x Gloo's own ibverbs transport, in the same algorithm"
    for row in bound:
        label = f"RDMA, ring-chunked all-reduce of {row.label.partition(',')[0]}"
        found.append(target_of(label, wanted, ratio_between(row, "RDMA", "GLOO_IBVERBS"), LEAST_TO_IBVERBS))
    if figure_at(idle, "cpu_percent", "RDMA"):
        found.append(idle_target(idle, "RDMA", "RDMA, idle, connected rank"))
    return found


def slower_than_baseline(rows, transport):
    """Whether the transport lost to the first one in bandwidth at the largest size."""
    rated = [row.ratios[transport] for row in rows if row.unit == "GB/s" and transport in row.ratios]
    return bool(rated) and rated[-1].value < 1.0


def in_doubt(target):
    """The same of a machine that was not steady: neither reached nor not."""
    return replace(target, met=None, said="in doubt: the machine was not steady")


def targets(training, reduces, idle, transport, baseline):
    """The project's targets for two ranks on one machine, held against the rows of a measurement."""
    doubtful = transport in doubted(training, [baseline, transport])
    ten_million, one_element = f"all_reduce_{TEN_MILLION_BYTES}", f"all_reduce_{ONE_ELEMENT_BYTES}"
    found = []
    for label, wanted, rows, key, least in (
        ("Ring all-reduce of 10M floats", "at least 3 x {}'s bandwidth", reduces, ten_million, 3.0),
        ("Ring all-reduce of 1 element, median", "at least 5 x as fast as {}", reduces, one_element, 5.0),
        ("Training step", "no slower than {}", training, "step_s", 1.0),
        ("All-reduce in training, T_ar", "at least 2 x as fast as {}", training, "all_reduce_s", 2.0),
    ):
        target = target_of(label, wanted.format(baseline), ratio_at(rows, key, transport), least)
        found.append(in_doubt(target) if doubtful and rows is training else target)
    return [*found, idle_target(idle, transport, "Idle, connected rank")]
