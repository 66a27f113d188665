"""Stored runs of scripts/study techniques, and the tables of its page that are made of them. Pure but for reading.

    {"schema": "gloo-bypass/study-techniques/1", "commit": "0123abc", "date": "2026-11-27", "machine": {...},
     "load_before": 0.1, "others_cores": 0.02, "study": "compression", "ranks": 2, "flags": ["--batch-size", "4"],
     "rows": [{"link": "200Mbit", "transport": "TCP", "point": "bf16", "sent_bytes": 1.6e8, "steps_s": [6.9, 6.8],
     "compress_s": 0.3, "decompress_s": 0.1, "exposed_s": 4.0, "last_loss": 9.1}, ...]}

`steps_s`: of each step but the first. `sent_bytes`, `compress_s`, `decompress_s` and `exposed_s` are means over these
steps; null where one has none. The page's table NAME (report/marked_tables.py) is made of NAME-run.json beside it.
"""

import datetime
import json
import statistics
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from gloo_bypass_tools.report import machine, marked_tables
from gloo_bypass_tools.report.records import (
    RecordError,
    commit_at,
    date_at,
    machine_at,
    number_at,
    object_at,
    of_schema,
    only,
    positive_at,
    text_at,
    value_at,
    whole_at,
)
from gloo_bypass_tools.report.results_chart import markdown
from gloo_bypass_tools.study.printed.technique_entries import LINKS, OPEN, STUDIES

SCHEMA = "gloo-bypass/study-techniques/1"
PAGE, RUN = "README.md", "-run.json"
MEANS = ("sent_bytes", "compress_s", "decompress_s", "exposed_s", "last_loss")


@dataclass(frozen=True)
class Row:
    link: str
    transport: str
    point: str
    steps_s: tuple
    sent_bytes: float | None
    compress_s: float | None
    decompress_s: float | None
    exposed_s: float | None
    last_loss: float | None

    @property
    def step_s(self):
        return statistics.fmean(self.steps_s)


@dataclass(frozen=True)
class StoredRun:
    commit: str
    date: datetime.date
    machine: dict
    load_before: float
    others_cores: float | None
    study: str
    ranks: int
    flags: tuple
    rows: tuple

    def of(self, name):
        """The values of a row's field, each once, in the run's order."""
        return list(dict.fromkeys(getattr(row, name) for row in self.rows))

    def at(self, link, transport, point):
        wanted = (link, transport, point)
        return next((row for row in self.rows if (row.link, row.transport, row.point) == wanted), None)


KEYS = {one.name for one in fields(StoredRun)} | {"schema"}
ROW_KEYS = {one.name for one in fields(Row)}


def row_record(run):
    """Of a measured techniques.Run."""
    return {
        "link": run.link,
        "transport": run.transport,
        "point": run.point,
        "steps_s": [round(step["t_step_s"], 4) for step in run.steps[1:]],
        "sent_bytes": None if None in (step["bytes_sent"] for step in run.steps) else round(run.mean_bytes()),
        "compress_s": run.mean_of("t_compress_s"),
        "decompress_s": run.mean_of("t_decompress_s"),
        "exposed_s": run.mean_of("t_ar_exposed_s"),
        "last_loss": round(run.smoothed()[-1], 4),
    }


def text_of(described, others_cores, study, ranks, flags, runs):
    """The file's text, a line for each row."""
    head = {
        "schema": SCHEMA,
        "commit": described["commit"],
        "date": machine.today(),
        "machine": machine.stored(described),
        "load_before": described["load_before"],
        "others_cores": others_cores,
        "study": study,
        "ranks": ranks,
        "flags": list(flags),
    }
    rows = ",\n".join(f"  {json.dumps(row_record(run))}" for run in runs)
    return json.dumps(head, indent=1).removesuffix("\n}") + f',\n "rows": [\n{rows}\n ]\n}}\n'


def row_at(place, record, points):
    only(place, object_at(place, record), ROW_KEYS)
    link, point = text_at(place, record, "link"), text_at(place, record, "point")
    if link not in LINKS or point not in points:
        raise RecordError(f"{place}: there is no link '{link}', or no point '{point}'")
    each = dict(enumerate(value_at(place, record, "steps_s", list)))
    steps = tuple(positive_at(f"{place}: steps_s", each, index) for index in each)
    if not steps:
        raise RecordError(f"{place}: 'steps_s' is empty")
    means = {name: number_at(place, record, name, nullable=True) for name in MEANS}
    return Row(link, text_at(place, record, "transport"), point, steps, **means)


