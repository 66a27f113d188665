"""A study's summary as lines of one form, whatever its layout. Pure."""

from dataclasses import dataclass, fields

from gloo_bypass_tools.study import definition


@dataclass(frozen=True)
class Line:
    """One figure over one transport, in `unit`. `table`: of the published file, or ''. `published`, `model`: None where
    there is none."""

    table: str
    variant: str
    metric: str
    statistic: str
    unit: str
    transport: str
    published: float | None
    measured: float
    model: float | None

    @property
    def figure(self):
        """What it is a figure of, over any transport."""
        return self.table, self.variant, self.metric, self.statistic


COLUMNS = tuple(one.name for one in fields(Line))


def of_training(line):
    return [Line(**line)]


def of_sweep(line):
    """The median, and the extremes of its samples."""
    told = "", line["point"], line["quantity"]
    rest = line["unit"], line["transport"]
    return [
        Line(*told, "median", *rest, line["published"], line["median"], line["model"]),
        Line(*told, "min", *rest, None, line["low"], None),
        Line(*told, "max", *rest, None, line["high"], None),
    ]


def of_edge(line):
    parts = [line["variant"]]
    if line["loss_percent"]:
        parts.append(f"{line['loss_percent']:g} % lost")
    parts.append(f"segments {definition.SEGMENT_NAMES[line['segment']]}")
    told, rest = ("", ", ".join(parts), "t_ar"), ("s", line["transport"])
    model = line["schedule_s"] if line["repeated_s"] is None else line["repeated_s"]
    return [
        Line(*told, "median", *rest, line["published_scaled_s"], line["median_s"], model),
        Line(*told, "p99", *rest, None, line["p99_s"], None),
    ]


LAYOUTS = {definition.PUBLISHED: of_training, definition.SWEEP: of_sweep, definition.EDGE: of_edge}


def of_summary(study, summary):
    """Of a layout's Summary."""
    return [one for line in summary.csv_lines() for one in LAYOUTS[study.layout](line)]
