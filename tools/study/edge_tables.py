"""The tables of an all-reduce over one slow edge: published, measured and modelled times of each cell, the senders'
windows, the shares of TCP's time, and the targets. Pure.

A sample is one all-reduce, from a barrier to the end of its slowest rank; figures are over the samples of all runs.
With as few as a study takes, the 99th percentile is the slowest.
"""

import math
import statistics
from dataclasses import dataclass

from gloo_bypass_tools.model import prediction as published_prediction
from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import attribution, definition, prediction
from gloo_bypass_tools.study import transports as paths
from gloo_bypass_tools.study.plan import Cell
from gloo_bypass_tools.study.tables import median, quotient


@dataclass(frozen=True)
class Measured:
    """Seconds, over all runs of a cell; `runs` are their records."""

    median_s: float
    p99_s: float
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

    def median_s(self, transport):
        return self.measured[transport].median_s if transport in self.measured else None

    def ratio(self, transport):
        """Measured / model's schedule, losses included."""
        return quotient(self.median_s(transport), self.model[transport].repeated_s)

    def lossless_ratio(self, transport):
        """Measured / model's schedule without loss."""
        return quotient(self.median_s(transport), self.model[transport].schedule_s)

    def floor_ratio(self, transport):
        return quotient(self.median_s(transport), self.model[transport].floor_s)

    def times_faster(self, transport, baseline):
        return quotient(self.median_s(baseline), self.median_s(transport))


def measured_of(runs):
    samples = sorted(one for run in runs for one in run["times_s"])
    nearest = samples[math.ceil(0.99 * len(samples)) - 1]
    return Measured(statistics.median(samples), nearest, len(samples), tuple(runs))


def published_of(study, variant, plan):
    """Published T_ar of this edge, in training of DistilGPT2 with 4 ranks; None where there is none."""
    if plan.ranks != study.ranks:
        return None
    try:
        return measurements.published(study.table, study.name, variant, "t_ar", "median")
    except measurements.PublishedError:
        return None


def rows_of(plan, study, runs):
    """In the order of the plan; a row without any run is left out."""
    by_cell, rows = {}, []
    for run in runs:
        by_cell.setdefault(Cell(**run["cell"]), []).append(run)
    places = [(name, loss, segment) for name in plan.variants for loss in plan.losses for segment in plan.segments]
    for name, loss, segment in places:
        listed = [Cell(name, transport, segment, loss) for transport in plan.transports]
        measured = {cell.transport: measured_of(by_cell[cell]) for cell in listed if cell in by_cell}
        if not measured:
            continue
        model = {cell.transport: prediction.model_of(plan, study, cell) for cell in listed}
        published = published_of(study, name, plan) if segment == "default" and not loss else None
        scaled = None if published is None else published * plan.bytes / definition.PUBLISHED_BYTES
        rows.append(Row(name, study.variant(name).label, loss, segment, measured, model, scaled, published))
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


def targets_of(plan, study, rows):
    """The project's targets, of the variants that were asked for."""
    return study.targets(plan, study, rows) if rows and plan.ranks == study.ranks else []


def shares_of(plan, study, rows):
    """The shares of TCP's time for each far edge without loss, beside the first other transport."""
    other = next((one for one in plan.transports if not paths.is_tcp(one) and paths.is_beside(plan, one, "TCP")), None)
    if other is None or "TCP" not in plan.transports or not study.shares:
        return []

    def median_s(variant, transport, segment="default"):
        row = row_at(rows, variant, segment)
        return row and row.median_s(transport)

    published_base, found = published_of(study, definition.BASE, plan), []
    for variant in (name for name in plan.variants if name != definition.BASE):
        measured = (
            median_s(variant, "TCP"),
            median_s(variant, other),
            median_s(variant, other, "two"),
            median_s(definition.BASE, "TCP"),
        )
        growth = quotient(published_of(study, variant, plan), published_base), modelled_growth(study, variant, plan)
        found.append(attribution.shares_of(study.variant(variant).label, *measured, *growth))
    return [one for one in found if one is not None]


def modelled_growth(study, variant, plan):
    """Of the published T_ar: buckets against backward, over Gloo's TCP."""
    if plan.ranks != study.ranks:
        return None
    figure = measurements.figure(study.table, study.name, variant, "t_ar", "median")
    made, base = published_prediction.predict(figure), published_of(study, definition.BASE, plan)
    return made.value * measurements.UNITS[figure.unit] / base if made else None


def window_bytes_of(run):
    """The congestion window at its largest as it was seen; of a bypass transport, at the end."""
    if tcp := run["tcp"]:
        return tcp["cwnd_max"] * tcp["mss"] if tcp.get("cwnd_max") and tcp.get("mss") else None
    return (run["bypass"] or {}).get("window_bytes")


@dataclass(frozen=True, kw_only=True)
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


def window_of(row, transport, runs, settings):
    senders, edges = [run["tcp"] or run["bypass"] or {} for run in runs], [run["fabric"]["slow"] for run in runs]
    asked = "" if paths.is_tcp(transport) else dict(settings).get("GLOO_BYPASS_CONGESTION_CONTROL", "auto")
    return Window(
        row=row,
        transport=transport,
        control=senders[0].get("control") or asked,
        window_bytes=median(map(window_bytes_of, runs)),
        **{key: median(one.get(key) for one in senders) for key in ("retransmitted", "repair_frames", "timeouts")},
        lost_frames=median(edge["lost"] for edge in edges),
        queue_frames=median(edge["lost_in_queue"] for edge in edges),
        edge_bytes=median(edge["delivered_bytes"] for edge in edges),
        cpu_percent=median(median(rank["cpu_percent"] for rank in run["ranks"]) for run in runs),
    )


def windows_of(rows, settings):
    return [window_of(row, transport, one.runs, settings) for row in rows for transport, one in row.measured.items()]


def csv_lines(rows):
    """One line a cell and transport, for summary.csv."""
    return [
        {
            "variant": row.variant,
            "loss_percent": row.loss_percent,
            "segment": row.segment,
            "transport": transport,
            "median_s": one.median_s,
            "p99_s": one.p99_s,
            "runs": len(one.runs),
            "samples": one.samples,
            **{
                key: getattr(row.model[transport], key) for key in ("schedule_s", "completion", "floor_s", "repeated_s")
            },
            "ratio_to_schedule": row.lossless_ratio(transport),
            "ratio_to_repeated": row.ratio(transport),
            "ratio_to_floor": row.floor_ratio(transport),
            "published_s": row.published_as,
            "published_scaled_s": row.published_s,
        }
        for row in rows
        for transport, one in row.measured.items()
    ]
