"""Tables of README.md and docs/ that are made of stored runs (marked_tables.py).

docs/results.json is the run over all links that the picture is drawn from; docs/runs/links-*.json are others, of slow
hours say, and docs/runs/programs-*.json are those of scripts/compare-programs, one for each machine and state. A table
for which nothing is stored is left as it is.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gloo_bypass_tools.common.failures import Failure, exit_status
from gloo_bypass_tools.report import (
    marked_tables,
    memory_rates,
    program_tables,
    results_chart,
    stored_programs,
    stored_run,
)
from gloo_bypass_tools.report.program_tables import spanned
from gloo_bypass_tools.report.results_chart import bold, markdown, ratio_label, size_label, time_label

# Where the far edge is measured: four ranks, one size, two transports of ours.
FAR_PLACE = "300 ms, 1 % loss"
# Sizes of the table of one run, and of the ranges over all runs.
SIZES = (4, 64 << 10, 1 << 20, 64 << 20)
SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class Stored:
    """All stored runs of a tree: of links the picture's first, of programs by their files' names."""

    links: tuple
    programs: tuple


def read(root):
    """RecordError where a file is not what it should be."""
    docs = Path(root) / "docs"
    links = [docs / "results.json", *sorted(docs.glob("runs/links-*.json"))]
    return Stored(
        tuple(stored_run.read(path) for path in links if path.exists()),
        tuple(stored_programs.read(path) for path in sorted(docs.glob("runs/programs-*.json"))),
    )


def link_name(row):
    """memif, inside a machine; UDP, MTU 1500"""
    name, _, mtu = row.link.rpartition(" ")
    return f"{name}, MTU {mtu}" if name and mtu.isdigit() else f"{row.link}, {row.where}"


def by_link(run):
    """{(where, link): {bytes: (TCP's row, our row)}} of the links between two ranks."""
    rows, found = {row.key: row for row in run.rows}, {}
    for row in run.rows:
        base = rows.get((row.where, row.link, row.bytes, stored_run.BASE))
        if row.transport != stored_run.BASE and row.where != FAR_PLACE and base:
            found.setdefault((row.where, row.link), {})[row.bytes] = (base, row)
    return found


def pair_cell(base, ours):
    """Times of small vectors; bandwidths of large ones: algbw in 1e9 bytes a second."""
    if ours.bytes <= SMALL_BYTES:
        return f"{time_label(base.median_us)}, {time_label(ours.median_us)}"
    return f"{base.bytes / base.median_us / 1e3:.2f}, {ours.bytes / ours.median_us / 1e3:.2f} GB/s"


def links_of_one(run):
    """One run over all links: TCP and ours at some sizes."""
    found = by_link(run)
    sizes = [size for size in SIZES if any(size in pairs for pairs in found.values())]
    if not sizes:
        return ""  # of other sizes, or of far links alone
    header = ["link", *(f"{size_label(size)}: TCP, ours" for size in sizes), f"{size_label(sizes[-1])}, ratio"]
    lines = []
    for pairs in found.values():
        name = link_name(next(iter(pairs.values()))[1])
        last = pairs.get(sizes[-1])
        ratio = last and last[0].median_us / last[1].median_us
        cells = (pair_cell(*pairs[size]) if size in pairs else "" for size in sizes)
        lines.append([name, *cells, bold(ratio_label(ratio), ratio < 1) if ratio else ""])
    return f"{run.machine}, {run.date}. {memory_rates.sentence(run.rates)}\n\n{markdown(header, lines)}"


def links(stored):
    return "\n\n".join(filter(None, map(links_of_one, stored.links)))


def ratios_over(runs, where, link, size):
    """How many times as fast as TCP, of each run that has it."""
    found = [by_link(run).get((where, link), {}).get(size) for run in runs]
    return [base.median_us / ours.median_us for base, ours in filter(None, found)]


def range_cell(ratios):
    return bold(spanned(ratios, ratio_label), max(ratios) < 1) if ratios else ""


def link_ranges(stored):
    """How many times as fast as TCP each link is, from the least to the most of all stored runs."""
    keys = list(dict.fromkeys(key for run in stored.links for key in by_link(run)))
    if not keys:
        return ""
    names = {(row.where, row.link): link_name(row) for run in stored.links for row in run.rows}
    header = ["times as fast as TCP, 2 ranks", *("one float" if size == 4 else size_label(size) for size in SIZES)]
    return markdown(
        header, [[names[key], *(range_cell(ratios_over(stored.links, *key, size)) for size in SIZES)] for key in keys]
    )


def pairs_of(stored, link, size):
    """(TCP's row, our row) of each run, of the first transport of ours that has the link."""
    pairs = [
        (base, row)
        for run in stored.links
        for row in run.rows
        for base in run.rows
        if row.transport != stored_run.BASE
        and (row.link, row.bytes) == (link, size)
        and base.key == (row.where, link, size, stored_run.BASE)
    ]
    return [pair for pair in pairs if pair[1].transport == pairs[0][1].transport]


# The links and sizes that a reader looks for first, and their names.
HEADLINES = (
    ("UDP 1500", 4, "one float, 2 ranks between hosts, MTU 1500"),
    ("UDP 1500", 64 << 20, "64 MiB, 2 ranks between hosts, MTU 1500"),
    ("one far edge", 16 << 20, "16 MiB, 4 ranks, one link of 300 ms that loses 1 %"),
)


def link_headline(stored):
    """What Gloo's own all-reduce takes between hosts, and far apart."""
    lines = []
    for link, size, text in HEADLINES:
        pairs = pairs_of(stored, link, size)
        if pairs:
            times = (spanned([pair[side].median_us for pair in pairs], time_label) for side in (0, 1))
            ratios = [base.median_us / ours.median_us for base, ours in pairs]
            lines.append([f"{text} ({pairs[0][1].transport})", *times, range_cell(ratios)])
    return markdown(["Gloo's all-reduce", "Gloo TCP", "gloo-bypass", "faster"], lines) if lines else ""


def programs(stored):
    return "\n\n".join(map(program_tables.whole, stored.programs))


def program_headline(stored):
    return program_tables.headline(stored.programs)


TABLES = {
    "links": links,
    "link-ranges": link_ranges,
    "link-headline": link_headline,
    "programs": programs,
    "program-headline": program_headline,
}


def renewed(text, stored, place):
    """The text with its tables made again; RecordError for one that nobody makes."""
    return marked_tables.renewed(text, {name: partial(make, stored) for name, make in TABLES.items()}, place)


def pages(root):
    root = Path(root)
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def renew(root, stored):
    """Writes the pages with changed tables, and returns them."""
    return [path for path in pages(root) if marked_tables.renew(path, partial(renewed, stored=stored, place=path))]


def draw_results(root, arguments=None):
    """The command line of scripts/draw-results."""
    parser = argparse.ArgumentParser(
        prog="draw-results",
        description="Draws the README's picture from docs/results.json, a run of "
        "scripts/compare-links, and makes the marked tables of README.md and docs/ from the stored runs: that one, "
        "docs/runs/links-*.json, and docs/runs/programs-*.json of scripts/compare-programs. With a run, draws that one "
        "and makes no tables.",
    )
    parser.add_argument("run", nargs="?", type=Path, help="a run over all links (default docs/results.json)")
    parser.add_argument("--output", type=Path, default=root / "docs/results.svg", help="default: docs/results.svg")
    parser.add_argument("--table", action="store_true", help="print every link as a Markdown table, and write nothing")
    options = parser.parse_args(arguments)
    return exit_status("draw-results", lambda: draw(root, options))


def draw(root, options):
    run = stored_run.read(options.run or root / "docs/results.json")
    if options.table:
        sys.stdout.write(results_chart.table(run))
        return 0
    try:
        options.output.write_text(results_chart.svg(run), encoding="utf-8")
    except OSError as error:
        raise Failure(f"{options.output}: cannot be written: {error.strerror}") from error
    for path in renew(root, read(root)) if options.run is None else ():
        print(f"draw-results: {os.path.relpath(path, root)} has new tables", file=sys.stderr)
    return 0
