"""Kept runs as Markdown: a table a study, all its runs side by side, and below it what was run where. Pure."""

import statistics
from functools import partial

from gloo_bypass_tools.report import machine, marked_tables
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.results_chart import bold, markdown
from gloo_bypass_tools.report.wording import duration, heading, number
from gloo_bypass_tools.study import catalogue, definition, sweep_tables, training_tables

# Of training's lines: medians of steps and events, and what an epoch has. The published figures have a page with all.
SHOWN = {
    "t_step": "median",
    "t_ar": "median",
    "oh_ar": "median",
    "event_duration": "median",
    "bytes_per_event": "median",
    "total_duration": "sum",
    "total_bytes": "sum",
    "th_peak": "median",
}
OF_FLOWS, OF_ALL = ("bytes_per_event", "th_peak", "total_bytes"), tuple(SHOWN)[:-1]
FLOW, FLOWS = "->", "-flows"
SLOWER_IS_MORE = ("t_step", "t_ar", "t_exposed", "time", "event_duration", "total_duration", "lost_time")
SLOWER_IS_LESS = ("busbw", "samples_per_s", "efficiency", "computing")
# Runs differ by as much.
NOTICED = 1.01


def is_slower(metric, value, baseline):
    if metric in SLOWER_IS_LESS:
        return value * NOTICED < baseline
    return metric in SLOWER_IS_MORE and value > NOTICED * baseline


def label_of(study, metric):
    if study.layout == definition.SWEEP and metric in sweep_tables.QUANTITIES:
        return sweep_tables.QUANTITIES[metric].label
    return training_tables.METRICS.get(metric, metric)


def shown(study, line, of_flows):
    if study.layout != definition.PUBLISHED:
        return line.statistic == "median"
    if (FLOW in line.variant) != of_flows:
        return False
    return line.metric in (OF_FLOWS if of_flows else OF_ALL) and SHOWN[line.metric] == line.statistic


def by_figure(study, runs, of_flows=False):
    """{(variant, metric, statistic): {transport: a line for each run, None where it has none}}; of the published tables
    that a figure stands in, the first."""
    found, tables = {}, {}
    for at, run in enumerate(runs):
        for line in run.lines:
            if not shown(study, line, of_flows):
                continue
            key = line.figure[1:]
            if tables.setdefault(key, line.table) == line.table:
                found.setdefault(key, {}).setdefault(line.transport, [None] * len(runs))[at] = line
    return found


def known(lines):
    return [line for line in lines if line is not None]


def median_of(lines):
    return statistics.median(line.measured for line in known(lines))


# What steps take is published in milliseconds.
IN_SECONDS = {"ms": 1e-3}


def in_words(values, unit):
    """Values of one unit, as '4.83; 12.9 s'; None: a dash."""
    factor = IN_SECONDS.get(unit, 1.0)
    text = "; ".join("-" if one is None else number(factor * one) for one in values)
    shown_unit = "s" if unit in IN_SECONDS else unit
    return text if shown_unit in ("", "1") else f"{text} {shown_unit}"


def cell(lines, baseline):
    """All runs' values; in brackets the middle one of what each is times its model."""
    if not lines:
        return "-"
    first, value = known(lines)[0], median_of(lines)
    ratios = [line.measured / line.model for line in known(lines) if line.model]
    text = in_words([line and line.measured for line in lines], first.unit)
    slower = baseline is not None and is_slower(first.metric, value, baseline)
    return bold(text, slower) + (f" ({statistics.median(ratios):.3f})" if ratios else "")


def transports_of(runs):
    return list(dict.fromkeys(line.transport for run in runs for line in run.lines))


def table(study, runs, of_flows=False):
    """A line for each figure, in the order of the metrics; bold: slower than over the first transport."""
    transports, rows = transports_of(runs), []
    for (variant, metric, _), measured in by_figure(study, runs, of_flows).items():
        lines = [line for each in measured.values() for line in known(each)]
        published = "" if lines[0].published is None else in_words([lines[0].published], lines[0].unit)
        first = measured.get(transports[0])
        cells = [cell(measured.get(one, ()), first and median_of(first)) for one in transports]
        rows.append((metric, variant, [label_of(study, metric), variant, published, *cells]))
    metrics = list(SHOWN) if study.layout == definition.PUBLISHED else list(dict.fromkeys(row[0] for row in rows))
    points = {point.name: at for at, point in enumerate(study.variants)}
    rows.sort(key=lambda row: (metrics.index(row[0]), points.get(row[1], 0)))
    return markdown(["", "", "published", *map(heading, transports)], [cells for *_, cells in rows])


def other_settings(runs):
    """For each run what its environment has otherwise than another one's, such as OMP_NUM_THREADS=2."""
    differing = sorted(
        {
            name
            for run in runs
            for name in run.environment
            for other in runs
            if other.environment.get(name) != run.environment[name]
        }
    )
    return [[f"{name}={run.environment[name]}" for name in differing if name in run.environment] for run in runs]


