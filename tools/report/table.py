"""The one table on the terminal."""

from rich.table import Table
from rich.text import Text

from gloo_bypass_tools.report import wording


def comparison_table(rows, transports, tails=True, doubted=None):
    """All rows by section. A ratio above 1 is better than the first transport. Without `tails` medians
    only. `doubted`: of a section, the transports about which it says little."""
    doubted = doubted or {}
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("median, and 99th percentile" if tails else "median", no_wrap=True)
    for transport in transports:
        table.add_column(wording.heading(transport), justify="right", no_wrap=True)
        if tails:
            table.add_column("p99", justify="right", no_wrap=True, style="dim", header_style="dim")
    for transport in transports[1:]:
        heading = f"{wording.heading(transport)} x" if len(transports) > 2 else "ratio"
        table.add_column(heading, justify="right", no_wrap=True)
    section = None
    for row in rows:
        if row.section != section:
            if section is not None:
                table.add_row()
            table.add_row(Text(row.section, style="bold"))
            section = row.section
        cells = [text for transport in transports for text in cell(row, transport)[: 2 if tails else 1]]
        cells += [ratio_cell(row, transport, transport in doubted.get(row.section, ())) for transport in transports[1:]]
        table.add_row("  " + wording.label(row), *cells)
    return table


def cell(row, transport):
    """The texts of the median and of the 99th percentile."""
    figure = row.figures.get(transport)
    if figure is None:
        return "-", ""
    return wording.number(figure.median, row.unit), wording.number(figure.tail, row.unit)


def ratio_cell(row, transport, is_doubted=False):
    one = row.ratios.get(transport)
    if one is None:
        return Text("")
    if is_doubted:
        return Text(f"({one.value:.2f}?)", style="yellow")
    style = "green" if one.value >= 1.02 else "red" if one.value < 0.98 else ""
    return Text(f"{one.value:.2f}", style=style)


def target_line(target):
    """A target beside what was measured, with its style."""
    style = {True: "green", False: "red", None: "yellow"}[target.met]
    said = f": {target.said}" if target.said else ""
    return f"{target.label}: {target.measured}; wanted {target.wanted}{said}", style


def verdict(same_bits, found):
    """One line on whether the parameters ended the same, with its style."""
    if same_bits is True:
        digest = next(iter(found.values()))[0]
        said = f"identical results: every rank of every run ended with parameters of SHA-256 {digest[:16]}..."
        return said, "bold green"
    if same_bits is False:
        each = "; ".join(
            f"{transport}: {', '.join(digest[:16] for digest in values)}" for transport, values in found.items()
        )
        return f"DIFFERENT results: SHA-256 of all parameters {each}", "bold red"
    return "", ""
