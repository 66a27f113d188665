"""A study's events as pictures: duration, throughput and bytes of each, beside what was published and modelled.
Pure."""

from dataclasses import dataclass

from gloo_bypass_tools.report import wording
from gloo_bypass_tools.report.plots import figure_with, place_of, png_of, titled
from matplotlib.patheffects import withStroke

from gloo_bypass_tools.study import panels, tables, training_tables

PUBLISHED = "published"
# Looks, as matplotlib takes them: of the quartiles' box, of events, of a figure over a median, of a variant's name.
BOX = {"width": 0.62, "alpha": 0.22, "linewidth": 0}
EVENT = {"linestyle": "none", "marker": "o", "markersize": 3.6, "alpha": 0.6, "markeredgewidth": 0}
BOLD = {"textcoords": "offset points", "ha": "center", "fontweight": "bold"}
FIGURE = BOLD | {"xytext": (0, 2.5), "fontsize": 9, "zorder": 5}
NAME = BOLD | {"xytext": (0, -18), "va": "top", "fontsize": 10, "annotation_clip": False}


@dataclass(frozen=True)
class Quantity:
    """`name` of the picture; `metric` of the published file; drawn in `unit`, so many base units."""

    name: str
    metric: str
    title: str
    unit: str
    base: float
    logarithmic: bool = False
    digits: int = 0  # after the point; 0: as the size of the number has it


DURATION = Quantity("events", "event_duration", "Duration of an event", "seconds", 1.0)
THROUGHPUT = Quantity("throughput-events", "th_peak", "Throughput of an event", "Mbit/s", 1e6, logarithmic=True)
BYTES = Quantity("bytes-events", "bytes_per_event", "Bytes of an event", "MB", 1e6, digits=1)
QUANTITIES = (DURATION, THROUGHPUT, BYTES)


@dataclass(frozen=True)
class Group:
    """What stands at one place: of a transport its events, or the published statistics; in the quantity's unit."""

    variant: str
    name: str
    values: list
    spread: dict  # min, p25, median, p75, max: those there are
    model: float | None = None


def spread_of(values):
    return {name: tables.STATISTICS[name](values) for name in ("min", "p25", "median", "p75", "max") if values}


def groups_of(quantity, plan, runs, figures, model_of):
    """For each variant the published figures where there are any, and each transport. `figures`: those published;
    `model_of(variant, transport)`: in base units, or None."""
    found = []
    for variant in plan.variants:
        wanted = (variant, quantity.metric)
        listed = [figure for figure in figures if (figure.variant, figure.metric) == wanted]
        if published := {figure.statistic: figure.base / quantity.base for figure in listed}:
            found.append(Group(variant, PUBLISHED, [], published))
        for transport in plan.transports:
            samples = training_tables.samples_of(quantity.metric, tables.runs_of(runs, variant, transport))
            values, model = [value / quantity.base for value in samples], model_of(variant, transport)
            model = None if model is None else model / quantity.base
            found.append(Group(variant, transport, values, spread_of(values), model))
    return found


def draw_group(axes, theme, at, group, colour):
    """A box from quartile to quartile, the median as a bar, whiskers to the extremes, every event as a point."""
    spread = group.spread
    if "p25" in spread and "p75" in spread:
        axes.bar(at, spread["p75"] - spread["p25"], bottom=spread["p25"], color=colour, **BOX)
    if "min" in spread or "max" in spread:
        low, high = spread.get("min", spread["median"]), spread.get("max", spread["median"])
        axes.plot([at, at], [low, high], color=colour, linewidth=1, zorder=2)
        for end in (low, high):
            axes.plot([at - 0.1, at + 0.1], [end, end], color=colour, linewidth=1, zorder=2)
    count = len(group.values)
    axes.plot([at + 0.5 * ((i + 0.5) / count - 0.5) for i in range(count)], group.values, color=colour, **EVENT)
    axes.plot([at - 0.31, at + 0.31], [spread["median"]] * 2, color=colour, linewidth=2.4, solid_capstyle="butt")
    if group.model is not None:
        axes.plot([at - 0.4, at + 0.4], [group.model] * 2, color=theme.ink, linewidth=1.3, linestyle=(0, (2, 1.4)))


def places_of(groups):
    """Where each stands: those of a variant side by side, and a gap after it."""
    places, at, before = [], 0.0, None
    for group in groups:
        at += 0.0 if before is None else 1.0 if group.variant == before else 1.5
        places.append(at)
        before = group.variant
    return places


def name_groups(axes, theme, groups, places):
    axes.set_xticks(places, [group.name for group in groups], fontsize=9 if len(groups) <= 6 else 7.5)
    axes.tick_params(axis="x", length=0, labelcolor=theme.ink)
    for variant in dict.fromkeys(group.variant for group in groups):
        mine = [place for place, group in zip(places, groups) if group.variant == variant]
        below = sum(mine) / len(mine), 0
        axes.annotate(variant, below, xycoords=("data", "axes fraction"), color=theme.ink, **NAME)


def make_room(axes, quantity):
    """For the figures above; from 0 on, unless logarithmic."""
    low, high = axes.get_ylim()
    if quantity.logarithmic:
        axes.set_ylim(low, high * (high / low) ** 0.1)
    else:
        axes.set_ylim(0, high * 1.1)


def event_plot(quantity, plan, groups, theme):
    """None where nothing was measured."""
    groups = [group for group in groups if "median" in group.spread]
    if not any(group.values for group in groups):
        return None
    figure, axes = figure_with(theme)
    places = places_of(groups)
    if quantity.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    for at, group in zip(places, groups):
        own = group.name != PUBLISHED
        colour = theme.series[place_of(group.name, plan.transports.index(group.name))] if own else theme.faint
        draw_group(axes, theme, at, group, colour)
        median = group.spread["median"]
        text = f"{median:,.{quantity.digits}f}" if quantity.digits else wording.number(median)
        halo = [withStroke(linewidth=2.5, foreground=theme.paper)]
        axes.annotate(text, (at, median), color=colour, path_effects=halo, **FIGURE)
    make_room(axes, quantity)
    name_groups(axes, theme, groups, places)
    panels.label_levels(axes, theme, quantity.unit + (", logarithmic" if quantity.logarithmic else ""))
    dashed = "; dashed: the model" if any(group.model is not None for group in groups) else ""
    titled(axes, theme, quantity.title, f"points: events; box: quartiles; bar, figure: median{dashed}")
    return png_of(figure)
