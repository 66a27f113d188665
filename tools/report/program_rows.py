"""A stored run of programs as rows of quickstart's table. Pure."""

from gloo_bypass_tools.report import programs
from gloo_bypass_tools.report.results_chart import size_label
from gloo_bypass_tools.report.summary import SMALL_BYTES, Figure, Row, ratios_of

# Shown where it was measured: what a reader of the short table looks for.
QUANTITIES = (
    ("decoding", programs.TOKEN, "Tensor-parallel decoding", "tokens/s"),
    ("all_reduce", programs.FIRST, "all_reduce of {size}, first calls", "us"),
    ("all_reduce", programs.HOT, "all_reduce of {size}", "us"),
    ("all_reduce", programs.ADDED, "all_reduce of {size} adds to {ms:g} ms of computing", "us"),
)


def figure_of(row, unit):
    if unit == "tokens/s":
        return Figure(1e6 / row.median_us, 1e6 / row.p99_us, row.samples)
    scale = 1e-3 if unit == "ms" else 1.0
    return Figure(scale * row.median_us, scale * row.p99_us, row.samples)


def row_of(run, key, text, unit):
    if unit == "us" and key.bytes > SMALL_BYTES:
        unit = "ms"
    better = "higher" if unit == "tokens/s" else "lower"
    figures = {
        transport: figure_of(run.row(key, transport), unit)
        for transport in run.transports
        if run.row(key, transport) is not None
    }
    ratios = ratios_of(figures, run.transports, better)
    label = text.format(size=size_label(key.bytes), ms=key.compute_ms)
    return Row(section_of(run), row_key(key), label, unit, better, figures, ratios)


def row_key(key):
    return f"{key.quantity}_{key.bytes}_{key.compute_ms:g}"


def section_of(run):
    return f"Through torch.distributed, PyTorch {run.torch}"


def rows_of(run):
    found = []
    for program, quantity, text, unit in QUANTITIES:
        keys = [key for key in run.keys() if (key.program, key.quantity) == (program, quantity)]
        found += [row_of(run, key, text, unit) for key in sorted(keys, key=lambda one: (one.compute_ms, one.bytes))]
    return found
