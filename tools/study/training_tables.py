"""Runs of training to the published tables: each figure as published, as measured over each transport, and by model.
Pure.

A published figure is computed from our capture and metrics by the same definition: medians and extremes over all events
of all runs, sums of an epoch from the mean of the runs. Where a run is not a whole epoch, sums and counts say nothing
and are left out.
"""

import statistics
from dataclasses import dataclass

from gloo_bypass_tools.common.samples import quantile
from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import edge_study, training, training_prediction, transports
from gloo_bypass_tools.study.tables import Target


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


STATISTICS = {
    "min": min,
    "max": max,
    "median": statistics.median,
    "p25": lambda values: quantile(values, 0.25),
    "p75": lambda values: quantile(values, 0.75),
    "mean": statistics.mean,
    "sum": statistics.mean,
    "count": statistics.mean,
    "epoch-mean": statistics.mean,
    "mean-below": statistics.mean,
    "level": statistics.median,
}


def samples_of(metric, runs, whole_epoch):
    """The samples that a figure is taken of, in bytes, seconds, bit/s, shares; empty where it was not measured."""
    events = [event for run in runs for event in run["capture"]["events"]]
    steps = [(step, reduce) for run in runs for step, reduce in zip(run["t_step_s"], run["t_ar_s"])]
    if metric == "allreduce_events":
        return [len(run["capture"]["events"]) for run in runs] if whole_epoch else []
    if metric in ("total_bytes", "total_duration"):
        return (
            [run["capture"]["total_bytes" if metric == "total_bytes" else "total_s"] for run in runs]
            if whole_epoch
            else []
        )
    ranks = [rank for run in runs for rank in run.get("ranks", ())]
    if metric == "tx_bytes":
        return (
            [run["capture"]["total_bytes"] / len(run["ranks"]) for run in runs if run.get("ranks")]
            if whole_epoch
            else []
        )
    found = {
        "cpu_utilization": lambda: [rank["cpu_percent"] / 100 for rank in ranks],
        "memory": lambda: [rank["peak_bytes"] for rank in ranks],
        "bytes_per_event": lambda: [event["bytes"] for event in events],
        "event_duration": lambda: [event["seconds"] for event in events],
        "th_peak": lambda: [8 * event["bytes"] / event["seconds"] for event in events],
        "th_avg_overall": lambda: [8 * run["capture"]["total_bytes"] / run["capture"]["total_s"] for run in runs],
        "t_step": lambda: [step for step, _ in steps],
        "t_ar": lambda: [reduce for _, reduce in steps],
        "oh_ar": lambda: [reduce / step for step, reduce in steps],
        "train_loss": lambda: [run["loss"] for run in runs] if whole_epoch else [],
    }.get(metric)
    return found() if found else []


# Of what has nothing published beside it: the events' and the steps' medians. Metric -> unit.
OWN_FIGURES = {"bytes_per_event": "MB", "event_duration": "s", "t_step": "s", "t_ar": "s", "oh_ar": "%"}


def runs_of(record_runs, variant, transport):
    return [run for run in record_runs if run["cell"] == {"variant": variant, "transport": transport}]


def base_of(record_runs, transport):
    """Of the run without limit, whose times are the processor's."""
    runs = runs_of(record_runs, edge_study.BASE, transport)
    return training_prediction.Base(
        *(
            statistics.median(samples) if (samples := samples_of(metric, runs, False)) else None
            for metric in ("t_ar", "t_step", "event_duration")
        )
    )


def sample_of(plan, variant, metric, statistic, transport, record_runs):
    """In bytes, seconds, bit/s, shares; None where it was not measured."""
    whole = training.steps_of(plan, variant) == variant.epoch_steps
    samples = samples_of(metric, runs_of(record_runs, variant.name, transport), whole)
    return STATISTICS[statistic](samples) if samples else None


def ratio_of(value, variant, first):
    """`value`(variant) over `value`(first); None where one is unknown."""
    top, bottom = value(variant), value(first)
    return top / bottom if top is not None and bottom else None


def model_of(plan, variant, metric, statistic, transport, record_runs):
    """Bytes of an event, and over one slow edge the medians of times: others are the processor's."""
    if metric == "bytes_per_event":
        return training.event_bytes(plan, variant, transport).frames
    if statistic != "median":
        return None
    return training_prediction.time_of(plan, variant, transport, metric, base_of(record_runs, transport))


def published_transports(plan):
    """Those that trained the published model."""
    return tuple(one for one in plan.transports if plan.model_over(one) == training.MODEL)


