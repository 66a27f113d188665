"""Pictures: measured times with a fitted line, simulated ones with the schedule's, and below what is off. Pure but for
matplotlib's own state."""

from gloo_bypass_tools.report import plots
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullLocator

from gloo_bypass_tools.model import ring


def two_panels(theme, height_in, ratio):
    """A figure, its logarithmic axes above and others below them, `ratio` times as high as these."""
    figure, (above, below) = pyplot.subplots(
        2,
        1,
        figsize=(plots.WIDTH_IN, height_in),
        dpi=plots.DOTS_PER_IN,
        layout="constrained",
        sharex=True,
        height_ratios=(ratio, 1),
    )
    figure.set_facecolor(theme.paper)
    for axes in (above, below):
        plots.open_frame(axes, theme)
        axes.grid(color=theme.grid, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, above, below


def named(theme, above, below, unit, beside, x_label):
    """Names of the axes, and the legend."""
    above.set_ylabel(unit, fontsize=10, color=theme.ink)
    below.set_ylabel(beside, fontsize=10, color=theme.ink)
    below.set_xlabel(x_label, fontsize=10, color=theme.ink)
    above.legend(frameon=False, fontsize=10, labelcolor=theme.ink)


def marks_of(theme, colour, marker):
    marks = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 5}
    return marks | {"markeredgecolor": theme.paper, "markeredgewidth": 0.8}


def fits(found, theme=plots.LIGHT):
    """PNG of fits by transport; where there are several numbers of ranks, each line says at its end which it is of."""
    figure, above, below = two_panels(theme, 4.9, 2.6)
    sizes = sorted({point.size for fit in found.values() for point in fit.points})
    several = any(len({point.ranks for point in fit.points}) > 1 for fit in found.values())
    for index, (transport, fit) in enumerate(found.items()):
        look = plots.place_of(transport, index)
        colour = theme.series[look]
        marks = marks_of(theme, colour, plots.MARKERS[look])
        at = [point.size for point in fit.points]
        above.plot(at, [1e6 * point.seconds for point in fit.points], label=f"{transport}, measured", **marks)
        for ranks in sorted({point.ranks for point in fit.points}):
            own = sorted({point.size for point in fit.points if point.ranks == ranks})
            line = [1e6 * ring.time_s(ranks, size, fit.link) for size in own]
            above.plot(own, line, color=colour, linewidth=1.6, linestyle=plots.DASHES[look])
            if several:
                beside = {"xytext": (-4, 5), "textcoords": "offset points", "ha": "left"}
                above.annotate(f"N = {ranks}", (own[0], line[0]), fontsize=8.5, color=colour, **beside)
        below.plot(at, [100 * residual for residual in fit.residuals], **marks)
    above.set_yscale("log")
    plots.plain_log_axis(above.yaxis)
    plots.size_axis(below, sizes)
    below.axhline(0, color=theme.faint, linewidth=1)
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g} %" if value else "0"))
    named(theme, above, below, "microseconds", "measured against\nfitted", "message size")
    lines = "lines: T = 2(N-1) alpha + (N-1)/N S (2/beta + gamma)"
    plots.titled(above, theme, "Ring all-reduce: alpha and beta", lines)
    return plots.png_of(figure)


def simulated(all_series, theme=plots.LIGHT):
    """PNG of simulated times against the number of ranks, each file's with its bound, and below them how far they are
    apart."""
    figure, above, below = two_panels(theme, 5.2, 2.2)
    for index, series in enumerate(all_series):
        look = index % len(theme.series)
        colour, marker = theme.series[look], plots.MARKERS[look % len(plots.MARKERS)]
        done = [run for run in series.runs if run.time_s is not None]
        at = [run.ranks for run in done]
        marks = marks_of(theme, colour, marker)
        above.plot(at, [1e3 * run.time_s for run in done], label=series.name, **marks)
        every = [run.ranks for run in series.runs]
        above.plot(every, [1e3 * run.schedule_s for run in series.runs], color=colour, linewidth=1.6)
        above.plot(every, [1e3 * run.physics_s for run in series.runs], color=colour, linewidth=1.2, linestyle=":")
        apart = [(run.ranks, run.time_s / run.schedule_s) for run in done if run.schedule_s > 0]
        line = marks | {"linestyle": "-", "linewidth": 1.2}
        below.plot([one[0] for one in apart], [one[1] for one in apart], **line)
    above.set_yscale("log")
    plots.plain_log_axis(above.yaxis)
    below.set_xscale("log", base=2)
    below.set_xticks(rank_ticks({run.ranks for series in all_series for run in series.runs}))
    below.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    below.xaxis.set_minor_locator(NullLocator())
    below.axhline(1, color=theme.faint, linewidth=1)
    below.set_ylim(bottom=0)
    named(theme, above, below, "milliseconds", "simulated against\nschedule", "ranks")
    lines = "line: Gloo's schedule; dotted: propagation and serialisation"
    plots.titled(above, theme, "Ring all-reduce in virtual time", lines)
    return plots.png_of(figure)


def rank_ticks(ranks):
    """Ticks that do not run into each other on a logarithmic axis: the largest first, then those that are a third
    smaller at least."""
    chosen = []
    for one in sorted(ranks, reverse=True):
        if not chosen or one <= chosen[-1] / 1.5:
            chosen.append(one)
    return chosen
