"""Stored runs of scripts/study failures, and the tables of its page that are made of them. Pure but for reading.

    {"schema": "gloo-bypass/study-failures/1", "commit": "0123abc", "date": "2026-11-29", "machine": {...},
     "load_before": 0.1, "others_cores": 0.02, "ranks": 4, "min": 2, "steps": 30, "checkpoint_every": 10,
     "kill": "1@12,2@25", "flags": ["--model", "distilgpt2"],
     "rows": [{"transport": "TCP", "samples": 32, "step_s": 6.1, "lost": 0, "twice": 0, "restarts": [{"ranks": 3,
     "end_s": 0.08, "start_s": 0.72, "repeated_steps": 2, "again_s": 12.1}, ...]}, ...]}

A row is one run of a transport, which may have several. `samples`: of a step. `step_s`: the median until the first
kill. `lost`, `twice`: samples that no step that counts has used, and those that an epoch used twice. Of a restart:
`end_s` until all ranks had ended, `start_s` from there until the new group was connected, and the steps that it did
again, with their time.
"""

import datetime
import statistics
from dataclasses import asdict, dataclass, fields

from gloo_bypass_tools.report import machine, marked_tables, row_lines
from gloo_bypass_tools.report.records import (
    RecordError,
    measured_at,
    number_at,
    object_at,
    of_schema,
    only,
    positive_at,
    text_at,
    value_at,
    whole_at,
)
from gloo_bypass_tools.study.printed import markdown

SCHEMA = "gloo-bypass/study-failures/1"
HEADER = (
    "",
    "ranks left",
    "until all had ended",
    "until the new group trained",
    "steps again",
    "lost in all",
    "in steps",
)


@dataclass(frozen=True)
class Restart:
    ranks: int
    end_s: float
    start_s: float
    repeated_steps: int
    again_s: float

    @property
    def lost_s(self):
        return self.end_s + self.start_s + self.again_s


@dataclass(frozen=True)
class Row:
    transport: str
    samples: int
    step_s: float
    lost: int
    twice: int
    restarts: tuple


@dataclass(frozen=True)
class StoredRun:
    commit: str
    date: datetime.date
    machine: dict
    load_before: float
    others_cores: float | None
    ranks: int
    min: int
    steps: int
    checkpoint_every: int
    kill: str
    flags: tuple
    rows: tuple


KEYS = {one.name for one in fields(StoredRun)} | {"schema"}
ROW_KEYS = {one.name for one in fields(Row)}
RESTART_KEYS = {one.name for one in fields(Restart)}


def text_of(run):
    """The file's text, a line for each row."""
    head = {"schema": SCHEMA} | {key: value for key, value in vars(run).items() if key != "rows"}
    return row_lines.text_of(head | {"date": run.date.isoformat()}, rows=map(asdict, run.rows))


def restart_at(place, record):
    only(place, object_at(place, record), RESTART_KEYS)
    times = (number_at(place, record, name) for name in ("end_s", "start_s", "again_s"))
    end_s, start_s, again_s = times
    ranks, repeated = whole_at(place, record, "ranks", 1), whole_at(place, record, "repeated_steps")
    return Restart(ranks, end_s, start_s, repeated, again_s)


def row_at(place, record):
    only(place, object_at(place, record), ROW_KEYS)
    restarts = enumerate(value_at(place, record, "restarts", list))
    return Row(
        text_at(place, record, "transport"),
        whole_at(place, record, "samples", 1),
        positive_at(place, record, "step_s"),
        whole_at(place, record, "lost"),
        whole_at(place, record, "twice"),
        tuple(restart_at(f"{place}: restarts[{at}]", one) for at, one in restarts),
    )


def read(path):
    record = of_schema(path, SCHEMA)
    only(path, record, KEYS)
    rows = enumerate(value_at(path, record, "rows", list))
    run = StoredRun(
        *measured_at(path, record, "( with uncommitted changes)?|unknown"),
        *(whole_at(path, record, name, 1) for name in ("ranks", "min", "steps", "checkpoint_every")),
        text_at(path, record, "kill"),
        tuple(map(str, value_at(path, record, "flags", list))),
        tuple(row_at(f"{path}: rows[{at}]", one) for at, one in rows),
    )
    if {len(row.restarts) for row in run.rows} != {len(run.kill.split(","))}:
        raise RecordError(f"{path}: 'rows' is empty, or one has another number of restarts than 'kill' has")
    return run


# --- tables ----------------------------------------------------------------------------------------------------------


def spread(values, digits, unit=""):
    """The median; of several values with the least and the most."""
    least, middle, most = (f"{one:.{digits}f}" for one in (min(values), statistics.median(values), max(values)))
    return f"{middle}{unit}" if len(values) == 1 else f"{middle}{unit} ({least} to {most})"


def again_cell(restarts):
    counts = "; ".join(sorted({str(one.repeated_steps) for one in restarts}))
    return f"{counts} in {spread([one.again_s for one in restarts], 2, ' s')}"


def table(run):
    """A line for each transport and kill."""
    lines = []
    for transport in dict.fromkeys(row.transport for row in run.rows):
        rows = [row for row in run.rows if row.transport == transport]
        for restarts in zip(*(row.restarts for row in rows)):
            lost_s = [one.lost_s for one in restarts]
            cells = [spread([getattr(one, name) for one in restarts], 2, " s") for name in ("end_s", "start_s")]
            cells += [again_cell(restarts), spread(lost_s, 1 if max(lost_s) >= 10 else 2, " s")]
            cells.append(spread([one / row.step_s for one, row in zip(lost_s, rows)], 1))
            left = "; ".join(sorted({str(one.ranks) for one in restarts}))
            lines.append((transport, left, *cells))
    return markdown.table(HEADER, lines, left=1)


def samples_line(run):
    """How often samples were used, by transport."""
    parts = []
    for transport in dict.fromkeys(row.transport for row in run.rows):
        rows = [row for row in run.rows if row.transport == transport]
        step = spread([row.step_s for row in rows], 2, " s")
        lost, twice = (sum(getattr(row, name) for row in rows) for name in ("lost", "twice"))
        times = f"{len(rows)} run{'' if len(rows) == 1 else 's'} of {run.steps} steps of {rows[0].samples} samples"
        parts.append(f"- {transport}: {times}, a step {step}; samples lost {lost}, used twice in an epoch {twice}.")
    return "\n".join(parts)


def circumstances(run):
    return f"Commit {run.commit[:7]}, {machine.circumstances(run, others_cores=run.others_cores)}."


def section(run):
    """The table, below it how often samples were used, and what it was measured on."""
    return f"{table(run)}\n\n{samples_line(run)}\n\n{circumstances(run)}"


def renewed(text, folder):
    """The page's text with its tables made again."""
    return marked_tables.of_runs(text, folder, lambda path: section(read(path)))
