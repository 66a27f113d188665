"""A fit as a picture: measured times with the fitted line, and below what is off. Pure but for matplotlib's own state."""

from gloo_bypass_report import plots
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullLocator

from . import ring


def size_ticks(axes, sizes):
    chosen = sorted(sizes)
    while len(chosen) > 7:
        chosen = chosen[::2]
    axes.set_xscale("log", base=2)
    axes.set_xticks(chosen, [plots.summary.size_text(int(size)) for size in chosen])
    axes.xaxis.set_minor_locator(NullLocator())


def styled(axes, theme):
    axes.set_facecolor(theme.paper)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.faint)
    axes.tick_params(colors=theme.faint, labelsize=9.5)
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)


def fits(found, theme=plots.LIGHT):
    """PNG of fits by transport; where there are several numbers of ranks, each line says at its end which it is of."""
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(plots.WIDTH_IN, 4.9), dpi=plots.DOTS_PER_IN, layout="constrained", sharex=True,
                                             height_ratios=(2.6, 1))
    figure.set_facecolor(theme.paper)
    sizes = sorted({point.size for fit in found.values() for point in fit.points})
    several = any(len({point.ranks for point in fit.points}) > 1 for fit in found.values())
    for index, (transport, fit) in enumerate(found.items()):
        look = plots.place_of(transport, index)
        colour = theme.series[look]
        marks = {"color": colour, "marker": plots.MARKERS[look], "linestyle": "none", "markersize": 5, "markeredgecolor": theme.paper,
                 "markeredgewidth": 0.8}
        at = [point.size for point in fit.points]
        above.plot(at, [1e6 * point.seconds for point in fit.points], label=f"{transport}, measured", **marks)
        for ranks in sorted({point.ranks for point in fit.points}):
            own = sorted({point.size for point in fit.points if point.ranks == ranks})
            line = [1e6 * ring.time_s(ranks, size, fit.link) for size in own]
            above.plot(own, line, color=colour, linewidth=1.6, linestyle=plots.DASHES[look])
            if several:
                above.annotate(f"N = {ranks}", (own[0], line[0]), xytext=(-4, 5), textcoords="offset points", ha="left", fontsize=8.5,
                               color=colour)
        below.plot(at, [100 * residual for residual in fit.residuals], **marks)
    for axes in (above, below):
        styled(axes, theme)
    above.set_yscale("log")
    plots.plain_log_axis(above.yaxis)
    size_ticks(below, sizes)
    below.axhline(0, color=theme.faint, linewidth=1)
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g} %" if value else "0"))
    above.set_ylabel("microseconds", fontsize=10, color=theme.ink)
    below.set_ylabel("measured against\nfitted", fontsize=10, color=theme.ink)
    below.set_xlabel("message size", fontsize=10, color=theme.ink)
    above.legend(frameon=False, fontsize=10, labelcolor=theme.ink)
    plots.titled(above, theme, "Ring all-reduce: alpha and beta", "lines: T = 2(N-1) alpha + (N-1)/N S (2/beta + gamma)")
    return plots.png_of(figure)