def circumstances(run):
    left_out = "".join(f"; not measured: {what}: {why}" for what, why in run.left_out)
    told = machine.circumstances(run, duration(run.seconds))
    return f"`{run.command}`, commit {run.commit[:7]}, {told}{left_out}"


def section(study, runs, of_flows=False):
    """The table, and a line for each run below it."""
    told = ["; ".join([circumstances(run), *settings]) for run, settings in zip(runs, other_settings(runs))]
    if len(told) > 1:
        told = [f"{at}. {one}" for at, one in enumerate(told, 1)]
    return "\n\n".join([table(study, runs, of_flows), "\n".join(told)])


# Of the table at a glance: a study's medians of a metric at some variants, and what these are called.
GLANCE = {
    "edge-latency": (
        "t_ar",
        {
            "300ms, segments 1 MiB": "all-reduce, 4 ranks, one edge of 300 ms",
            "300ms, 1 % lost, segments 1 MiB": "with 1 % lost",
        },
    ),
    "edge-bandwidth": ("t_ar", {"50Mbit, segments 1 MiB": "all-reduce, 4 ranks, one edge of 50 Mbit/s"}),
    "edge-latency-training": ("t_step", {"300ms": "step, 4 ranks, one edge of 300 ms"}),
    "edge-bandwidth-training": ("t_step", {"50Mbit": "step, 4 ranks, one edge of 50 Mbit/s"}),
    "world-size": ("t_step", {"ws=2": "step, 2 ranks", "ws=4": "4 ranks"}),
    "barrier": ("t_step", {"barrier": "step with a barrier, 2 ranks"}),
    "batch-size": ("t_step", {"bs=16": "step, 2 ranks, 16 samples each"}),
    "precision": ("t_step", {"fp64": "step, 2 ranks, fp64"}),
    "strong-scaling": ("t_step", {"ws=2": "step, 2 ranks, 24 samples in all", "ws=4": "4 ranks"}),
    "weak-scaling": ("t_step", {"ws=2": "step, 2 ranks, 8 samples each", "ws=4": "4 ranks"}),
    "stragglers": ("t_step", {"0.5": "step, 2 ranks, one has half a core", "0.25": "a quarter"}),
    "algorithm": ("time", {"ring-64KiB": "all-reduce of 64 KiB, 4 ranks, 5 ms each way, ring", "bcube-64KiB": "bcube"}),
    "flap": (
        "lost_time",
        {"200ms": "time lost in training of the tiny model, 2 ranks, link down for 0.2 s", "1000ms": "1 s"},
    ),
    "loss": ("time", {"random-1": "all-reduce, 4 ranks, 5 ms each way, 1 % lost", "random-5": "5 %"}),
    "bucket": ("t_step", {"1MiB": "step, 2 ranks, 1 MiB", "500MiB": "500 MiB"}),
}


def glance(kept):
    """A line for each kept study: the runs' medians. Bold: slower than over the first transport at all variants."""
    transports, lines = list(dict.fromkeys(one for runs in kept.values() for one in transports_of(runs))), []
    for name, (metric, variants) in GLANCE.items():
        found = by_figure(catalogue.STUDIES[name], kept.get(name, ()))
        each = [found.get((variant, metric, "median"), {}) for variant in variants]
        if not any(each):
            continue
        unit = next(line.unit for measured in each for listed in measured.values() for line in known(listed))

        def values(transport):
            return [median_of(measured[transport]) if transport in measured else None for measured in each]

        first = values(transports[0])
        cells = []
        for transport in transports:
            own = values(transport)
            pairs = [(one, other) for one, other in zip(own, first) if one is not None and other is not None]
            slower = bool(pairs) and all(is_slower(metric, *pair) for pair in pairs)
            cells.append(bold(in_words(own, unit), slower) if any(one is not None for one in own) else "-")
        published = [known(next(iter(measured.values())))[0].published for measured in each if measured]
        there = in_words(published, unit) if any(one is not None for one in published) else ""
        lines.append([f"[{name}](results.md#{name})", "; ".join(variants.values()), there, *cells])
    return markdown(["study", "measured", "published", *map(heading, transports)], lines)


def makers(kept):
    """{name of a table of the results: function that makes it}"""
    made = {}
    for name, runs in kept.items():
        study = catalogue.STUDIES[name]
        made[name] = partial(section, study, runs)
        if study.flows:
            made[name + FLOWS] = partial(table, study, runs, of_flows=True)
    return made


def renewed(text, kept, place):
    """The results' text with the tables of these studies made again. RecordError where the page lacks one's."""
    made = makers(kept)
    if missing := sorted(set(made) - set(marked_tables.names_of(text))):
        raise RecordError(f"{place}: no place for the table of '{missing[0]}': <!-- table: {missing[0]} -->")
    return marked_tables.renewed(text, made, place)


def renewed_glance(text, kept, place):
    return marked_tables.renewed(text, {"glance": partial(glance, kept)}, place)
