"""The figures of four articles about data-parallel training, docs/studies/published-articles.csv, read and checked."""

from dataclasses import dataclass

from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.report import checked_csv
from gloo_bypass_tools.report.records import RecordError

PATH = ROOT / "docs/studies/published-articles.csv"
COLUMNS = ("article", "study", "variant", "metric", "unit", "value")
UNITS = ("1/s", "%", "TFLOP/s", "us", "ms", "s", "GB/s", "MB", "GB", "1")


@dataclass(frozen=True)
class Figure:
    """One line of the file; `variant` may be empty."""

    article: str
    study: str
    variant: str
    metric: str
    unit: str
    value: float

    @property
    def key(self):
        return self.article, self.study, self.variant, self.metric


def figure_of(place, row):
    told = {column: checked_csv.text_at(place, row, column) for column in ("article", "study", "metric", "unit")}
    if row["unit"] not in UNITS:
        raise RecordError(f"{place}: unit {row['unit']!r} is none of {', '.join(UNITS)}")
    return Figure(**told, variant=row["variant"], value=checked_csv.number_at(place, row, "value", least=0.0))


def read(path=PATH):
    return checked_csv.read(path, COLUMNS, figure_of, lambda figure: figure.key)
