"""The stored run of the study.

    {"schema": "gloo-bypass/study-throughput/1", "commit": "0123abc", "date": "2026-11-28", "machine": {...},
     "kernel_tcp": {...}, "load_before": 0.1, "others_cores": 0.02, "left_out": [{"what": ..., "why": ...}],
     "rows": [{"link": "far", "what": "iperf3, 4 streams", "mbit_s": [910.1, 911.0]}, ...]}

`mbit_s`: payload in one direction; of iperf3 a value a run, of an all-reduce, which uses both directions at once, one a
round. Pure but for read().
"""

import datetime
from dataclasses import dataclass, fields

from gloo_bypass_tools.report import records, row_lines
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study.throughput import cells

SCHEMA = "gloo-bypass/study-throughput/1"


@dataclass(frozen=True)
class Run:
    """`mbit_s`: {(link, what): values}"""

    commit: str
    date: datetime.date
    machine: dict
    kernel_tcp: dict
    load_before: float
    others_cores: float | None
    left_out: tuple
    mbit_s: dict

    def links(self):
        return [link for name, link in cells.LINKS.items() if any(key[0] == name for key in self.mbit_s)]


KEYS = {"schema", "rows"} | {one.name for one in fields(Run)} - {"mbit_s"}


def text_of(run):
    """The file's text, a line for each row."""
    head = {"schema": SCHEMA} | {key: value for key, value in vars(run).items() if key != "mbit_s"}
    head |= {"date": run.date.isoformat(), "left_out": row_lines.left_out(run.left_out)}
    rows = (
        {"link": link, "what": what, "mbit_s": [float(f"{one:.5g}") for one in values]}
        for (link, what), values in run.mbit_s.items()
    )
    return row_lines.text_of(head, rows=rows)


def row_at(place, row):
    records.only(place, records.object_at(place, row), {"link", "what", "mbit_s"})
    key = records.text_at(place, row, "link"), records.text_at(place, row, "what")
    for name, value, known in zip(("link", "what"), key, (tuple(cells.LINKS), cells.COLUMNS)):
        if value not in known:
            raise RecordError(f"{place}: '{name}' is '{value}', none of {'; '.join(known)}")
    each = dict(enumerate(records.value_at(place, row, "mbit_s", list)))
    values = [records.positive_at(f"{place}: mbit_s", each, at) for at in each]
    if not values:
        raise RecordError(f"{place}: 'mbit_s' is empty")
    return key, values


def read(path):
    record = records.of_schema(path, SCHEMA)
    records.only(path, record, KEYS)
    listed = records.value_at(path, record, "rows", list)
    rows = [row_at(f"{path}: rows[{at}]", one) for at, one in enumerate(listed)]
    if not rows or len(dict(rows)) != len(rows):
        raise RecordError(f"{path}: 'rows' is empty, or has one twice")
    commit, date, machine, load, others = records.measured_at(path, record, "( with uncommitted changes)?")
    tcp = records.value_at(path, record, "kernel_tcp", dict)
    records.text_at(f"{path}: kernel_tcp", tcp, "congestion_control")
    return Run(commit, date, machine, tcp, load, others, records.left_out_at(path, record), dict(rows))