def rows_of(plan, study, record_runs):
    """Of the transports that trained the published model, figure by figure."""
    if not published_transports(plan):
        return []
    if study.flows:
        return flow_rows(plan, study, record_runs)
    rows = []
    for figure in measurements.read():
        if figure.study != study.published_name or figure.variant not in plan.variants:
            continue
        variant, metric = study.variant(figure.variant), figure.metric.removesuffix(measurements.RATIO)
        measured, model = {}, {}
        for transport in published_transports(plan):
            for found, source in ((measured, sample_of), (model, model_of)):

                def value(one):
                    return source(plan, one, metric, figure.statistic, transport, record_runs)

                made = (
                    value(variant)
                    if metric == figure.metric
                    else ratio_of(value, variant, study.variant(measurements.FIRST[figure.study]))
                )
                if made is not None:
                    found[transport] = made / measurements.UNITS[figure.unit]
        if measured:
            rows.append(
                Row(
                    figure.table,
                    figure.variant,
                    figure.metric,
                    figure.statistic,
                    figure.unit,
                    figure.value,
                    measured,
                    model,
                )
            )
    return rows


def is_published(study, variant):
    return bool(study.flows) or any(
        figure.study == study.published_name and figure.variant == variant.name for figure in measurements.read()
    )


def own_rows(plan, study, record_runs):
    """Of the transports that trained another model, and of variants of which nothing was published."""
    rows = []
    for variant in (study.variant(name) for name in plan.variants):
        published = published_transports(plan) if is_published(study, variant) else ()
        listed = [one for one in plan.transports if one not in published]
        for metric, name in OWN_FIGURES.items():
            unit, measured, model = measurements.UNITS[name], {}, {}
            for transport in listed:
                samples = samples_of(metric, runs_of(record_runs, variant.name, transport), False)
                if samples:
                    measured[transport] = statistics.median(samples) / unit
                made = model_of(plan, variant, metric, "median", transport, record_runs)
                if made is not None:
                    model[transport] = made / unit
            if measured:
                rows.append(Row("", variant.name, metric, "median", name, None, measured, model))
    return rows


def flow_rows(plan, study, record_runs):
    """Of figures whose variant is a direction, as 0->3 or rank0->rank1."""
    owners, rows = dict(study.flows), []
    for figure in measurements.read():
        name = owners.get(figure.study)
        if name not in plan.variants:
            continue
        variant, (start, end) = study.variant(name), ends_of(figure.variant)
        whole, unit = training.steps_of(plan, variant) == variant.epoch_steps, measurements.UNITS[figure.unit]
        metric, measured, model = figure.metric.removesuffix(measurements.RATIO), {}, {}
        for transport in published_transports(plan):

            def value(ends):
                values = [
                    one
                    for run in runs_of(record_runs, name, transport)
                    if (one := flow_figure(run, *ends, metric, figure.statistic, whole)) is not None
                ]
                return STATISTICS[figure.statistic](values) if values else None

            def made(ends):
                return training.event_bytes(plan, variant, transport).on_edge(variant.ranks, *ends)

            if metric != figure.metric:
                first = ends_of(measurements.FIRST[figure.study])
                found, expected = ratio_of(value, (start, end), first), ratio_of(made, (start, end), first)
            else:
                found, expected = value((start, end)), made((start, end))
            if found is not None:
                measured[transport] = found / unit
            if metric == "bytes_per_event":
                model[transport] = expected / unit
        if measured:
            rows.append(
                Row(
                    figure.table,
                    f"{name}, r{start}->r{end}",
                    figure.metric,
                    figure.statistic,
                    figure.unit,
                    figure.value,
                    measured,
                    model,
                )
            )
    return rows


def ends_of(direction):
    return tuple(int(one.removeprefix("rank")) for one in direction.split("->"))


# Of the capture's figures of a direction, each by step.
FLOW_FIGURES = {"bytes_per_event": "bytes", "event_duration": "duration_s", "th_peak": "th_peak_bit_s"}


def flow_figure(run, start, end, metric, statistic, whole_epoch):
    """In bytes, seconds, bit/s; None where it was not measured, and of totals where the run is not a whole epoch."""

    def is_it(edge):
        return (rank_at(edge["from"]), rank_at(edge["to"])) == (f"r{start}", f"r{end}")

    if metric in ("allreduce_events", "total_duration"):
        # A direction's last as long as the epoch, and each event has all of them.
        capture = run["capture"]
        return (len(capture["events"]) if metric == "allreduce_events" else capture["total_s"]) if whole_epoch else None
    if metric == "total_bytes":
        return (
            sum(edge["bytes"] for edges in run["capture"]["matrix"].values() for edge in edges if is_it(edge))
            if whole_epoch
            else None
        )
    found = next((edge for edge in run["capture"].get("directions", ()) if is_it(edge)), None)
    if found is None:
        return None
    return (
        found["th_avg_bit_s"] if metric == "th_avg_overall" else found["per_step"][FLOW_FIGURES[metric]].get(statistic)
    )


