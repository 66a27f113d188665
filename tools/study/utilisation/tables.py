"""A stored run as Markdown: a table a place. Pure."""

from functools import partial

from gloo_bypass_tools.report import machine, marked_tables
from gloo_bypass_tools.report.results_chart import bold, markdown
from gloo_bypass_tools.study.utilisation import cells, stored
from gloo_bypass_tools.study.utilisation.cells import Cell


def percent(values):
    """The least and the most, where they are not the same."""
    low, high = (f"{100 * one:.{1 if one < 0.1 else 0}f}" for one in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def cell_text(run, cell, baseline):
    values = run.utilisations(cell)
    if not values:
        return "-"
    return bold(percent(values), baseline is not None and run.utilisation(cell) < 0.99 * baseline)


def table(run, place):
    """A line for each rate and method; bold: less than over the first transport."""
    transports = run.of("transport")
    lines = []
    for rate in run.of("rate_mbit"):
        for method in run.of("method"):
            row = [Cell(place, rate, transport, method) for transport in transports]
            if not any(run.utilisations(cell) for cell in row):
                continue
            first = run.utilisation(row[0])
            measured = [cell_text(run, cell, first) for cell in row]
            lines.append([f"{rate:g} Mbit/s", method, *measured, percent([stored.modelled(row[0])])])
    return markdown(["", "", *transports, "model"], lines)


def whole(run):
    found = [f"{cells.PLACES[place].title}\n\n{table(run, place)}" for place in run.of("place")]
    return "\n\n".join(found)


def circumstances(run):
    buffers = (f"{name} {values}" for name, values in run.kernel_tcp.items() if name != "congestion_control")
    tcp = f"TCP with {run.kernel_tcp['congestion_control']}", *buffers
    return f"Commit {run.commit[:7]}, {machine.circumstances(run, *tcp, others_cores=run.others_cores)}."


def renewed(text, run, place):
    """The page's text with its tables made again; those of times are named as their places."""
    makers = {name: partial(table, run, name) for name in cells.PLACES}
    return marked_tables.renewed(text, makers | {"circumstances": partial(circumstances, run)}, place)


def renew(path, run):
    marked_tables.renew(path, lambda text: renewed(text, run, path))
