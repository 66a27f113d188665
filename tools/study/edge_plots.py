"""The rows of a study of one slow edge as pictures, in the report's themes. Pure."""

from gloo_bypass_tools.report import wording
from gloo_bypass_tools.report.plots import DASHES, MARKERS, figure_with, place_of, plain_log_axis, png_of, titled
from gloo_bypass_tools.study import definition, edge_tables


def series_of(rows, variants, segment, transport):
    """(positions, medians, slowest, model) of the variants that were measured."""
    found = [(index, edge_tables.row_at(rows, variant, segment)) for index, variant in enumerate(variants)]
    found = [(index, row) for index, row in found if row is not None and transport in row.measured]
    return (
        [index for index, _ in found],
        [row.measured[transport].median_s for _, row in found],
        [row.measured[transport].p99_s for _, row in found],
        [row.model[transport].schedule_s for _, row in found],
    )


def published_points(axes, rows, plan, theme):
    """Of training over TCP, scaled to these bytes."""
    found = [
        (index, row.published_s)
        for index, variant in enumerate(plan.variants)
        if (row := edge_tables.row_at(rows, variant, "default")) is not None and row.published_s is not None
    ]
    if found:
        axes.plot(
            [at for at, _ in found],
            [value for _, value in found],
            linestyle="none",
            marker="D",
            markersize=6,
            markerfacecolor="none",
            color=theme.faint,
            label="published, by bytes",
        )


def time(rows, plan, study, theme):
    """A line each transport and segment size; dotted, the model's; and the published points."""
    figure, axes = figure_with(theme)
    labels = [study.variant(name).label for name in plan.variants]
    for index, transport in enumerate(plan.transports):
        colour, look = theme.series[place_of(transport, index)], place_of(transport, index)
        for number, segment in enumerate(plan.segments):
            at, medians, tails, model = series_of(rows, plan.variants, segment, transport)
            if not at:
                continue
            axes.errorbar(
                at,
                medians,
                yerr=[[0.0] * len(at), [tail - middle for tail, middle in zip(tails, medians)]],
                color=colour,
                capsize=2.2,
                elinewidth=1,
                linewidth=2,
                marker=MARKERS[look],
                markersize=5.5,
                linestyle=DASHES[0] if number == 0 else "--",
                label=f"{transport}, {definition.SEGMENT_NAMES[segment]}",
            )
            axes.plot(at, model, color=colour, linewidth=1.1, linestyle=":", alpha=0.9 if number == 0 else 0.6)
    published_points(axes, rows, plan, theme)
    axes.set_yscale("log")
    axes.set_xticks(range(len(labels)), labels)
    plain_log_axis(axes.yaxis)
    axes.set_ylabel("seconds, all-reduce", fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.legend(frameon=False, fontsize=9, labelcolor=theme.ink)
    titled(
        axes,
        theme,
        study.title,
        f"median, whisker to the slowest; dotted: Gloo's schedule; {wording.number(plan.bytes / 1e6)} MB",
    )
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
            row = edge_tables.row_at(present, variant, segment, share)
            if row is None or transport not in row.measured:
                continue
            at, one = position + (number - (len(groups) - 1) / 2) * width, row.measured[transport]
            axes.bar(
                at,
                one.median_s,
                width=width * 0.92,
                color=theme.series[look],
                alpha=1.0 if segment == "default" else 0.5,
                label=f"{transport}, {definition.SEGMENT_NAMES[segment]}" if position == 0 else None,
            )
            axes.text(
                at, one.median_s, wording.number(one.median_s), ha="center", va="bottom", fontsize=8, color=theme.ink
            )
    axes.set_xticks(range(len(losses)), [f"{share:g} % loss" if share else "no loss" for share in losses])
    axes.set_ylabel("seconds, all-reduce (median)", fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.legend(frameon=False, fontsize=9, labelcolor=theme.ink)
    titled(axes, theme, f"Loss on the edge, {study.variant(variant).label}", "random loss, each frame by itself")
    return png_of(figure)
