"""The published figures that ours stand beside, and their set-up. Pure but for reading
docs/studies/published-measurements.csv.

Source: "Distributed AI fabrics: a network-side perspective" (master's thesis, 2026), medians of world size 2, local
batch size 8, sequence length 64, FP32, a barrier after each step, as ddp_train has one: tables 5.2 and 5.3. Its T_step
and T_ar come from four virtual processors shared by all ranks, its transport is Gloo's TCP between containers on a
Linux bridge.
"""

from dataclasses import dataclass

from gloo_bypass_tools.report import measurements, summary

SOURCE = "Distributed AI fabrics: a network-side perspective"
# Label, unit here, metric and table of each figure shown.
FIGURES = (
    ("Bytes on the wire of an all-reduce", "MB", "bytes_per_event", "5.2"),
    ("Step, T_step", "s", "t_step", "5.3"),
    ("All-reduce, T_ar", "s", "t_ar", "5.3"),
    ("T_ar of the step, OH_ar", "%", "oh_ar", "5.3"),
)
SETTING = {"model": "distilgpt2", "ranks": 2, "batch_size": 8, "seq_len": 64}


@dataclass(frozen=True)
class Beside:
    """One published figure, and ours for each transport where there is one."""

    label: str
    unit: str
    table: str
    published: float
    ours: dict


def comparable(plan):
    """Whether a measurement's plan is the published setting. Arguments for the trainer may change any part of it."""
    return not plan.get("trainer_arguments") and all(plan.get(key) == value for key, value in SETTING.items())


def beside(training, transports, ranks):
    """The published figures with ours. Bytes are those that all ranks sent."""
    keys = {
        "bytes_per_event": ("sent_bytes", ranks),
        "t_step": ("step_s", 1),
        "t_ar": ("all_reduce_s", 1),
        "oh_ar": ("share_percent", 1),
    }
    rows = []
    for label, unit, metric, table in FIGURES:
        key, factor = keys[metric]
        ours = {}
        for transport in transports:
            figure = summary.figure_at(training, key, transport)
            if figure is not None:
                ours[transport] = figure.median * factor
        value = measurements.published(table, "barrier", "barrier", metric, "median") / measurements.UNITS[unit]
        rows.append(Beside(label, unit, table, value, ours))
    return rows
