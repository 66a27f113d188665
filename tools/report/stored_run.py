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
from dataclasses import dataclass

from gloo_bypass_tools.report import memory_rates, records
from gloo_bypass_tools.report.records import RecordError

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


def row_of(place, record):
    records.only(place, records.object_at(place, record), ROW_KEYS)
    texts = {key: records.text_at(place, record, key) for key in ("link", "where", "transport")}
    rates = {key.lower(): records.positive_at(place, record, key) for key in ("median_us", "p99_us", "bus_GBps")}
    row = Row(**texts, bytes=records.whole_at(place, record, "bytes", 1), **rates)
    if row.p99_us < row.median_us:
        raise RecordError(f"{place}: 'p99_us' is {row.p99_us!r}, below the median of {row.median_us!r}")
    return row


def read(path):
    record = records.json_object(path)
    records.only(path, record, RUN_KEYS)
    commit, date = records.commit_at(path, record, "commit", "|unknown"), records.date_at(path, record, "date")
    rows = []
    for number, entry in enumerate(records.value_at(path, record, "rows", list)):
        row = row_of(f"{path}: rows[{number}]", entry)
        if row.key in [other.key for other in rows]:
            what = f"{row.transport} over {row.link} with {row.bytes} bytes"
            raise RecordError(f"{path}: rows[{number}]: {what} is there already")
        rows.append(row)
    if not rows:
        raise RecordError(f"{path}: 'rows' is empty")
    rates = memory_rates.checked(path, records.value_at(path, record, "rates", list) if "rates" in record else ())
    return Run(commit, date, records.text_at(path, record, "machine"), tuple(rows), rates)
