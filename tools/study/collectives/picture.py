"""A stored run as a picture a link: how many times as long as the fastest each contender takes. A column for each
number of ranks, measured above, the model below. Pure but for write()."""

from gloo_bypass_tools.report import plots
from gloo_bypass_tools.report.results_chart import size_label
from gloo_bypass_tools.study import panels
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

HEIGHT_IN = 2.3
WIDTH_IN = 9.0
LEGEND_SHARE, LEGEND_COLUMNS = 0.08, 6  # of the figure's height, below
CHOSEN = {"marker": "o", "markersize": 9, "fillstyle": "none", "linestyle": "", "markeredgewidth": 1.4}
LEVELS = (1, 2, 5, 10, 20, 50, 100)  # times the fastest
LOWEST = 0.8
LINE = {"marker": ".", "markersize": 4.5, "linewidth": 1.5}


def looks_of(run, link, theme):
    """Of this link's contenders; each looks the same in all pictures of a run."""
    everywhere = dict.fromkeys(row.contender for row in run.rows)
    looks = {name: panels.look_of(index, theme) for index, name in enumerate(everywhere)}
    return {name: looks[name] for name in dict.fromkeys(row.contender for row in run.rows if row.link == link.name)}


def measured_us(row):
    return row.p50_us


def model_us(row):
    return row.model_us


def lines_of(run, link, ranks, value):
    """contender -> [(size, how many times the fastest of that size)], of those that have a value."""
    found = {}
    for size in run.sizes(link.name, ranks):
        values = {name: value(row) for name, row in run.at(link.name, ranks, size).items()}
        known = {name: one for name, one in values.items() if one is not None}
        for name, one in known.items():
            found.setdefault(name, []).append((size, one / min(known.values())))
    return found


def draw_panel(axes, sizes, lines, looks):
    for name, line in lines.items():
        axes.plot(*zip(*line), **LINE, **looks[name])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_label(int(size)).replace(" ", "\n")))
    axes.yaxis.set_major_locator(FixedLocator(LEVELS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda times, _: f"{times:g} x"))
    axes.grid(axis="y", color=axes.spines["left"].get_edgecolor(), alpha=0.2, linewidth=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=8)


def draw_choices(axes, run, link, ranks, lines, theme):
    for size in run.sizes(link.name, ranks):
        choice = run.choice(link.name, ranks, size)
        times = dict(lines.get(choice.default or choice.table, ())).get(size)
        if times is not None:
            axes.plot([size], [times], color=theme.ink, **CHOSEN)


def figure_of(run, link, theme=plots.LIGHT):
    numbers = run.ranks(link.name)
    looks = looks_of(run, link, theme)
    figure, grid = panels.panels(theme, len(numbers), [HEIGHT_IN, HEIGHT_IN], f"{link.title}: times the fastest")
    figure.set_figwidth(WIDTH_IN)
    for column, ranks in enumerate(numbers):
        measured, modelled = grid[0][column], grid[1][column]
        sizes, lines = run.sizes(link.name, ranks), lines_of(run, link, ranks, measured_us)
        draw_panel(measured, sizes, lines, looks)
        draw_choices(measured, run, link, ranks, lines, theme)
        draw_panel(modelled, sizes, lines_of(run, link, ranks, model_us), looks)
        measured.set_title(f"{ranks} ranks", loc="left", color=theme.ink, fontsize=10, fontweight="bold")
    highest = max(axes.get_ylim()[1] for axes in grid.flat)
    for axes in grid.flat:
        axes.set_ylim(LOWEST, highest)
    grid[0][0].set_ylabel("measured", fontsize=9.5)
    grid[1][0].set_ylabel("model", fontsize=9.5)
    chosen = "what runs by default" if link.default else "what the table chooses"
    key = [(name, look) for name, look in looks.items()] + [(chosen, CHOSEN | {"color": theme.ink})]
    panels.key_below(figure, theme, key, LEGEND_SHARE, LEGEND_COLUMNS)
    return figure


def write(run, folder):
    """An SVG for each link; their names are the links'."""
    for link in run.links():
        panels.write_same(lambda link=link: figure_of(run, link), folder / f"{link.name}.svg")
