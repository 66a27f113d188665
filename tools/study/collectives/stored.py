"""The stored run of the study.

    {"schema": "gloo-bypass/study-collectives/1", "commit": "0123abc", "date": "2026-11-27",
     "machine": {"processor": ..., "cores": 2, ...}, "load_before": 0.1, "others_cores": 0.02, "rates": [...],
     "effort": "short", "left_out": [{"what": ..., "why": ...}],
     "model": [{"link": "hosts", "ranks": 2, "alpha_us": 6.1, "beta_GBps": 3.2, "cores": 2}, ...],
     "choices": [{"link": "hosts", "ranks": 2, "bytes": 64, "default": null, "table": "one-shot",
     "own_cores": "one-shot"}, ...],
     "rows": [{"link": "hosts", "ranks": 2, "bytes": 64, "contender": "ring", "p50_us": 12.0, "p99_us": 20.0,
     "rounds_us": [12.5, ...], "model_us": 12.2}, ...]}

`cores` null: the link emulates its delay (alpha) and rate (beta). `default`: what runs there unless the user chooses a
transport; null: what the table chooses. `own_cores`: the fastest schedule by the model if each rank had a core; null
where cores do not matter. A row that cannot be understood is refused, never skipped.
"""

import datetime
from dataclasses import dataclass, fields

from gloo_bypass_tools.report import machine, memory_rates, row_lines
from gloo_bypass_tools.report.records import (
    RecordError,
    left_out_at,
    measured_at,
    object_at,
    of_schema,
    only,
    positive_at,
    text_at,
    value_at,
    whole_at,
)
from gloo_bypass_tools.study.collectives import links

SCHEMA = "gloo-bypass/study-collectives/1"


@dataclass(frozen=True)
class Row:
    link: str
    ranks: int
    bytes: int
    contender: str
    p50_us: float
    p99_us: float
    rounds_us: tuple
    model_us: float | None


@dataclass(frozen=True)
class Parameters:
    link: str
    ranks: int
    alpha_us: float
    beta_gbps: float
    cores: int | None


@dataclass(frozen=True)
class Choice:
    """Names of contenders."""

    default: str | None = None
    table: str | None = None
    own_cores: str | None = None


@dataclass(frozen=True)
class Run:
    commit: str
    date: datetime.date
    machine: dict
    load_before: float
    others_cores: float | None
    rates: tuple
    effort: str
    left_out: tuple
    model: tuple
    rows: tuple
    choices: dict  # (link, ranks, bytes) -> Choice

    def links(self):
        """The links that were measured."""
        measured = {row.link for row in self.rows}
        return [link for link in links.LINKS if link.name in measured]

    def ranks(self, link):
        return sorted({row.ranks for row in self.rows if row.link == link})

    def sizes(self, link, ranks):
        return sorted({row.bytes for row in self.rows if (row.link, row.ranks) == (link, ranks)})

    def at(self, link, ranks, size):
        """contender -> Row, in the order of the run."""
        wanted = (link, ranks, size)
        return {row.contender: row for row in self.rows if (row.link, row.ranks, row.bytes) == wanted}

    def choice(self, link, ranks, size):
        return self.choices.get((link, ranks, size), Choice())

    def contenders(self, link, ranks):
        return list(dict.fromkeys(row.contender for row in self.rows if (row.link, row.ranks) == (link, ranks)))


KEYS = {one.name for one in fields(Run)} | {"schema"}
ROW_KEYS = {one.name for one in fields(Row)}
MODEL_KEYS = {"link", "ranks", "alpha_us", "beta_GBps", "cores"}
CHOICE_KEYS = {"link", "ranks", "bytes", "default", "table", "own_cores"}


def record_of(measured, described, rates, others_cores, effort):
    """`measured`: (commit, rows, left_out, parameters, choices)."""
    commit, rows, left_out, parameters, choices = measured
    return {
        "schema": SCHEMA,
        "commit": commit,
        "date": machine.today(),
        "machine": machine.stored(described),
        "load_before": described["load_before"],
        "others_cores": others_cores,
        "rates": rates,
        "effort": effort,
        "left_out": row_lines.left_out(left_out),
        "model": parameters,
        "choices": choices,
        "rows": rows,
    }


def text_of(record):
    """As JSON, a line for each entry of the long lists."""
    listed = {key: rounded(record[key]) for key in ("model", "choices", "rows")}
    return row_lines.text_of({key: value for key, value in record.items() if key not in listed}, **listed)


def rounded(value):
    """Numbers to four digits: rounds differ by more."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def link_at(place, record):
    name = text_at(place, record, "link")
    if name not in links.BY_NAME:
        raise RecordError(f"{place}: 'link' is {name!r}; there are {', '.join(links.BY_NAME)}")
    return name


def row_of(place, record):
    only(place, object_at(place, record), ROW_KEYS)
    rounds = value_at(place, record, "rounds_us", list)
    each = tuple(positive_at(f"{place}: rounds_us", dict(enumerate(rounds)), index) for index in range(len(rounds)))
    row = Row(
        link_at(place, record),
        whole_at(place, record, "ranks", 2),
        whole_at(place, record, "bytes", 4),
        text_at(place, record, "contender"),
        positive_at(place, record, "p50_us"),
        positive_at(place, record, "p99_us"),
        each,
        None if record.get("model_us") is None else positive_at(place, record, "model_us"),
    )
    if row.p99_us < row.p50_us or not each:
        raise RecordError(f"{place}: 'p99_us' is below 'p50_us', or 'rounds_us' is empty")
    return row


def parameters_of(place, record):
    only(place, object_at(place, record), MODEL_KEYS)
    cores = None if record.get("cores") is None else whole_at(place, record, "cores", 1)
    numbers = (positive_at(place, record, key) for key in ("alpha_us", "beta_GBps"))
    return Parameters(link_at(place, record), whole_at(place, record, "ranks", 2), *numbers, cores)


OPTIONAL = ("default", "own_cores")


def choice_of(place, record):
    only(place, object_at(place, record), CHOICE_KEYS)
    default, own = (None if record.get(name) is None else text_at(place, record, name) for name in OPTIONAL)
    key = link_at(place, record), whole_at(place, record, "ranks", 2), whole_at(place, record, "bytes", 4)
    return key, Choice(default, text_at(place, record, "table"), own)


def listed(path, record, key, read):
    return tuple(read(f"{path}: {key}[{at}]", one) for at, one in enumerate(value_at(path, record, key, list)))


def read(path):
    record = of_schema(path, SCHEMA)
    only(path, record, KEYS)
    measured = measured_at(path, record, "(-dirty)?|unknown")
    effort = text_at(path, record, "effort")
    if effort not in links.EFFORTS:
        raise RecordError(f"{path}: 'effort' is {effort!r}, none of {', '.join(links.EFFORTS)}")
    rows = listed(path, record, "rows", row_of)
    keys = [(row.link, row.ranks, row.bytes, row.contender) for row in rows]
    if not rows or len(set(keys)) != len(keys):
        raise RecordError(f"{path}: 'rows' is empty, or has one twice")
    return Run(
        *measured,
        memory_rates.checked(path, value_at(path, record, "rates", list)),
        effort,
        left_out_at(path, record),
        listed(path, record, "model", parameters_of),
        rows,
        dict(listed(path, record, "choices", choice_of)),
    )
