"""The published tables of training: each figure as published, as measured over each transport, and by model. Pure.

A published figure is computed from our capture and metrics by the same definition: medians and extremes over all events
of all runs, sums of an epoch from the mean of the runs. Where a run is not a whole epoch, sums and counts say nothing
and are left out.
"""

from dataclasses import dataclass

from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import definition, training_prediction, transports
from gloo_bypass_tools.study.plan import steps_of
from gloo_bypass_tools.study.tables import STATISTICS, Target, median, quotient, runs_of


@dataclass(frozen=True)
class Row:
    """A figure of the published file; `measured` and `model` by transport, in the published unit. Of another model than
    the published: `published` is None."""

    table: str
    variant: str
    metric: str
    statistic: str
    unit: str
    published: float | None
    measured: dict
    model: dict


# Metric of the published file -> what the page calls it.
METRICS = {
    "allreduce_events": "events",
    "total_bytes": "bytes in all",
    "total_duration": "duration in all",
    "th_avg_overall": "TH_avg",
    "bytes_per_event": "bytes of an event",
    "event_duration": "duration of an event",
    "th_peak": "TH_peak of an event",
    "t_step": "T_step",
    "t_ar": "T_ar",
    "oh_ar": "OH_ar",
    "train_loss": "loss",
    "cpu_utilization": "processor of a rank",
    "memory": "memory of a rank",
    "tx_bytes": "bytes sent by a rank",
}
# Of what has nothing published beside it: the events' and the steps' medians. Metric -> unit.
OWN_FIGURES = {"bytes_per_event": "MB", "event_duration": "s", "t_step": "s", "t_ar": "s", "oh_ar": "%"}
# Metric -> its samples of one run, in bytes, seconds, bit/s, shares.
SAMPLES = {
    "cpu_utilization": lambda run: [rank["cpu_percent"] / 100 for rank in run.get("ranks", ())],
    "memory": lambda run: [rank["peak_bytes"] for rank in run.get("ranks", ())],
    "bytes_per_event": lambda run: [event["bytes"] for event in run["capture"]["events"]],
    "event_duration": lambda run: [event["seconds"] for event in run["capture"]["events"]],
    "th_peak": lambda run: [8 * event["bytes"] / event["seconds"] for event in run["capture"]["events"]],
    "th_avg_overall": lambda run: [8 * run["capture"]["total_bytes"] / run["capture"]["total_s"]],
    "t_step": lambda run: run["t_step_s"],
    "t_ar": lambda run: run["t_ar_s"],
    "oh_ar": lambda run: [reduce_s / step_s for step_s, reduce_s in zip(run["t_step_s"], run["t_ar_s"])],
}
# The same of what only a whole epoch has.
EPOCH_SAMPLES = {
    "allreduce_events": lambda run: [len(run["capture"]["events"])],
    "total_bytes": lambda run: [run["capture"]["total_bytes"]],
    "total_duration": lambda run: [run["capture"]["total_s"]],
    "tx_bytes": lambda run: [run["capture"]["total_bytes"] / len(run["ranks"])] if run.get("ranks") else [],
    "train_loss": lambda run: [run["loss"]],
}


def samples_of(metric, runs, whole_epoch=False):
    """The samples that a figure is taken of; empty where it was not measured."""
    known = SAMPLES | EPOCH_SAMPLES if whole_epoch else SAMPLES
    return [sample for run in runs for sample in known[metric](run)] if metric in known else []


def is_whole(plan, point):
    return steps_of(plan, point) == point.epoch_steps


def sample_of(plan, point, metric, statistic, transport, record_runs):
    """In bytes, seconds, bit/s, shares; None where it was not measured."""
    samples = samples_of(metric, runs_of(record_runs, point.name, transport), is_whole(plan, point))
    return STATISTICS[statistic](samples) if samples else None


def model_of(plan, point, metric, statistic, transport, record_runs):
    """Bytes of an event, and over one slow edge the medians of times: others are the processor's."""
    if metric == "bytes_per_event":
        return training_prediction.event_bytes(plan, point, transport).frames
    if statistic != "median":
        return None
    runs = runs_of(record_runs, definition.BASE, transport)  # without limit, so that their times are the processor's
    found = {key: median(samples_of(key, runs)) for key in ("t_ar", "t_step", "event_duration")}
    base = {key: value for key, value in found.items() if value is not None}
    return training_prediction.time_of(plan, point, transport, metric, base)


def published_transports(plan):
    """Those that trained the published model."""
    return tuple(one for one in plan.transports if plan.model_over(one) == definition.MODEL)


def row_of(figure, label, listed, measured, model):
    """Of these transports; None where nothing was measured. `measured`, `model`: (transport, a variant of the published
    file) -> bytes, seconds, bit/s, share, or None. A ratio is that of the variant and the first one."""

    def values(source):
        found = {one: source(one, figure.variant) for one in listed}
        if figure.metric.endswith(measurements.RATIO):
            first = measurements.FIRST[figure.study]
            found = {one: quotient(value, source(one, first)) for one, value in found.items()}
        return {one: value / measurements.UNITS[figure.unit] for one, value in found.items() if value is not None}

    if by_transport := values(measured):
        told = (figure.metric, figure.statistic, figure.unit, figure.value)
        return Row(figure.table, label, *told, by_transport, values(model))
    return None


