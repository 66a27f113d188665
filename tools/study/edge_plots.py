"""The rows of a study of one slow edge as pictures, in the report's themes. Pure."""

from gloo_bypass_tools.report import wording
from gloo_bypass_tools.report.plots import DASHES, MARKERS, figure_with, place_of, plain_log_axis, png_of, titled
from gloo_bypass_tools.study import definition, edge_tables, panels

PUBLISHED = {"linestyle": "none", "marker": "D", "markersize": 6, "markerfacecolor": "none"}


def label_of(transport, segment):
    return f"{transport}, {definition.SEGMENT_NAMES[segment]}"


def rows_at(rows, plan, segment):
    """(position, row) of the variants that were measured without loss."""
    found = enumerate(edge_tables.row_at(rows, variant, segment) for variant in plan.variants)
    return [(index, row) for index, row in found if row is not None]


def published_points(axes, rows, plan, theme):
    """Of training over TCP, scaled to these bytes."""
    found = [(at, row.published_s) for at, row in rows_at(rows, plan, "default") if row.published_s is not None]
    if found:
        axes.plot(*zip(*found), color=theme.faint, label="published, by bytes", **PUBLISHED)


def finish(axes, theme, y_label, title, subtitle):
    panels.label_levels(axes, theme, y_label)
    axes.legend(frameon=False, fontsize=9, labelcolor=theme.ink)
    titled(axes, theme, title, subtitle)


def time(rows, plan, study, theme):
    """A line each transport and segment size; dotted, the model's; and the published points."""
    figure, axes = figure_with(theme)
    labels = [study.variant(name).label for name in plan.variants]
    for index, transport in enumerate(plan.transports):
        place = place_of(transport, index)
        for number, segment in enumerate(plan.segments):
            listed = [(at, row) for at, row in rows_at(rows, plan, segment) if transport in row.measured]
            if not listed:
                continue
            at, measured = [index for index, _ in listed], [row.measured[transport] for _, row in listed]
            medians, slowest = [one.median_s for one in measured], [one.p99_s for one in measured]
            colour, dash = theme.series[place], DASHES[0] if number == 0 else "--"
            look = {"marker": MARKERS[place], "linestyle": dash, "label": label_of(transport, segment)}
            panels.whiskers(axes, at, medians, medians, slowest, color=colour, elinewidth=1, **look)
            model = [row.model[transport].schedule_s for _, row in listed]
            axes.plot(at, model, color=colour, linewidth=1.1, linestyle=":", alpha=0.9 if number == 0 else 0.6)
    published_points(axes, rows, plan, theme)
    axes.set_yscale("log")
    axes.set_xticks(range(len(labels)), labels)
    plain_log_axis(axes.yaxis)
    size = wording.number(plan.bytes / 1e6)
    subtitle = f"median, whisker to the slowest; dotted: Gloo's schedule; {size} MB"
    finish(axes, theme, "seconds, all-reduce", study.title, subtitle)
    return png_of(figure)


def loss(rows, plan, study, theme):
    """Bars by loss, of the last variant that has any."""
    variant = [row.variant for row in rows if row.loss_percent][-1]
    losses = sorted({row.loss_percent for row in rows if row.variant == variant})
    figure, axes = figure_with(theme)
    groups = [(transport, segment) for segment in plan.segments for transport in plan.transports]
    width = 0.8 / len(groups)
    for number, (transport, segment) in enumerate(groups):
        colour = theme.series[place_of(transport, plan.transports.index(transport))]
        look = {"width": width * 0.92, "color": colour, "alpha": 1.0 if segment == "default" else 0.5}
        for position, share in enumerate(losses):
            row = edge_tables.row_at(rows, variant, segment, share)
            if row is None or transport not in row.measured:
                continue
            at, median_s = position + (number - (len(groups) - 1) / 2) * width, row.median_s(transport)
            axes.bar(at, median_s, label=label_of(transport, segment) if position == 0 else None, **look)
            text = wording.number(median_s)
            axes.text(at, median_s, text, ha="center", va="bottom", fontsize=8, color=theme.ink)
    axes.set_xticks(range(len(losses)), [f"{share:g} % loss" if share else "no loss" for share in losses])
    title = f"Loss on the edge, {study.variant(variant).label}"
    finish(axes, theme, "seconds, all-reduce (median)", title, "random loss, each frame by itself")
    return png_of(figure)
