"""One stored run of all-reduces over every link: docs/results.json, from which the README's picture and table are made.

    {"commit": "0123abc", "date": "2026-11-22", "machine": "2 cores of ...", "rates": [{"copy_GBps": {"1": 17.0, ...},
     "add_GBps": {"1": 9.5, ...}}, ...], "rows": [
        {"link": "netdev 1500", "where": "between two namespaces", "bytes": 4, "transport": "DPDK",
         "median_us": 8.9, "p99_us": 14.0, "bus_GBps": 0.0004}, ...]}

`where` is the place of a row's link, and one panel of the picture; ratios are against TCP of the same place, link and
size. `bus_GBps` is nccl-tests' busbw in 1e9 bytes a second. `rates`: memory_rates.py's, before and after; older runs
have none. A row that cannot be understood is refused, never skipped.
"""

import datetime
import re
from dataclasses import dataclass

from gloo_bypass_tools.report import memory_rates
from gloo_bypass_tools.report.records import RecordError, json_object, number_at, value_at

BASE = "TCP"
RUN_KEYS = {"commit", "date", "machine", "rates", "rows"}
ROW_KEYS = {"link", "where", "bytes", "transport", "median_us", "p99_us", "bus_GBps"}


@dataclass(frozen=True)
class Row:
    link: str
    where: str
    bytes: int
    transport: str
    median_us: float
    p99_us: float
    bus_gbps: float

    @property
    def key(self):
        return self.where, self.link, self.bytes, self.transport


@dataclass(frozen=True)
class Run:
    commit: str
    date: datetime.date
    machine: str
    rows: tuple
    rates: tuple = ()

    def ratio(self, row):
        """How many times as fast as TCP this row is; None where TCP was not measured on that link."""
        for other in self.rows:
            if other.key == (row.where, row.link, row.bytes, BASE):
                return other.median_us / row.median_us
        return None


def only(place, record, keys):
    for key in record:
        if key not in keys:
            raise RecordError(f"{place}: '{key}' is unknown; known are {', '.join(sorted(keys))}")


def text_at(place, record, key):
    text = value_at(place, record, key, str).strip()
    if not text:
        raise RecordError(f"{place}: '{key}' is empty")
    return text


def positive_at(place, record, key):
    value = number_at(place, record, key)
    if value <= 0:
        raise RecordError(f"{place}: '{key}' is {value!r}, not above 0")
    return value


def row_of(place, record):
    if not isinstance(record, dict):
        raise RecordError(f"{place}: expected an object, found {type(record).__name__}")
    only(place, record, ROW_KEYS)
    size = positive_at(place, record, "bytes")
    if size != int(size):
        raise RecordError(f"{place}: 'bytes' is {size!r}, not a whole number")
    texts = {key: text_at(place, record, key) for key in ("link", "where", "transport")}
    row = Row(
        **texts,
        bytes=int(size),
        median_us=positive_at(place, record, "median_us"),
        p99_us=positive_at(place, record, "p99_us"),
        bus_gbps=positive_at(place, record, "bus_GBps"),
    )
    if row.p99_us < row.median_us:
        raise RecordError(f"{place}: 'p99_us' is {row.p99_us!r}, below the median of {row.median_us!r}")
    return row


def read(path):
    record = json_object(path)
    only(path, record, RUN_KEYS)
    commit = text_at(path, record, "commit")
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        raise RecordError(f"{path}: 'commit' is {commit!r}, not 7 to 40 hexadecimal digits")
    try:
        date = datetime.date.fromisoformat(text_at(path, record, "date"))
    except ValueError as error:
        raise RecordError(f"{path}: 'date' is {record['date']!r}, not like 2026-11-22") from error
    rows = []
    for number, entry in enumerate(value_at(path, record, "rows", list)):
        row = row_of(f"{path}: rows[{number}]", entry)
        if row.key in [other.key for other in rows]:
            what = f"{row.transport} over {row.link} with {row.bytes} bytes"
            raise RecordError(f"{path}: rows[{number}]: {what} is there already")
        rows.append(row)
    if not rows:
        raise RecordError(f"{path}: 'rows' is empty")
    rates = memory_rates.checked(path, value_at(path, record, "rates", list) if "rates" in record else ())
    return Run(commit, date, text_at(path, record, "machine"), tuple(rows), rates)
