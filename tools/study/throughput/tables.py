"""A stored run as Markdown. Pure."""

import statistics
from functools import partial

from gloo_bypass_tools.report import machine, marked_tables
from gloo_bypass_tools.report.results_chart import bold, markdown
from gloo_bypass_tools.study.throughput import cells

NOTICED = 0.99


def cell(run, link, what, baseline):
    """The median, and its share of the rate; bold: less than the all-reduce over TCP."""
    values = run.mbit_s.get((link.name, what))
    if not values:
        return "-"
    middle = statistics.median(values)
    share = f"{100 * middle / link.rate_mbit:.{1 if middle < 0.1 * link.rate_mbit else 0}f} %"
    return f"{bold(f'{middle:,.0f}', baseline is not None and middle < NOTICED * baseline)} ({share})"


def table(run):
    lines = []
    for link in run.links():
        first = run.mbit_s.get((link.name, cells.reduced(cells.REDUCERS[0])))
        baseline = statistics.median(first) if first else None
        compared = {cells.reduced(one): baseline for one in cells.REDUCERS[1:]}
        lines.append([link.title, *(cell(run, link, what, compared.get(what)) for what in cells.COLUMNS)])
    return markdown(["link", *cells.COLUMNS], lines)


def circumstances(run):
    left_out = "".join(f" Not measured: {what}: {why}." for what, why in run.left_out)
    told = machine.circumstances(run, f"TCP with {run.kernel_tcp['congestion_control']}", others_cores=run.others_cores)
    return f"Commit {run.commit[:7]}, {told}.{left_out}"


def renewed(text, run, place):
    makers = {"throughput": table, "circumstances": circumstances}
    return marked_tables.renewed(text, {name: partial(make, run) for name, make in makers.items()}, place)
