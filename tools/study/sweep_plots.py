"""A sweep's quantities as pictures, one each, in the report's themes. Pure."""

from gloo_bypass_tools.report.plots import DASHES, MARKERS, figure_with, place_of, png_of, titled
from gloo_bypass_tools.study import sweep_tables
from gloo_bypass_tools.study.pictures import in_both

# Of series (random, burst; algorithms), within a transport's colour.
SERIES_LINES = ("-", "--", "-.")
# Transports and series stand a little beside each other, so that whiskers do not hide whiskers.
BESIDE = 0.035


def positions_of(points):
    """Label -> place on the axis, in the order of the points; points of several series share theirs."""
    return {label: index for index, label in enumerate(dict.fromkeys(point.label for point in points))}


def series_of(points):
    """The lines of a transport. A point without series begins all of them."""
    return list(dict.fromkeys(point.series for point in points if point.series)) or [""]


def quantity_plot(rows, key, plan, study, theme):
    quantity = sweep_tables.QUANTITIES[key]
    present = [row for row in rows if row.key == key]
    points = [study.variant(name) for name in plan.variants]
    places, series = positions_of(points), series_of(points)
    figure, axes = figure_with(theme)
    values = []
    for index, transport in enumerate(plan.transports):
        look = place_of(transport, index)
        colour = theme.series[look]
        for number, name in enumerate(series):
            listed = [
                (places[row.point.label], row.figures[transport])
                for row in present
                if row.point.series in ("", name) and transport in row.figures
            ]
            if not listed:
                continue
            shift = BESIDE * (index * len(series) + number - (len(plan.transports) * len(series) - 1) / 2)
            at, figures = [place + shift for place, _ in listed], [one for _, one in listed]
            values += [value for one in figures for value in (one.low, one.high)]
            axes.errorbar(
                at,
                [one.median for one in figures],
                yerr=[[one.median - one.low for one in figures], [one.high - one.median for one in figures]],
                color=colour,
                capsize=2.2,
                elinewidth=0.9,
                linewidth=2,
                marker=MARKERS[number if len(series) > 1 else look],
                markersize=5.5,
                linestyle=SERIES_LINES[number % len(SERIES_LINES)] if len(series) > 1 else DASHES[0],
                label=f"{transport}, {name}" if name else transport,
            )
            modelled = [(place + shift, one.model) for place, one in listed if one.model]
            axes.plot(
                [place for place, _ in modelled],
                [model for _, model in modelled],
                color=colour,
                linewidth=1.1,
                linestyle=(0, (1, 1.5)),
                marker="_",
                markersize=9,
                alpha=0.8,
            )
    finish(axes, theme, study, quantity, places, values)
    return png_of(figure)


def finish(axes, theme, study, quantity, places, values):
    """Scales, labels, legend."""
    if quantity.logarithmic and values and min(values) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=min(0.0, *values) if values else 0.0)
    axes.set_xticks(range(len(places)), list(places))
    axes.set_xlabel(study.axis, fontsize=10)
    axes.set_ylabel(quantity.unit or "number", fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    # Below the axes: any place within hides a whisker somewhere.
    _, labels = axes.get_legend_handles_labels()
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.45, -0.2),
        ncols=3 if len(labels) > 4 else 2,
        frameon=False,
        fontsize=8.5,
        labelcolor=theme.ink,
        handlelength=3.2,
    )
    titled(axes, theme, quantity.heading, "median, whiskers to the extremes; fine dots: the model")


def all_of(rows, plan, study):
    """A quantity each, in a section of its own."""
    found = []
    for key in (one for one in study.quantities if any(row.key == one for row in rows)):
        alt = f"{sweep_tables.QUANTITIES[key].label} over {study.axis}, a line for each transport; the table has the "
        alt += "same figures."

        def draw(theme):
            return quantity_plot(rows, key, plan, study, theme)

        found.append(in_both(key, key.replace("_", "-"), alt, draw))
    return found
