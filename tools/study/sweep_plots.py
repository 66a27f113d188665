"""A sweep's quantities as pictures, one each, in the report's themes. Pure."""

from gloo_bypass_tools.report.plots import DASHES, MARKERS, figure_with, place_of, png_of, titled
from gloo_bypass_tools.study import panels, sweep_tables
from gloo_bypass_tools.study.pictures import in_both

# Of series (random, burst; algorithms), within a transport's colour.
SERIES_LINES = ("-", "--", "-.")
# Transports and series stand a little beside each other, so that whiskers do not hide whiskers.
BESIDE = 0.035
MODEL = {"linewidth": 1.1, "linestyle": (0, (1, 1.5)), "marker": "_", "markersize": 9, "alpha": 0.8}
# Below the axes: any place within hides a whisker somewhere.
KEY = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.2), "frameon": False, "fontsize": 8.5, "handlelength": 3.2}


def positions_of(points):
    """Label -> place on the axis, in the order of the points; points of several series share theirs."""
    return {label: index for index, label in enumerate(dict.fromkeys(point.label for point in points))}


def series_of(points):
    """The lines of a transport. A point without series begins all of them."""
    return list(dict.fromkeys(point.series for point in points if point.series)) or [""]


def draw_line(axes, listed, shift, colour, **look):
    """`listed`: (place, figure) each. Returns the ends of the whiskers."""
    at, figures = [place + shift for place, _ in listed], [one for _, one in listed]
    middle, low, high = ([getattr(one, name) for one in figures] for name in ("median", "low", "high"))
    panels.whiskers(axes, at, middle, low, high, color=colour, elinewidth=0.9, **look)
    modelled = [(place, one.model) for place, one in zip(at, figures) if one.model]
    axes.plot([place for place, _ in modelled], [model for _, model in modelled], color=colour, **MODEL)
    return low + high


def quantity_plot(rows, key, plan, study, theme):
    quantity = sweep_tables.QUANTITIES[key]
    present = [row for row in rows if row.key == key]
    points = [study.variant(name) for name in plan.variants]
    places, series = positions_of(points), series_of(points)
    figure, axes = figure_with(theme)
    values, several = [], len(series) > 1
    for index, transport in enumerate(plan.transports):
        place = place_of(transport, index)
        for number, name in enumerate(series):
            drawn = [row for row in present if row.point.series in ("", name) and transport in row.figures]
            if not drawn:
                continue
            listed = [(places[row.point.label], row.figures[transport]) for row in drawn]
            shift = BESIDE * (index * len(series) + number - (len(plan.transports) * len(series) - 1) / 2)
            look = {
                "marker": MARKERS[number if several else place],
                "linestyle": SERIES_LINES[number % len(SERIES_LINES)] if several else DASHES[0],
                "label": f"{transport}, {name}" if name else transport,
            }
            values += draw_line(axes, listed, shift, theme.series[place], **look)
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
    panels.label_levels(axes, theme, quantity.unit or "number")
    _, labels = axes.get_legend_handles_labels()
    axes.legend(ncols=3 if len(labels) > 4 else 2, labelcolor=theme.ink, **KEY)
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
