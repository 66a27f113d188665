"""One stored run of programs, from which tables are made.

    {"schema": "gloo-bypass/programs/1", "commit": "0123abc", "date": "2026-11-27", "machine": {"processor": ...,
     "cores": 2, ...}, "load_before": 0.1, "others_cores": 0.02, "rates": [...], "python": "3.11.2", "torch":
     "2.13.0+cpu", "gloo_bypass": "0.1.0", "gpus": [], "ranks": 2, "threads": 1, "rounds": 5, "effort": "full",
     "transports": ["TCP", "DPDK"], "libraries": {"OpenMPI": "openmpi 5.0.11, ..."},
     "left_out": [{"what": "training", "why": ...}], "digests": {"decoding": ...}, "rows": [
        {"program": "all_reduce", "quantity": "one after the other", "bytes": 8192, "compute_ms": 0, "transport":
         "DPDK", "median_us": 51.0, "p99_us": 90.0, "mean_us": 55.0, "samples": 3000, "rounds_us": [50.0, ...]}, ...]}

Medians are those of the rounds' medians, `p99_us` is the worst round's. Where a quantity is a difference it may be
below 0. A row that cannot be understood is refused, never skipped.
"""

import datetime
import re
import statistics
from dataclasses import dataclass, field, fields

from gloo_bypass_tools.report import machine, memory_rates, programs
from gloo_bypass_tools.report.records import (
    RecordError,
    benchmark_report,
    left_out_at,
    measured_at,
    number_at,
    object_at,
    only,
    positive_at,
    text_at,
    value_at,
    whole_at,
)
from gloo_bypass_tools.report.results_chart import size_label

SCHEMA = "gloo-bypass/programs/1"
# A program that sends nothing may take so much longer over one transport than over another: else the machine was not
# steady, and ratios say little.
STEADY = 1.1


@dataclass(frozen=True)
class Row:
    key: programs.Key
    transport: str
    median_us: float
    p99_us: float
    mean_us: float
    samples: int
    rounds_us: tuple


def count_in_words(gpus):
    """Such as "2 NVIDIA H200"."""
    return " and ".join(f"{gpus.count(name)} {name}" for name in dict.fromkeys(gpus))


