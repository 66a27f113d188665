"""A stored run as a picture: utilisation against rate, a column for each transport, a row for each place; dashed, the
model. Pure but for write()."""

from gloo_bypass_tools.report import plots
from gloo_bypass_tools.study import panels
from gloo_bypass_tools.study.utilisation import cells, stored
from gloo_bypass_tools.study.utilisation.cells import Cell
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

HEIGHT_IN = 2.2
LEGEND_IN = 0.75
LINE = {"marker": "o", "markersize": 4, "linewidth": 1.8}
MODEL = {"linewidth": 1.1, "alpha": 0.75}


def colours_of(run, theme):
    return {method: panels.look_of(index, theme)["color"] for index, method in enumerate(run.of("method"))}


def draw_panel(axes, run, place, transport, colours):
    rates = run.of("rate_mbit")
    for method, colour in colours.items():
        found = [(rate, Cell(place, rate, transport, method)) for rate in rates]
        measured = [(rate, 100 * run.utilisation(cell)) for rate, cell in found if run.utilisations(cell)]
        if measured:
            axes.plot(*zip(*measured), color=colour, **LINE)
        axes.plot(rates, [100 * stored.modelled(cell) for _, cell in found], color=colour, linestyle="--", **MODEL)
    axes.set_xscale("log")
    axes.set_ylim(0, 104)
    axes.xaxis.set_major_locator(FixedLocator(rates))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))


def figure_of(run, theme=plots.LIGHT):
    places, transports, colours = run.of("place"), run.of("transport"), colours_of(run, theme)
    title = "How much of its time a training computes"
    figure, grid = panels.panels(theme, len(transports), [HEIGHT_IN] * len(places), title)
    panels.name_columns(grid, transports, theme)
    for row, place in zip(grid, places):
        for axes, transport in zip(row, transports):
            draw_panel(axes, run, place, transport, colours)
        panels.label_levels(row[0], theme, f"{cells.PLACES[place].title}, %")
    for axes in grid[-1]:
        axes.set_xlabel("Mbit/s", fontsize=9)
    entries = [(method, {"color": colour}) for method, colour in colours.items()]
    entries.append(("model", {"color": theme.ink, "linestyle": "--", "linewidth": 1.1}))
    panels.key_below(figure, theme, entries, LEGEND_IN / figure.get_figheight(), columns=3)
    return figure


def write(run, path):
    panels.write_same(lambda: figure_of(run), path)
