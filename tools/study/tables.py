"""Runs to tables: published, measured and modelled figures of each cell, what the windows were, and the targets. Pure.

A sample is one all-reduce, from a barrier to the end of its slowest rank; figures are over the samples of all runs.
With as few as a study takes, the 99th percentile is the slowest.
"""

import math
import statistics
from dataclasses import dataclass

from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import attribution, edge_study, transports as paths
from gloo_bypass_tools.study.cells import Cell


@dataclass(frozen=True)
class Measured:
    """Seconds, over all runs of a cell; `runs` are their records."""

    median_s: float
    p99_s: float
    low_s: float
    high_s: float
    samples: int
    runs: tuple


@dataclass(frozen=True)
class Row:
    """One variant, loss and segment size. `measured` and `model` by transport; published_s: scaled to this size,
    published_as: as it was."""

    variant: str
    label: str
    loss_percent: float
    segment: str
    measured: dict
    model: dict
    published_s: float | None
    published_as: float | None

    @property
    def floor_s(self):
        """The least of the transports' floors: they differ by headers."""
        return min(one.floor_s for one in self.model.values())

    def ratio(self, transport):
        """Measured / model's schedule, losses included."""
        return (
            self.measured[transport].median_s / self.model[transport].repeated_s if transport in self.measured else None
        )

    def lossless_ratio(self, transport):
        """Measured / model's schedule without loss."""
        return (
            self.measured[transport].median_s / self.model[transport].schedule_s if transport in self.measured else None
        )

    def floor_ratio(self, transport):
        return self.measured[transport].median_s / self.model[transport].floor_s if transport in self.measured else None

    def times_faster(self, transport, baseline):
        if transport not in self.measured or baseline not in self.measured:
            return None
        return self.measured[baseline].median_s / self.measured[transport].median_s


@dataclass(frozen=True)
class Target:
    """`met` is None where it was not measured."""

    label: str
    wanted: str
    measured: str
    met: bool | None


def measured_of(runs):
    samples = sorted(one for run in runs for one in run["times_s"])
    nearest = samples[math.ceil(0.99 * len(samples)) - 1]
    return Measured(statistics.median(samples), nearest, samples[0], samples[-1], len(samples), tuple(runs))


def published_of(study, variant, plan):
    """Published T_ar of this edge, in training of DistilGPT2 with 4 ranks; None where there is none."""
    if plan.ranks != study.ranks:
        return None
    try:
        return measurements.published(study.tables["t_ar"], study.name, variant, "t_ar", "median")
    except measurements.PublishedError:
        return None


def rows_of(plan, study, runs):
    """In the order of the plan; a row without any run is left out."""
    by_cell = {}
    for run in runs:
        by_cell.setdefault(Cell(**run["cell"]), []).append(run)
    rows = []
    for variant in plan.variants:
        for loss in plan.losses:
            for segment in plan.segments:
                listed = [Cell(variant, transport, segment, loss) for transport in plan.transports]
                measured = {cell.transport: measured_of(by_cell[cell]) for cell in listed if cell in by_cell}
                if not measured:
                    continue
                published = published_of(study, variant, plan) if segment == "default" and not loss else None
                scaled = None if published is None else published * plan.bytes / edge_study.PUBLISHED_BYTES
                rows.append(
                    Row(
                        variant,
                        study.variant(variant).label,
                        loss,
                        segment,
                        measured,
                        {cell.transport: study.model(plan, study, cell) for cell in listed},
                        scaled,
                        published,
                    )
                )
    return rows


def elsewhere_of(rows):
    """A sentence for each transport that did not cross the fabric's switch."""
    places = {
        transport: run["fabric"]["netem"]
        for row in rows
        for transport, one in row.measured.items()
        for run in one.runs
        if run["fabric"].get("netem")
    }
    return [
        f"{transport}: ranks, and links made by the kernel's netem, were on {place}: another machine's "
        "processor time, the same delays."
        for transport, place in places.items()
    ]


def row_at(rows, variant, segment, loss=0.0):
    return next((row for row in rows if (row.variant, row.segment, row.loss_percent) == (variant, segment, loss)), None)


def target_of(label, wanted, value, most):
    if value is None:
        return Target(label, wanted, "not measured", None)
    return Target(label, wanted, f"{value:.2f} x", value <= most)


def targets_of(plan, study, rows):
    """The project's targets, of the variants that were asked for."""
    return study.targets(plan, study, rows) if plan.ranks == study.ranks else []