@dataclass(frozen=True)
class Run:
    commit: str
    date: datetime.date
    machine: dict
    load_before: float
    others_cores: float | None
    rates: tuple
    python: str
    torch: str
    ranks: int
    threads: int
    rounds: int
    effort: str
    transports: tuple
    left_out: tuple
    rows: tuple
    by_place: dict = field(default_factory=dict, compare=False)
    libraries: dict = field(default_factory=dict)  # versions of those that stand among the transports
    gpus: tuple = ()  # those that the ranks share

    def row(self, key, transport):
        """None where it was not measured."""
        return self.by_place.get((key, transport))

    def keys(self):
        return list(dict.fromkeys(row.key for row in self.rows))

    def ratio(self, key, transport):
        """(how many times as fast as the first transport, and the least and largest of rounds next to each other); None
        where it cannot be said."""
        base, other = self.row(key, self.transports[0]), self.row(key, transport)
        if base is None or other is None or min(base.median_us, other.median_us) <= 0:
            return None
        each = [first / second for first, second in zip(base.rounds_us, other.rounds_us) if min(first, second) > 0]
        value = base.median_us / other.median_us
        return (value, min(each, default=value), max(each, default=value))

    @property
    def title(self):
        """Ranks and machine in a phrase."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        on_gpus = any(programs.BY_NAME[row.key.program].device == "cuda" for row in self.rows)
        gpus = f", with {count_in_words(self.gpus)}" if on_gpus else ""
        return f"{self.ranks} ranks of {threads} on {machine.in_words(self.machine)}{gpus}"

    @property
    def doubt(self):
        """What took differently long although it sends nothing; '' where the machine was steady."""
        said = []
        for key in self.keys():
            times = [row.median_us for row in self.rows if row.key == key]
            if key.quantity in programs.ALONE and max(times) > STEADY * min(times):
                size = f" beside {size_label(key.bytes)}" if key.bytes else ""
                after = f" ({key.compute_ms:g} ms)" if key.compute_ms else ""
                said.append(
                    f"{key.program}, {key.quantity}{size}{after}: {max(times) / min(times):.2f} times as long over "
                    "one transport as over another"
                )
        return "; ".join(said)


KEYS = {one.name for one in fields(Run)} - {"by_place"} | {"schema", "gloo_bypass", "digests"}
ROW_KEYS = {one.name for one in (*fields(programs.Key), *fields(Row))} - {"key"}


def key_of(place, record):
    program = text_at(place, record, "program")
    if program not in programs.BY_NAME:
        raise RecordError(f"{place}: 'program' is {program!r}; there are {', '.join(programs.BY_NAME)}")
    milliseconds = number_at(place, record, "compute_ms")
    if milliseconds < 0:
        raise RecordError(f"{place}: 'compute_ms' is {milliseconds!r}, below 0")
    return programs.Key(program, text_at(place, record, "quantity"), whole_at(place, record, "bytes"), milliseconds)


def row_of(place, record, transports):
    only(place, object_at(place, record), ROW_KEYS)
    key, transport = key_of(place, record), text_at(place, record, "transport")
    if transport not in transports:
        raise RecordError(f"{place}: 'transport' is {transport!r}, none of the run's {', '.join(transports)}")
    number = number_at if programs.is_difference(key) else positive_at
    rounds = value_at(place, record, "rounds_us", list)
    each = tuple(number(f"{place}: rounds_us", dict(enumerate(rounds)), index) for index in range(len(rounds)))
    times = (number(place, record, name) for name in ("median_us", "p99_us", "mean_us"))
    row = Row(key, transport, *times, whole_at(place, record, "samples", 1), each)
    if row.p99_us < row.median_us:
        raise RecordError(f"{place}: 'p99_us' is {row.p99_us!r}, below the median of {row.median_us!r}")
    if not each or abs(statistics.median(each) - row.median_us) > 0.01 * abs(row.median_us) + 0.01:
        raise RecordError(f"{place}: 'median_us' is {row.median_us!r}, not the median of 'rounds_us'")
    return row


def torch_at(place, record):
    version = text_at(place, record, "torch")
    if not re.match(r"\d+\.\d+", version):
        raise RecordError(f"{place}: 'torch' is {version!r}, not like 2.13.0+cpu")
    return version


def names_at(place, record, key):
    names = value_at(place, record, key, list)
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise RecordError(f"{place}: '{key}' is {names!r}, no list of different names")
    return tuple(names)


def gpus_at(path, record):
    """Older runs have none."""
    names = value_at(path, {"gpus": []} | record, "gpus", list)
    return tuple(text_at(f"{path}: gpus", dict(enumerate(names)), number) for number in range(len(names)))


def read(path):
    record = benchmark_report(path, SCHEMA)
    only(path, record, KEYS)
    measured = measured_at(path, record, "( with uncommitted changes)?|unknown")
    transports = names_at(path, record, "transports")
    effort = text_at(path, record, "effort")
    if effort not in programs.EFFORTS:
        raise RecordError(f"{path}: 'effort' is {effort!r}, none of {', '.join(programs.EFFORTS)}")
    rows, by_place = [], {}
    for number, entry in enumerate(value_at(path, record, "rows", list)):
        row = row_of(f"{path}: rows[{number}]", entry, transports)
        if (row.key, row.transport) in by_place:
            raise RecordError(f"{path}: rows[{number}]: {row.key.quantity} over {row.transport} is there already")
        rows.append(row)
        by_place[row.key, row.transport] = row
    if not rows:
        raise RecordError(f"{path}: 'rows' is empty")
    left_out = left_out_at(path, record)
    value_at(path, record, "digests", dict)
    others = value_at(path, {"libraries": {}} | record, "libraries", dict)  # older runs have none
    return Run(
        *measured,
        memory_rates.checked(path, value_at(path, record, "rates", list)),
        text_at(path, record, "python"),
        torch_at(path, record),
        whole_at(path, record, "ranks", 2),
        whole_at(path, record, "threads", 1),
        whole_at(path, record, "rounds", 1),
        effort,
        transports,
        left_out,
        tuple(rows),
        by_place,
        {name: text_at(f"{path}: libraries", others, name) for name in others},
        gpus_at(path, record),
    )
