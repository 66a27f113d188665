"""A study's rows as pictures, in the report's themes. Pure."""

from gloo_bypass_report import wording
from gloo_bypass_report.plots import DASHES, MARKERS, figure_with, place_of, png_of, titled

from . import catalogue, tables

DESCRIPTIONS = {
    "time": "Time of the all-reduce over the variants of the slow edge for each transport and segment size, with the model's lines.",
    "loss": "Time of the all-reduce with loss on the slow edge, for each transport and segment size.",
}


def series_of(rows, variants, segment, transport):
    """(positions, medians, slowest, model) of the variants that were measured."""
    found = [(index, tables.row_at(rows, variant, segment)) for index, variant in enumerate(variants)]
    found = [(index, row) for index, row in found if row is not None and transport in row.measured]
    return ([index for index, _ in found], [row.measured[transport].median_s for _, row in found],
            [row.measured[transport].p99_s for _, row in found], [row.model[transport].schedule_s for _, row in found])


def time(rows, plan, study, theme):
    """A line each transport and segment size; dotted, the model's."""
    figure, axes = figure_with(theme)
    labels, slowest = [study.variant(name).label for name in plan.variants], 0.0
    for index, transport in enumerate(plan.transports):
        colour, look = theme.series[place_of(transport, index)], place_of(transport, index)
        for number, segment in enumerate(plan.segments):
            at, medians, tails, model = series_of(rows, plan.variants, segment, transport)
            if not at:
                continue
            axes.errorbar(at, medians, yerr=[[0.0] * len(at), [tail - middle for tail, middle in zip(tails, medians)]], color=colour, capsize=2.2,
                          elinewidth=1, linewidth=2, marker=MARKERS[look], markersize=5.5, linestyle=DASHES[0] if number == 0 else "--",
                          label=f"{transport}, {catalogue.SEGMENT_NAMES[segment]}")
            axes.plot(at, model, color=colour, linewidth=1.1, linestyle=":", alpha=0.9 if number == 0 else 0.6)
            slowest = max(slowest, *tails)
    axes.set_yscale("log")
    axes.set_xticks(range(len(labels)), labels)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("seconds, all-reduce", fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.legend(frameon=False, fontsize=9, labelcolor=theme.ink)
    titled(axes, theme, study.title, f"median, whisker to the slowest; dotted: Gloo's schedule; {wording.number(plan.bytes / 1e6)} MB")
    return png_of(figure)


def loss(rows, plan, study, theme):
    """Bars by loss, of the variant that has most of them."""
    variant = plan.lossy[-1]
    present = [row for row in rows if row.variant == variant]
    losses = sorted({row.loss_percent for row in present})
    figure, axes = figure_with(theme)
    groups = [(transport, segment) for segment in plan.segments for transport in plan.transports]
    width = 0.8 / len(groups)
    for number, (transport, segment) in enumerate(groups):
        look = place_of(transport, plan.transports.index(transport))
        for position, share in enumerate(losses):
            row = tables.row_at(present, variant, segment, share)
            if row is None or transport not in row.measured:
                continue
            at, one = position + (number - (len(groups) - 1) / 2) * width, row.measured[transport]
            axes.bar(at, one.median_s, width=width * 0.92, color=theme.series[look], alpha=1.0 if segment == "default" else 0.5,
                     label=f"{transport}, {catalogue.SEGMENT_NAMES[segment]}" if position == 0 else None)
            axes.text(at, one.median_s, wording.number(one.median_s), ha="center", va="bottom", fontsize=8, color=theme.ink)
    axes.set_xticks(range(len(losses)), [f"{share:g} % loss" if share else "no loss" for share in losses])
    axes.set_ylabel("seconds, all-reduce (median)", fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.legend(frameon=False, fontsize=9, labelcolor=theme.ink)
    titled(axes, theme, f"Loss on the edge, {study.variant(variant).label}", "random loss, each frame by itself")
    return png_of(figure)


def all_of(rows, plan, study, theme):
    """File name -> PNG, for what there are figures for."""
    made = {}
    if rows:
        made["time"] = time(rows, plan, study, theme)
    if plan.lossy and any(row.loss_percent and row.variant == plan.lossy[-1] for row in rows):
        made["loss"] = loss(rows, plan, study, theme)
    return made