def flow_targets(plan, study, record_runs):
    """Two ranks: as much each way. Four: nearly all of it one way round."""
    found = []
    for name in plan.variants:
        ranks = study.variant(name).ranks
        for transport in plan.transports:
            runs = runs_of(record_runs, name, transport)
            there, back = (
                [
                    value
                    for run in runs
                    if (value := flow_figure(run, start, end, "bytes_per_event", "median", False)) is not None
                ]
                for start, end in ((1, 0), (0, 1))
            )
            if not there or not back:
                continue
            share = statistics.median(back) / statistics.median(there)
            if ranks == 2:
                found.append(
                    Target(
                        f"{name} over {transports.heading(plan, transport)}, r0 to r1 against r1 to r0",
                        "the same within 0.5 %",
                        f"{100 * (share - 1):+.2f} %",
                        abs(share - 1) <= training.BYTES_TOLERANCE,
                    )
                )
            else:
                found.append(
                    Target(
                        f"{name} over {transports.heading(plan, transport)}, against the ring's way",
                        "less than a tenth of what goes its way",
                        f"{100 * share:.2f} %",
                        share < 0.1,
                    )
                )
    return found


def targets_of(plan, study, record_runs):
    return [
        *(flow_targets(plan, study, record_runs) if study.flows else []),
        *slow_edge_targets(plan, study, record_runs),
        *byte_targets(plan, study, record_runs),
    ]


# Of what the edge and Gloo's schedule leave, beside the same computation: where the edge is far, and where it is slow.
FAR_FACTOR, SLOW_FACTOR = 1.25, 1.1


def slow_edge_targets(plan, study, record_runs):
    """T_ar over a slow edge against the model; a far edge over what keeps it busy, not TCP."""
    found = []
    for variant in (study.variant(name) for name in plan.variants):
        for transport in plan.transports:
            made = model_of(plan, variant, "t_ar", "median", transport, record_runs)
            samples = samples_of("t_ar", runs_of(record_runs, variant.name, transport), False)
            far = made is not None and variant.edge.delay_ms is not None
            if made is None or not samples or (far and transports.is_tcp(transport)):
                continue
            ratio, most = statistics.median(samples) / made, FAR_FACTOR if far else SLOW_FACTOR
            allowed = "what Gloo's schedule allows" if far else "serialisation"
            found.append(
                Target(
                    f"{variant.name} over {transports.heading(plan, transport)}, T_ar",
                    f"within {most:g} x of {allowed}, beside the computation",
                    f"{ratio:.2f} x",
                    ratio <= most,
                )
            )
    return found


def byte_targets(plan, study, record_runs):
    """Bytes per event against 2(N-1) S and headers: how far they are from what the model allows."""
    found = []
    for name in plan.variants:
        for transport in plan.transports:
            made = training.event_bytes(plan, study.variant(name), transport)
            samples = samples_of("bytes_per_event", runs_of(record_runs, name, transport), False)
            if not samples:
                continue
            median = statistics.median(samples)
            off = median / min(max(median, made.fewest), made.frames) - 1
            shares = [f"{100 * (one / made.payload - 1):.2f}" for one in (made.fewest, made.frames)]
            share = " to ".join(sorted(set(shares), key=float))
            again = repeated_share(runs_of(record_runs, name, transport))
            found.append(
                Target(
                    f"{name} over {transports.heading(plan, transport)}, bytes of an event",
                    f"within 0.5 % of 2(N-1) S and {share} % of headers",
                    f"{100 * off:+.2f} %{f' ({100 * again:.1f} % were sent again)' if again >= 0.001 else ''}",
                    abs(off) <= training.BYTES_TOLERANCE,
                )
            )
    return found


def repeated_share(runs):
    """Of the captured bytes: payload that had been sent before. Where the fabric lost nothing, needlessly."""
    kinds = [run["capture"]["bytes_by_kind"] for run in runs]
    repeated = sum(value for kind in kinds for name, value in kind.items() if name.endswith("_repeated"))
    return repeated / max(1.0, sum(value for kind in kinds for value in kind.values()))


def flows_of(plan, study, record_runs):
    """(variant, transport, phase, [(from, to, MB)]) of each cell's first run, the flow matrix as a list of what is not
    small. Between ranks alone: what a kernel sends to groups (IGMP) is in the capture too."""
    found = []
    for name in plan.variants:
        ranks = {f"r{rank}" for rank in range(study.variant(name).ranks)}
        for transport in plan.transports:
            for run in runs_of(record_runs, name, transport)[:1]:
                for phase in ("before", "training"):
                    listed = sorted(
                        (rank_at(edge["from"]), rank_at(edge["to"]), edge["bytes"] / 1e6)
                        for edge in run["capture"]["matrix"][phase]
                    )
                    found.append((name, transport, phase, [flow for flow in listed if ranks.issuperset(flow[:2])]))
    return found


def rank_at(address):
    """r1 of 10.77.0.3: the first rank has .2."""
    last = address.rpartition(".")[2]
    return f"r{int(last) - 2}" if last.isdigit() and int(last) >= 2 else address


def csv_lines(rows):
    return [
        {
            "table": row.table,
            "variant": row.variant,
            "metric": row.metric,
            "statistic": row.statistic,
            "unit": row.unit,
            "transport": transport,
            "published": row.published,
            "measured": value,
            "model": row.model.get(transport),
        }
        for row in rows
        for transport, value in row.measured.items()
    ]
