"""Who sent how much to whom, before and in training, as heat maps with figures. Pure."""

import math

from gloo_bypass_tools.report.plots import png_of
from matplotlib.colors import LinearSegmentedColormap

from gloo_bypass_tools.study import panels

PHASES = (("before", "before training"), ("training", "in training"))
# Of more ranks the figures would not be legible.
MOST_FIGURES = 6


def shade_of(megabytes, most):
    """0 to 1, logarithmic from 0.1 MB on: what is a thousandth is still seen."""
    return 0.0 if megabytes <= 0.1 else math.log(megabytes / 0.1) / math.log(max(most, 1.0) / 0.1)


def colours_of(theme):
    return LinearSegmentedColormap.from_list("traffic", [theme.paper, theme.series[1]])


def figure_text(megabytes):
    if megabytes <= 0:
        return ""
    return f"{megabytes:,.0f}" if megabytes >= 10 else f"{megabytes:.1f}" if megabytes >= 0.05 else "<0.1"


def heat_map(axes, theme, matrix, names, most):
    shades = [[shade_of(matrix.get((start, end), 0.0), most) for end in names] for start in names]
    axes.imshow(shades, cmap=colours_of(theme), vmin=0, vmax=1.25, aspect="auto")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for row, start in enumerate(names):
        for column, end in enumerate(names):
            if len(names) <= MOST_FIGURES:
                text = "\u00b7" if start == end else figure_text(matrix.get((start, end), 0.0))
                size = 9 if len(names) <= 4 else 7.5
                axes.text(column, row, text, ha="center", va="center", fontsize=size, color=theme.ink)


def matrix(flows, variant, transports, theme):
    """`flows`: (variant, transport, phase) -> {(from, to): MB}. A column for each transport, a row for each phase; one
    scale of colours."""
    listed = {key[1:]: one for key, one in flows.items() if key[0] == variant}
    names = {name for one in listed.values() for direction in one for name in direction}
    names = sorted(names, key=lambda name: (len(name), name))
    most = max((size for one in listed.values() for size in one.values()), default=1.0)
    height = 0.4 + 0.3 * max(3, min(len(names), 8))
    heights, title = [height] * len(PHASES), f"Who sent to whom, MB, {variant}"
    figure, axes = panels.panels(theme, len(transports), heights, title, share_x="all")
    panels.name_columns(axes, transports, theme)
    for column, transport in enumerate(transports):
        for row, (phase, _) in enumerate(PHASES):
            if (transport, phase) in listed:
                heat_map(axes[row][column], theme, listed[transport, phase], names, most)
            else:
                panels.empty_panel(axes[row][column], theme, "not measured")
    for row, (_, said) in enumerate(PHASES):
        axes[row][0].set_ylabel(said, fontsize=9.5)
    panels.label_time(figure, theme, "from the row's rank to the column's; a dot: itself")
    return png_of(figure)
