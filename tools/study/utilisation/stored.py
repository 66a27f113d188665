"""The stored run of the study.

    {"schema": "gloo-bypass/study-utilisation/1", "commit": "0123abc", "date": "2026-11-27", "machine": {...},
     "kernel_tcp": {...}, "programs": {"fabric": SHA-256, ...}, "load_before": 0.1, "others_cores": 0.02, "ranks": 2,
     "methods": {"DDP": {"parameters": ..., "step_s": 0.2, ...}, ...}, "places": {"far": {"delay_ms": 50.0, ...}, ...},
     "left_out": [{"what": ..., "why": ...}],
     "rows": [{"place": "far", "rate_mbit": 100.0, "transport": "TCP", "method": "DDP", "whole_s": [40.1, 40.3]}, ...]}

`whole_s`: what all steps of the method took, in each run. `load_before`, `others_cores`: the most of all sessions that
the run was measured in. A run of other methods or places than today's is refused. Pure but for read().
"""

import datetime
import json
import statistics
from dataclasses import dataclass, fields

from gloo_bypass_tools.report import row_lines
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
)
from gloo_bypass_tools.study.utilisation import cells, model
from gloo_bypass_tools.study.transports import SWITCHED
from gloo_bypass_tools.study.utilisation.cells import Cell

SCHEMA = "gloo-bypass/study-utilisation/1"


@dataclass(frozen=True)
class Run:
    """`whole_s`: {Cell: its times}."""

    commit: str
    date: datetime.date
    machine: dict
    kernel_tcp: dict
    programs: dict
    load_before: float
    others_cores: float | None
    left_out: tuple
    whole_s: dict

    def of(self, name):
        """The values of a cell's field, each once, in the order of ORDERS, whatever was measured first."""
        order = ORDERS.get(name)
        return sorted({getattr(cell, name) for cell in self.whole_s}, key=order and order.index)

    def utilisations(self, cell):
        """Of each run; empty where it was not measured."""
        return [cells.utilisation(cells.METHODS[cell.method], one) for one in self.whole_s.get(cell, ())]

    def utilisation(self, cell):
        """The median, or None."""
        found = self.utilisations(cell)
        return statistics.median(found) if found else None


def modelled(cell):
    method = cells.METHODS[cell.method]
    return cells.utilisation(method, model.of_cell(cell, method))


ORDERS = {"place": list(cells.PLACES), "method": list(cells.METHODS), "transport": list(SWITCHED)}
FIXED = {
    "ranks": cells.RANKS,
    "methods": {name: vars(method) for name, method in cells.METHODS.items()},
    "places": {name: vars(place) for name, place in cells.PLACES.items()},
}
KEYS = {"schema", "rows", *FIXED} | {one.name for one in fields(Run)} - {"whole_s"}
ROW_KEYS = {one.name for one in fields(Cell)} | {"whole_s"}


def text_of(run):
    """The file's text, a line for each row."""
    head = {
        "schema": SCHEMA,
        "commit": run.commit,
        "date": run.date.isoformat(),
        "machine": run.machine,
        "kernel_tcp": run.kernel_tcp,
        "programs": run.programs,
        "load_before": run.load_before,
        "others_cores": run.others_cores,
        **FIXED,
        "left_out": row_lines.left_out(run.left_out),
    }
    cells_in_order = sorted(run.whole_s, key=place_of)
    rows = (vars(cell) | {"whole_s": [round(one, 4) for one in run.whole_s[cell]]} for cell in cells_in_order)
    return row_lines.text_of(head, rows=rows)


def place_of(cell):
    named = {name: order.index(getattr(cell, name)) for name, order in ORDERS.items()}
    return named["place"], cell.rate_mbit, named["method"], named["transport"]


def row_at(place, record):
    only(place, object_at(place, record), ROW_KEYS)
    cell = Cell(
        text_at(place, record, "place"),
        positive_at(place, record, "rate_mbit"),
        text_at(place, record, "transport"),
        text_at(place, record, "method"),
    )
    for name, known in ORDERS.items():
        if getattr(cell, name) not in known:
            raise RecordError(f"{place}: '{name}' is '{getattr(cell, name)}', none of {', '.join(known)}")
    each = dict(enumerate(value_at(place, record, "whole_s", list)))
    times = tuple(positive_at(f"{place}: whole_s", each, index) for index in each)
    if not times:
        raise RecordError(f"{place}: 'whole_s' is empty")
    return cell, times


def read(path):
    record = of_schema(path, SCHEMA)
    only(path, record, KEYS)
    for key, value in FIXED.items():
        if record.get(key) != json.loads(json.dumps(value)):
            raise RecordError(f"{path}: its {key} are not those that this program has: measure anew")
    rows = [row_at(f"{path}: rows[{at}]", one) for at, one in enumerate(value_at(path, record, "rows", list))]
    commit, date, machine, load, others = measured_at(path, record, "( with uncommitted changes)?|unknown")
    if not rows or len(dict(rows)) != len(rows):
        raise RecordError(f"{path}: 'rows' is empty, or has one twice")
    return Run(
        commit,
        date,
        machine,
        value_at(path, record, "kernel_tcp", dict),
        value_at(path, record, "programs", dict),
        load,
        others,
        left_out_at(path, record),
        dict(rows),
    )
