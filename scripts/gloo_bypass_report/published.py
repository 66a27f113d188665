"""The published figures that ours stand beside, and their set-up. Pure but for reading published.csv.

Source: "Distributed AI fabrics: a network-side perspective" (master's thesis, 2026), medians of world size 2, local
batch size 8, sequence length 64, FP32, no barrier: tables 5.7 and 5.8. Its T_step and T_ar come from four virtual
processors shared by all ranks, its transport is Gloo's TCP between containers on a Linux bridge.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas

from . import summary

SOURCE = "Distributed AI fabrics: a network-side perspective"
SETTING = {"model": "distilgpt2", "ranks": 2, "batch_size": 8, "seq_len": 64}


@dataclass(frozen=True)
class Beside:
    """One published figure, and ours for each transport where there is one."""

    label: str
    unit: str
    table: str
    published: float
    ours: dict


def figures():
    return pandas.read_csv(Path(__file__).with_name("published.csv"), dtype={"table": str})


def comparable(plan):
    """Whether a measurement's plan is the published setting."""
    return all(plan.get(key) == value for key, value in SETTING.items())


def beside(training, transports, ranks):
    """The published figures with ours. Bytes are those that all ranks sent."""
    keys = {"bytes_per_event": ("sent_bytes", ranks), "t_step": ("step_s", 1), "t_ar": ("all_reduce_s", 1),
            "oh_ar": ("share_percent", 1)}
    rows = []
    for one in figures().itertuples():
        key, factor = keys[one.metric]
        ours = {}
        for transport in transports:
            figure = summary.figure_at(training, key, transport)
            if figure is not None:
                ours[transport] = figure.median * factor
        rows.append(Beside(one.label, one.unit, one.table, one.value, ours))
    return rows