def read(path):
    record = of_schema(path, SCHEMA)
    only(path, record, KEYS)
    study = text_at(path, record, "study")
    if study not in STUDIES:
        raise RecordError(f"{path}: there is no study '{study}'")
    rows = value_at(path, record, "rows", list)
    run = StoredRun(
        commit_at(path, record, "commit", "( with uncommitted changes)?|unknown"),
        date_at(path, record, "date"),
        machine_at(path, record),
        number_at(path, record, "load_before"),
        number_at(path, record, "others_cores", nullable=True),
        study,
        whole_at(path, record, "ranks", 1),
        tuple(map(str, value_at(path, record, "flags", list))),
        tuple(row_at(f"{path}: rows[{at}]", one, STUDIES[study].points) for at, one in enumerate(rows)),
    )
    keys = {(row.link, row.transport, row.point) for row in run.rows}
    if not rows or len(keys) != len(rows):
        raise RecordError(f"{path}: 'rows' is empty, or has one twice")
    return run


# --- tables ----------------------------------------------------------------------------------------------------------


def megabytes(count):
    return "" if count is None else f"{count / 1e6:.3g} MB"


def seconds(value):
    return "" if value is None else f"{value:.2f}"


def joined(cells):
    """One text where all are the same."""
    return "; ".join(dict.fromkeys(cells)) if len(set(cells)) == 1 else "; ".join(cells)


def break_even(plain, other):
    """At which rate both steps are as long, by what they take on the open link and what they send: bit/s; None where
    one of them is shorter at any rate."""
    saved, cost = plain.sent_bytes - other.sent_bytes, other.step_s - plain.step_s
    return 8 * saved / cost if saved * cost > 0 else None


def break_even_cell(run, point, transport):
    """Where a step of this point is shorter than one of the first. Empty where that is not known."""
    plain, other = (run.at(OPEN, transport, name) for name in (run.of("point")[0], point))
    if None in (plain, other) or plain is other or None in (plain.sent_bytes, other.sent_bytes):
        return ""
    rate = break_even(plain, other)
    if rate is None:
        return "at any" if other.sent_bytes <= plain.sent_bytes and other.step_s <= plain.step_s else "at none"
    return f"{'below' if other.sent_bytes < plain.sent_bytes else 'above'} {rate / 1e6:.0f}"


def table(run):
    """A line for each point: what it sends, what it costs, and its step over each link and transport."""
    points, links, transports = run.of("point"), run.of("link"), run.of("transport")
    over = "; ".join(transports)
    header = [
        "",
        f"sent a step, {over}",
        "compressing, decompressing",
        *(f"{link}: step in s, {over}" for link in links),
    ]
    if OPEN in links:
        header.append(f"pays, Mbit/s, {over}")
    lines = []
    for point in points:
        rows = {(link, transport): run.at(link, transport, point) for link in links for transport in transports}
        costs = [row for row in rows.values() if row and row.compress_s is not None]
        cost = ""
        if costs:
            cost = ", ".join(
                seconds(statistics.fmean(getattr(row, name) or 0.0 for row in costs))
                for name in ("compress_s", "decompress_s")
            )
        sent = [
            megabytes(rows[links[-1], transport].sent_bytes) for transport in transports if rows[links[-1], transport]
        ]
        line = [point, joined(sent), cost]
        for link in links:
            base, cells = run.at(link, transports[0], points[0]), []
            for transport in transports:
                row = rows[link, transport]
                cells.append(f"{row.step_s:.2f} ({base.step_s / row.step_s:.2f} x)" if row and base else "-")
            line.append("; ".join(cells))
        if OPEN in links:
            line.append(joined([break_even_cell(run, point, transport) for transport in transports]))
        lines.append(line)
    return markdown(header, lines)


def renew(folder):
    """Makes the tables of the page anew for which runs are stored beside it."""
    marked_tables.renew(Path(folder) / PAGE, partial(renewed, folder=folder))


def renewed(text, folder):
    """The page's text with its tables made again; table NAME is of NAME-run.json."""
    paths = sorted(Path(folder).glob(f"*{RUN}"))
    makers = {path.name.removesuffix(RUN): lambda path=path: table(read(path)) for path in paths}
    return marked_tables.renewed(text, makers, folder)
