"""What the tables of all studies have in common: samples of runs, and the project's targets. Pure."""

import statistics
from dataclasses import dataclass

from gloo_bypass_tools.common.samples import quantile

# Of the published file, over the samples of all runs.
STATISTICS = {
    "min": min,
    "max": max,
    "p25": lambda values: quantile(values, 0.25),
    "p75": lambda values: quantile(values, 0.75),
} | {
    name: function
    for function, names in (
        (statistics.median, ("median", "level")),
        (statistics.mean, ("mean", "sum", "count", "epoch-mean", "mean-below")),
    )
    for name in names
}


@dataclass(frozen=True)
class Target:
    """`met` is None where it was not measured."""

    label: str
    wanted: str
    measured: str
    met: bool | None


def target_of(label, wanted, value, most):
    if value is None:
        return Target(label, wanted, "not measured", None)
    return Target(label, wanted, f"{value:.2f} x", value <= most)


def runs_of(record_runs, variant, transport):
    return [run for run in record_runs if run["cell"] == {"variant": variant, "transport": transport}]


def median(values):
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def quotient(top, bottom):
    """None where one is unknown."""
    return top / bottom if top is not None and bottom else None