def variant_row(plan, study, record_runs, figure, listed):
    wanted = figure.metric.removesuffix(measurements.RATIO), figure.statistic

    def measured(transport, name):
        return sample_of(plan, study.variant(name), *wanted, transport, record_runs)

    def model(transport, name):
        return model_of(plan, study.variant(name), *wanted, transport, record_runs)

    return row_of(figure, figure.variant, listed, measured, model)


def flow_row(plan, study, record_runs, figure, listed):
    """Of a figure of a direction, as 0->3 or rank0->rank1."""
    point, metric = study.variant(dict(study.flows)[figure.study]), figure.metric.removesuffix(measurements.RATIO)

    def measured(transport, direction):
        runs, whole = runs_of(record_runs, point.name, transport), is_whole(plan, point)
        values = [flow_figure(run, *ends_of(direction), metric, figure.statistic, whole) for run in runs]
        known = [value for value in values if value is not None]
        return STATISTICS[figure.statistic](known) if known else None

    def model(transport, direction):
        made = training_prediction.event_bytes(plan, point, transport)
        return made.on_edge(point.ranks, *ends_of(direction)) if metric == "bytes_per_event" else None

    return row_of(figure, flow_label(point.name, figure.variant), listed, measured, model)


def rows_of(plan, study, record_runs):
    """Of the transports that trained the published model, figure by figure."""
    listed, owners, rows = published_transports(plan), dict(study.flows), []
    for figure in measurements.read() if listed else ():
        if figure.study == study.published_name and figure.variant in plan.variants:
            rows.append(variant_row(plan, study, record_runs, figure, listed))
        elif owners.get(figure.study) in plan.variants:
            rows.append(flow_row(plan, study, record_runs, figure, listed))
    return [row for row in rows if row is not None]


def is_published(study, point):
    wanted = study.published_name, point.name
    return any((one.study, one.variant) == wanted for one in measurements.read())


def own_rows(plan, study, record_runs):
    """Of the transports that trained another model, and of variants without published figures."""
    rows = []
    for point in (study.variant(name) for name in plan.variants):
        published = published_transports(plan) if is_published(study, point) else ()
        listed = [one for one in plan.transports if one not in published]
        for metric, unit in OWN_FIGURES.items():
            figure = measurements.Figure("", study.name, point.name, metric, "median", unit, None)
            rows.append(variant_row(plan, study, record_runs, figure, listed))
    return [row for row in rows if row is not None]


def flow_label(point, direction):
    """What a direction of a point is called in tables: ws=4, r0->r3."""
    start, end = ends_of(direction)
    return f"{point}, r{start}->r{end}"


def ends_of(direction):
    return tuple(int(one.removeprefix("rank")) for one in direction.split("->"))


# Of the capture's figures of a direction, each by step.
FLOW_FIGURES = {"bytes_per_event": "bytes", "event_duration": "duration_s", "th_peak": "th_peak_bit_s"}


def flow_figure(run, start, end, metric, statistic, whole_epoch):
    """In bytes, seconds, bit/s; None where it was not measured, and of totals where the run is not a whole epoch."""

    def is_it(edge):
        return (rank_at(edge["from"]), rank_at(edge["to"])) == (f"r{start}", f"r{end}")

    if metric in EPOCH_SAMPLES and not whole_epoch:
        return None
    if metric in ("allreduce_events", "total_duration"):
        # A direction's last as long as the epoch, and each event has all of them.
        return EPOCH_SAMPLES[metric](run)[0]
    if metric == "total_bytes":
        return sum(edge["bytes"] for edges in run["capture"]["matrix"].values() for edge in edges if is_it(edge))
    found = next((edge for edge in run["capture"].get("directions", ()) if is_it(edge)), None)
    if found is None:
        return None
    if metric == "th_avg_overall":
        return found["th_avg_bit_s"]
    return found["per_step"][FLOW_FIGURES[metric]].get(statistic)


def targets_of(plan, study, record_runs):
    flows = (flow_targets,) if study.flows else ()
    return [
        target for targets in (*flows, slow_edge_targets, byte_targets) for target in targets(plan, study, record_runs)
    ]


def measured_cells(plan, study, record_runs):
    """(point, transport, what both are called, runs)."""
    for point in (study.variant(name) for name in plan.variants):
        for transport in plan.transports:
            label = f"{point.name} over {transports.heading(plan, transport)}"
            if runs := runs_of(record_runs, point.name, transport):
                yield point, transport, label, runs