def median_at(row, transport):
    return row.measured[transport].median_s if row is not None and transport in row.measured else None


def shares_of(plan, study, rows):
    """For each far edge without loss, whose the time is; of TCP and the first other transport."""
    other = next((one for one in plan.transports if not paths.is_tcp(one) and paths.is_beside(plan, one, "TCP")), None)
    if other is None or "TCP" not in plan.transports or not study.shares:
        return []
    base = row_at(rows, edge_study.BASE, "default")
    published_base = published_of(study, edge_study.BASE, plan)
    found = []
    for variant in plan.variants:
        if variant == edge_study.BASE:
            continue
        row, two = row_at(rows, variant, "default"), row_at(rows, variant, "two")
        published = published_of(study, variant, plan)
        found.append(
            attribution.shares_of(
                study.variant(variant).label,
                median_at(row, "TCP"),
                median_at(row, other),
                median_at(two, other),
                median_at(base, "TCP"),
                published / published_base if published and published_base else None,
                modelled_growth(study, variant, plan),
            )
        )
    return [one for one in found if one is not None]


def modelled_growth(study, variant, plan):
    """Of the published T_ar: buckets against backward, over Gloo's TCP."""
    from gloo_bypass_tools.model import prediction as published_prediction

    if plan.ranks != study.ranks:
        return None
    figure = measurements.figure(study.tables["t_ar"], study.name, variant, "t_ar", "median")
    made = published_prediction.predict(figure)
    base = published_of(study, edge_study.BASE, plan)
    return made.value * measurements.UNITS[figure.unit] / base if made else None


def retransmitted_of(run):
    return (run["tcp"] or run["bypass"] or {}).get("retransmitted")


def window_bytes_of(run):
    """The congestion window at its largest as it was seen; of a bypass transport, at the end."""
    if run["tcp"]:
        tcp = run["tcp"]
        return tcp["cwnd_max"] * tcp["mss"] if tcp.get("cwnd_max") and tcp.get("mss") else None
    return (run["bypass"] or {}).get("window_bytes")


@dataclass(frozen=True)
class Window:
    """What the sender on the slow edge did, over the runs of a cell: medians. Frames and bytes are the fabric's."""

    row: Row
    transport: str
    control: str
    window_bytes: float | None
    retransmitted: float | None
    repair_frames: float | None
    timeouts: float | None
    lost_frames: float
    queue_frames: float
    edge_bytes: float
    cpu_percent: float | None


def middle(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def windows_of(rows, settings):
    found = []
    for row in rows:
        for transport, one in row.measured.items():
            senders = [run["tcp"] or run["bypass"] or {} for run in one.runs]
            asked = "" if paths.is_tcp(transport) else dict(settings).get("GLOO_BYPASS_CONGESTION_CONTROL", "auto")
            control = senders[0].get("control") or asked
            cpu = middle([middle([rank["cpu_percent"] for rank in run["ranks"]]) for run in one.runs])
            found.append(
                Window(
                    row,
                    transport,
                    control,
                    middle([window_bytes_of(run) for run in one.runs]),
                    middle([retransmitted_of(run) for run in one.runs]),
                    middle([sender.get("repair_frames") for sender in senders]),
                    middle([sender.get("timeouts") for sender in senders]),
                    middle([run["fabric"]["slow"]["lost"] for run in one.runs]),
                    middle([run["fabric"]["slow"]["lost_in_queue"] for run in one.runs]),
                    middle([run["fabric"]["slow"]["delivered_bytes"] for run in one.runs]),
                    cpu,
                )
            )
    return found


def csv_lines(rows):
    """One line a cell and transport, for summary.csv."""
    lines = []
    for row in rows:
        for transport, one in row.measured.items():
            model = row.model[transport]
            lines.append(
                {
                    "variant": row.variant,
                    "loss_percent": row.loss_percent,
                    "segment": row.segment,
                    "transport": transport,
                    "median_s": one.median_s,
                    "p99_s": one.p99_s,
                    "runs": len(one.runs),
                    "samples": one.samples,
                    "schedule_s": model.schedule_s,
                    "completion": model.completion,
                    "floor_s": model.floor_s,
                    "repeated_s": model.repeated_s,
                    "ratio_to_schedule": row.lossless_ratio(transport),
                    "ratio_to_repeated": row.ratio(transport),
                    "ratio_to_floor": row.floor_ratio(transport),
                    "published_s": row.published_as,
                    "published_scaled_s": row.published_s,
                }
            )
    return lines
