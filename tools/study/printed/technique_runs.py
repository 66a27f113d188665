"""Stored runs of scripts/study techniques, and the tables of its page that are made of them. Pure but for reading.

    {"schema": "gloo-bypass/study-techniques/1", "commit": "0123abc", "date": "2026-11-27", "machine": {...},
     "load_before": 0.1, "others_cores": 0.02, "study": "compression", "ranks": 2, "flags": ["--batch-size", "4"],
     "programs": {"ddp_train": SHA-256, ...}, "files": {"--data": SHA-256}, "environment": {"OMP_NUM_THREADS": "1"},
     "kernel_tcp": {...},
     "rows": [{"link": "200Mbit", "transport": "TCP", "point": "bf16", "sent_bytes": 1.6e8, "first_s": 7.5,
     "steps_s": [6.9, 6.8], "losses": [10.9, 10.1, 9.6], "compress_s": 0.3, "decompress_s": 0.1, "exposed_s": 4.0,
     "last_loss": 9.1}, ...]}

`steps_s`: of each step but the first; `first_s`: of that one. `losses`: of each step, a mean over the ranks. An older
run may lack `first_s`, `losses` and what SET_UP names. `waiting`: the share of a step in which ranks that share a
model wait for each other; not there where none do. A table adds the share in which they only wait for gradients.
`sent_bytes`, `compress_s`, `decompress_s` and `exposed_s` are means over the steps but the first; null where one has
none. The common loss of some runs is what the one that learnt least came to, as a mean over WINDOW steps. The page's
table NAME (report/marked_tables.py) is made of NAME-run.json beside it, and, where there are losses, NAME.svg.
"""

import datetime
import statistics
from dataclasses import dataclass, fields
from itertools import accumulate

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
from gloo_bypass_tools.report.results_chart import markdown
from gloo_bypass_tools.study.printed.technique_entries import LINKS, OPEN, STUDIES
from gloo_bypass_tools.study.transports import SWITCHED

SCHEMA = "gloo-bypass/study-techniques/1"
WINDOW = 5
SET_UP = ("programs", "files", "environment", "kernel_tcp")
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
    first_s: float | None = None
    losses: tuple = ()
    waiting: float | None = None

    @property
    def step_s(self):
        return statistics.fmean(self.steps_s)

    @property
    def idle(self):
        """The share of a step in which there is nothing to compute, or None."""
        return idle_share(self.waiting, self.exposed_s, self.step_s)

    @property
    def seconds(self):
        """When each step ended, where there are losses."""
        return list(accumulate((self.first_s, *self.steps_s)))

    def smoothed(self):
        """The mean loss of WINDOW steps, from the WINDOWth on."""
        return smoothed(self.losses)

    def reaching(self, loss):
        """(steps, seconds) when the smoothed loss was first at most `loss`."""
        step = next(at for at, value in enumerate(self.smoothed(), WINDOW) if value <= loss)
        return step, self.seconds[step - 1]


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
    programs: dict
    files: dict
    environment: dict
    kernel_tcp: dict

    def of(self, name):
        """The values of a row's link, transport or point, each once, in the order of all that there are."""
        known = {"link": LINKS, "transport": SWITCHED, "point": STUDIES[self.study].points}[name]
        return [one for one in known if one in {getattr(row, name) for row in self.rows}]

    def at(self, link, transport, point):
        wanted = (link, transport, point)
        return next((row for row in self.rows if (row.link, row.transport, row.point) == wanted), None)


def idle_share(waiting, exposed_s, step_s):
    return None if waiting is None else waiting + (exposed_s or 0.0) / step_s


def smoothed(losses):
    return [statistics.fmean(losses[end - WINDOW : end]) for end in range(WINDOW, len(losses) + 1)]


KEYS = {one.name for one in fields(StoredRun)} | {"schema"}
ROW_KEYS = {one.name for one in fields(Row)}


def row_record(run):
    """Of a measured techniques.Run."""
    return {
        "link": run.link,
        "transport": run.transport,
        "point": run.point,
        "steps_s": [round(step["t_step_s"], 4) for step in run.steps[1:]],
        "first_s": round(run.steps[0]["t_step_s"], 4),
        "losses": [round(step["loss_mean"], 4) for step in run.steps],
        "sent_bytes": None if None in (step["bytes_sent"] for step in run.steps) else round(run.mean_bytes()),
        "compress_s": run.mean_of("t_compress_s"),
        "decompress_s": run.mean_of("t_decompress_s"),
        "exposed_s": run.mean_of("t_ar_exposed_s"),
        "last_loss": round(run.smoothed()[-1], 4),
        "waiting": None if run.waiting is None else round(run.waiting, 3),
    }


def record_of(row):
    """Of a stored row, as it stands in the file."""
    return vars(row) | {"steps_s": list(row.steps_s), "losses": list(row.losses)}


