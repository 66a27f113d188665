"""scripts/model published: every published figure beside the model's, where the model says something."""

import argparse
from dataclasses import asdict
from pathlib import Path

from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.model import output, prediction, quantities

HELP = "the published figures beside the model"
DESCRIPTION = """The published figures of DDP over Gloo's TCP (docs/studies/published-measurements.csv) beside \
what the model says.
ratio = published / model.

  events         floor(400 / (batch x N))
  bytes          2(N-1) S with the headers of packets of up to 64 KiB (volume: TCP, offloaded); of an epoch: events x \
bytes and (N-1) S
  one slow edge  DistilGPT2's buckets through Gloo's ring over Gloo's TCP, two at a time (predict --study); from the \
run without limit come the
                 time of backward between first and last bucket, and the rest of the step
  TH, OH_ar      from other published figures, as their definitions say

Counts, sums, means and medians are shown; --all shows minima, maxima, quartiles and figures that the model says \
nothing about."""
SHOWN = ("count", "sum", "mean", "median")


def add_options(parser):
    parser.add_argument(
        "--table", action="append", metavar="T", help="one table only, as 5.17; may be given several times"
    )
    parser.add_argument(
        "--study", action="append", metavar="NAME", help="one study only, as edge-latency; may be given several times"
    )
    parser.add_argument("--all", action="store_true", help="every figure")
    parser.add_argument("--file", type=Path, default=measurements.PATH, help=argparse.SUPPRESS)


def chosen(options, figures):
    for flag, values, field in (("--table", options.table, "table"), ("--study", options.study, "study")):
        there = list(dict.fromkeys(getattr(figure, field) for figure in figures))
        for value in values or ():
            if value not in there:
                options.refuse(f"{flag} {value}: there are {', '.join(there)}")
    return [
        figure
        for figure in figures
        if (not options.table or figure.table in options.table) and (not options.study or figure.study in options.study)
    ]


def figure_table(number, rows):
    title = f"Table {number}" if number != "text" else "In the text"
    what = ("<study", "<variant", "<metric", "<", "unit")
    table = output.table(title, *what, "published", "model", "ratio", "<model: how")
    for figure, made in rows:
        cells = ["-", "", ""]
        if made is not None:
            value = f"{made.value:,.4g}" if made.value < 1000 else f"{made.value:,.1f}"
            cells = [value, f"{figure.value / made.value:.4f}" if made.value else "-", made.how]
        published = f"{figure.value:,g}" if figure.value < 1e5 else f"{figure.value:,.0f}"
        output.add_row(table, *figure.key[1:], figure.unit, published, *cells)
    return table


def ratio_table():
    table = output.table("What changes by how much", "<", "published", "model", "<model: how")
    for one in prediction.ratios():
        output.add_row(table, one.label, f"{one.published:.3f}", f"{one.model:.3f}", one.how)
    return table


def summary_line(rows):
    """How far bytes and edge times are off."""
    parts = []
    medians = [(figure, made) for figure, made in rows if figure.statistic == "median" and "->" not in figure.variant]
    for name, metric in (("bytes per event", "bytes_per_event"), ("slow edges' event duration", "event_duration")):
        off = [
            figure.value / made.value - 1 for figure, made in medians if figure.metric == metric and made and made.value
        ]
        if off:
            low, high = (quantities.percent(one, 2) for one in (min(off), max(off)))
            parts.append(f"{name}: published / model - 1 from {low} to {high}")
    return "; ".join(parts)


def as_record(figure, made):
    value = made and made.value
    ratio = figure.value / value if value else None
    return asdict(figure) | {"model": value, "ratio": ratio, "how": made and made.how}


def run(options):
    figures = chosen(options, measurements.read(options.file))
    rows = [(figure, prediction.predict(figure)) for figure in figures]
    shown = [row for row in rows if options.all or row[0].statistic in SHOWN and row[1] is not None]
    whole = not options.table and not options.study
    record = {
        "schema": "gloo-bypass/model-published/1",
        "source": "docs/studies/published-measurements.csv",
        "figures": [as_record(figure, made) for figure, made in rows],
        "ratios": [asdict(one) for one in prediction.ratios()],
    }
    numbers = list(dict.fromkeys(figure.table for figure, _ in shown))
    tables = [figure_table(number, [row for row in shown if row[0].table == number]) for number in numbers]
    said = summary_line(rows)
    left_out = len(rows) - len(shown)
    lines = ([said] if said else []) + ([f"{left_out} figures are not shown; --all shows them"] if left_out else [])
    output.finish(options, record, tables + ([ratio_table()] if whole else []), lines)
    return 0