def flow_targets(plan, study, record_runs):
    """Two ranks: as much each way. Four: nearly all of it one way round."""
    found = []
    for point, _, label, runs in measured_cells(plan, study, record_runs):
        wanted = ("bytes_per_event", "median", False)
        there, back = (median(flow_figure(run, *ends, *wanted) for run in runs) for ends in ((1, 0), (0, 1)))
        share = quotient(back, there)
        if share is None:
            continue
        if point.ranks == 2:
            label, wanted = f"{label}, r0 to r1 against r1 to r0", "the same within 0.5 %"
            measured, met = f"{100 * (share - 1):+.2f} %", is_within(share - 1)
        else:
            label, wanted = f"{label}, against the ring's way", "less than a tenth of what goes its way"
            measured, met = f"{100 * share:.2f} %", share < 0.1
        found.append(Target(label, wanted, measured, met))
    return found


def is_within(off):
    return abs(off) <= training_prediction.BYTES_TOLERANCE


# Of what the edge and Gloo's schedule leave, beside the same computation: where the edge is far, and where it is slow.
FAR_FACTOR, SLOW_FACTOR = 1.25, 1.1


def slow_edge_targets(plan, study, record_runs):
    """T_ar over a slow edge against the model; a far edge over what keeps it busy, not TCP."""
    found = []
    for point, transport, label, runs in measured_cells(plan, study, record_runs):
        made, far = model_of(plan, point, "t_ar", "median", transport, record_runs), point.edge.delay_ms is not None
        ratio, most = quotient(median(samples_of("t_ar", runs)), made), FAR_FACTOR if far else SLOW_FACTOR
        if ratio is None or (far and transports.is_tcp(transport)):
            continue
        allowed = "what Gloo's schedule allows" if far else "serialisation"
        wanted = f"within {most:g} x of {allowed}, beside the computation"
        found.append(Target(f"{label}, T_ar", wanted, f"{ratio:.2f} x", ratio <= most))
    return found


def byte_targets(plan, study, record_runs):
    """Bytes per event against 2(N-1) S and headers: how far they are from what the model allows."""
    found = []
    for point, transport, label, runs in measured_cells(plan, study, record_runs):
        made = training_prediction.event_bytes(plan, point, transport)
        middle = median(samples_of("bytes_per_event", runs))
        if middle is None:
            continue
        off = middle / min(max(middle, made.fewest), made.frames) - 1
        shares = {f"{100 * (one / made.payload - 1):.2f}" for one in (made.fewest, made.frames)}
        wanted = f"within 0.5 % of 2(N-1) S and {' to '.join(sorted(shares, key=float))} % of headers"
        again = repeated_share(runs)
        repeated = f" ({100 * again:.1f} % were sent again)" if again >= 0.001 else ""
        found.append(Target(f"{label}, bytes of an event", wanted, f"{100 * off:+.2f} %{repeated}", is_within(off)))
    return found


def repeated_bytes(run):
    """Payload that had been sent before. Where the fabric lost nothing, needlessly."""
    return sum(value for name, value in run["capture"]["bytes_by_kind"].items() if name.endswith("_repeated"))


def repeated_share(runs):
    """Of the captured bytes."""
    captured = sum(value for run in runs for value in run["capture"]["bytes_by_kind"].values())
    return sum(map(repeated_bytes, runs)) / max(1.0, captured)


def flows_of(plan, study, record_runs):
    """(variant, transport, phase, [(from, to, MB)]) of each cell's first run, the flow matrix as a list of what is not
    small. Between ranks alone: what a kernel sends to groups (IGMP) is in the capture too."""
    found = []
    for point, transport, _, (run, *_) in measured_cells(plan, study, record_runs):
        ranks = {f"r{rank}" for rank in range(point.ranks)}
        for phase in ("before", "training"):
            edges = run["capture"]["matrix"][phase]
            listed = sorted((rank_at(edge["from"]), rank_at(edge["to"]), edge["bytes"] / 1e6) for edge in edges)
            found.append((point.name, transport, phase, [flow for flow in listed if ranks.issuperset(flow[:2])]))
    return found


def rank_at(address):
    """r1 of 10.77.0.3: the first rank has .2."""
    last = address.rpartition(".")[2]
    return f"r{int(last) - 2}" if last.isdigit() and int(last) >= 2 else address


def same_bits(plan, runs):
    """Variant -> whether all runs over all transports ended with the same parameters. Of another machine, with another
    model too, the parameters are others."""
    found = {}
    here = [one for one in plan.transports if one not in plan.guest]
    for name in plan.variants:
        for place, listed in (("", here), (", in the guest", plan.guest)):
            of_place = [run for run in runs if run["cell"]["variant"] == name and run["cell"]["transport"] in listed]
            if len({run["cell"]["transport"] for run in of_place}) > 1:
                found[name + place] = len({run["sha256"] for run in of_place}) == 1
    return found


def csv_lines(rows):
    return [
        {
            **{key: getattr(row, key) for key in ("table", "variant", "metric", "statistic", "unit")},
            "transport": transport,
            "published": row.published,
            "measured": value,
            "model": row.model.get(transport),
        }
        for row in rows
        for transport, value in row.measured.items()
    ]