def text_of(described, others_cores, study, ranks, flags, rows):
    """The file's text, a line for each row; `rows`: as row_record() makes them."""
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
        **{name: described[name] for name in SET_UP},
    }
    return row_lines.text_of(head, rows=rows)


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
    losses = dict(enumerate(value_at(place, {"losses": []} | record, "losses", list)))
    if losses and len(losses) != len(steps) + 1:
        raise RecordError(f"{place}: {len(losses)} 'losses' of {len(steps) + 1} steps")
    each_loss = tuple(number_at(f"{place}: losses", losses, index) for index in losses)
    return Row(
        link,
        text_at(place, record, "transport"),
        point,
        steps,
        **means,
        first_s=positive_at(place, record, "first_s") if losses else None,
        losses=each_loss,
        waiting=number_at(place, {"waiting": None} | record, "waiting", nullable=True),
    )


def read(path):
    record = of_schema(path, SCHEMA)
    only(path, record, KEYS)
    study = text_at(path, record, "study")
    if study not in STUDIES:
        raise RecordError(f"{path}: there is no study '{study}'")
    rows = value_at(path, record, "rows", list)
    run = StoredRun(
        *measured_at(path, record, "( with uncommitted changes)?|unknown"),
        study,
        whole_at(path, record, "ranks", 1),
        tuple(map(str, value_at(path, record, "flags", list))),
        tuple(row_at(f"{path}: rows[{at}]", one, STUDIES[study].points) for at, one in enumerate(rows)),
        *(value_at(path, {name: {}} | record, name, dict) for name in SET_UP),
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


def common_loss(runs):
    """What the one that learnt least came to; of stored rows, or of runs."""
    return max(min(run.smoothed()) for run in runs)


def reaching_cell(row, target):
    steps, time_s = row.reaching(target)
    return f"{steps} steps, {time_s:.3g} s"


def common_losses(run):
    """By link; only of links where some points need more steps to it than others."""
    targets = {}
    for link in run.of("link"):
        rows = [row for row in run.rows if row.link == link]
        if all(len(row.losses) >= WINDOW for row in rows):
            target = common_loss(rows)
            if len({row.reaching(target)[0] for row in rows}) > 1:
                targets[link] = target
    return targets


def cost_cell(rows):
    costs = [row for row in rows if row and row.compress_s is not None]
    means = [
        statistics.fmean(getattr(row, name) or 0.0 for row in costs) for name in ("compress_s", "decompress_s") if costs
    ]
    return ", ".join(map(seconds, means))


def waiting_cell(rows):
    if all(row is None or row.idle is None for row in rows):
        return ""
    return joined(["-" if row is None or row.idle is None else f"{100 * row.idle:.0f} %" for row in rows])


def circumstances(run):
    return f"Commit {run.commit[:7]}, {machine.circumstances(run, others_cores=run.others_cores)}."


def section(run):
    """The table, and below it what it was measured on."""
    return f"{table(run)}\n\n{circumstances(run)}"


def table(run):
    """A line for each point: what it sends, what it costs, and its step over each link and transport; how long it waits
    for others; how long it takes to the common loss."""
    points, links, transports = run.of("point"), run.of("link"), run.of("transport")
    over = "; ".join(transports)
    compresses = any(row.compress_s is not None for row in run.rows)
    waits = any(row.waiting is not None for row in run.rows)
    header = ["", f"sent a step, {over}", *(["compressing, decompressing"] if compresses else [])]
    for link in links:
        header += [f"{link}: step in s, {over}", *(["waiting"] if waits else [])]
    targets = common_losses(run)
    header += [f"{link}: to the common loss of {target:.2f}, {over}" for link, target in targets.items()]
    if OPEN in links:
        header.append(f"pays, Mbit/s, {over}")
    lines = []
    for point in points:
        rows = {(link, transport): run.at(link, transport, point) for link in links for transport in transports}
        sent = [
            megabytes(rows[links[-1], transport].sent_bytes) for transport in transports if rows[links[-1], transport]
        ]
        line = [point, joined(sent), *([cost_cell(rows.values())] if compresses else [])]
        for link in links:
            base, cells = run.at(link, transports[0], points[0]), []
            for transport in transports:
                row = rows[link, transport]
                ratio = f" ({base.step_s / row.step_s:.2f} x)" if row and base else ""
                cells.append(f"{row.step_s:.2f}{ratio}" if row else "-")
            line.append("; ".join(cells))
            if waits:
                line.append(waiting_cell([rows[link, transport] for transport in transports]))
        for link, target in targets.items():
            there = [rows[link, transport] for transport in transports]
            line.append("; ".join(reaching_cell(row, target) if row else "-" for row in there))
        if OPEN in links:
            line.append(joined([break_even_cell(run, point, transport) for transport in transports]))
        lines.append(line)
    return markdown(header, lines)


def renewed(text, folder):
    """The page's text with its tables made again."""
    return marked_tables.of_runs(text, folder, lambda path: section(read(path)))
