"""The published figures of docs/studies/published-measurements.csv, read and checked.

    published("5.7", "batch-size", "bs=8", "bytes_per_event", "median")      656271000.0, in bytes

Every line is checked when the file is read: a figure that cannot be understood is refused with the line's number, never
skipped.
"""

import functools
import re
from dataclasses import dataclass

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.report import checked_csv
from gloo_bypass_tools.report.records import RecordError

PATH = program_places.data("docs/studies/published-measurements.csv")
KEY = ("table", "study", "variant", "metric", "statistic")
COLUMNS = [*KEY, "unit", "value"]
# Unit of the file -> what a figure is multiplied by to be in bytes, seconds, bit/s, shares or as it is.
UNITS = {"1": 1.0, "MB": 1e6, "GB": 1e9, "GiB": 2.0**30, "s": 1.0, "ms": 1e-3}
UNITS |= {"Gbps": 1e9, "Mbps": 1e6, "%": 0.01, "nats": 1.0}
# mean-below: the mean is less than the value; level: about as much all the time.
STATISTICS = ("count", "sum", "mean", "mean-below", "epoch-mean", "level", "min", "p25", "median", "p75", "max")
# A metric X_ratio is X of the line's variant over X of the study's first one.
RATIO = "_ratio"
FIRST = {
    "barrier": "no-barrier",
    "flow-symmetry": "rank0->rank1",
    "batch-size": "bs=8",
    "precision": "fp32",
    "world-size": "ws=2",
}


class PublishedError(RecordError):
    """A question to the file is wrong."""


@dataclass(frozen=True)
class Figure:
    """One line of the file. `value` as printed, `base` in bytes, seconds, bit/s or as a share."""

    table: str
    study: str
    variant: str
    metric: str
    statistic: str
    unit: str
    value: float

    @property
    def base(self):
        return self.value * UNITS[self.unit]

    @property
    def key(self):
        return tuple(getattr(self, part) for part in KEY)


def figure_of(place, row):
    """A line of the file as a Figure. RecordError names the place and what is wrong there."""
    told = {column: checked_csv.text_at(place, row, column) for column in COLUMNS[:-1]}
    if not re.fullmatch(r"\d+\.\d+|text", row["table"]):
        raise RecordError(f"{place}: table {row['table']!r} is neither a number as in 5.7 nor 'text'")
    for column, known in (("unit", UNITS), ("statistic", STATISTICS)):
        if row[column] not in known:
            raise RecordError(f"{place}: {column} {row[column]!r} is none of {', '.join(known)}")
    return Figure(**told, value=checked_csv.number_at(place, row, "value", least=0.0))


def read(path=PATH):
    """All figures in the order of the file."""
    return checked_csv.read(path, COLUMNS, figure_of, lambda figure: figure.key)


@functools.lru_cache(maxsize=None)
def index(path=PATH):
    return {figure.key: figure for figure in read(path)}


def figure(table, study, variant, metric, statistic, path=PATH):
    """The figure itself. PublishedError names what there is instead."""
    wanted = (table, study, variant, metric, statistic)
    found = index(path)
    if wanted in found:
        return found[wanted]
    for depth, name in enumerate(KEY):
        there = list(dict.fromkeys(key[depth] for key in found if key[:depth] == wanted[:depth]))
        if wanted[depth] not in there:
            what = f"{name} {wanted[depth]!r}" + (f" in {' '.join(wanted[:depth])}" if depth else "")
            raise PublishedError(f"no published figure with {what}: there are {', '.join(there)}")
    raise AssertionError("unreachable: every part was found")


def published(table, study, variant, metric, statistic, path=PATH):
    """A published figure in bytes, seconds, bit/s, as a share or a count."""
    return figure(table, study, variant, metric, statistic, path).base
