"""Panels side by side, a column for each transport, with one scale in a row: title, key and axes in a theme. Pure."""

from gloo_bypass_tools.report import plots
from gloo_bypass_tools.report.plots import WIDTH_IN, open_frame, place_of
from matplotlib import pyplot, rc_context
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

# Ranks or directions that a key names; of more, only how many there are.
MOST_NAMED = 8
# From the top to the key; title, key, names and what is said below.
KEY_TOP_IN, MARGIN_IN = 0.25, 1.0
# Lines that lie on each other: the first is the broadest, so that each is seen.
WIDTHS = (4.4, 3.0, 1.9, 1.0)
DASHES = ("-", "--", "-.", ":")
STEPS = (1, 2, 2.5, 5, 10)  # between ticks, times a power of ten
TITLE = {"x": 0.01, "ha": "left", "fontsize": 12, "fontweight": "bold", "linespacing": 1.6}
KEY = {"loc": "upper left", "frameon": False, "fontsize": 9, "handlelength": 1.6, "columnspacing": 1.1}
KEY |= {"handletextpad": 0.5, "borderpad": 0.2}
# What a figure with one panel has: lines with whiskers, levels across.
WHISKERS = {"capsize": 2.2, "linewidth": 2, "markersize": 5.5}


def panels(theme, columns, heights_in, title, keyed=False, share_x="row"):
    """(figure, axes[row][column]): a row for each height; one y axis a row. `keyed` leaves a line under the title for
    key_of()."""
    size, shared = (WIDTH_IN, MARGIN_IN + sum(heights_in)), {"sharey": "row", "sharex": share_x, "squeeze": False}
    figure = pyplot.figure(figsize=size, dpi=plots.DOTS_PER_IN, layout="constrained")
    axes = figure.subplots(len(heights_in), columns, gridspec_kw={"height_ratios": heights_in}, **shared)
    figure.set_facecolor(theme.paper)
    for one in axes.flat:
        open_frame(one, theme)
        one.set_axisbelow(True)
        one.tick_params(labelsize=9)
        one.xaxis.label.set_color(theme.ink)
        one.yaxis.label.set_color(theme.ink)
        one.xaxis.set_major_locator(MaxNLocator(4 if columns > 1 else 7, steps=STEPS))
        one.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
        one.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    figure.suptitle(title + ("\n" if keyed else ""), color=theme.ink, **TITLE)
    return figure, axes


def name_columns(axes, transports, theme):
    for index, transport in enumerate(transports):
        colour = theme.series[place_of(transport, index)]
        axes[0][index].set_title(transport, loc="left", color=colour, fontsize=11, fontweight="bold")


def label_time(figure, theme, what):
    figure.supxlabel(what, fontsize=9.5, color=theme.ink)


def look_of(index, theme):
    """Colour and dash of the rank or direction of this number."""
    colours = (*theme.series, theme.faint)
    return {"color": colours[index % len(colours)], "linestyle": DASHES[index // len(colours) % len(DASHES)]}


def key_of(figure, theme, entries):
    """Under the title: (label, look of a line) each."""
    if len(entries) > MOST_NAMED:
        entries = [(f"{entries[0][0]} to {entries[-1][0]}", {"color": theme.ink})]
    handles = [Line2D([], [], **({"linewidth": 2} | look), label=label) for label, look in entries]
    at = 0.0, 1 - KEY_TOP_IN / figure.get_figheight()
    key = figure.legend(handles=handles, bbox_to_anchor=at, ncol=len(handles), labelcolor=theme.ink, **KEY)
    key.set_in_layout(False)


def key_below(figure, theme, entries, share, columns):
    """Under the panels, in this share of the figure's height: (label, look of a line) each."""
    lines = [Line2D([], [], **({"linewidth": 2} | look), label=label) for label, look in entries]
    look = {"frameon": False, "fontsize": 8.5, "labelcolor": theme.ink, "handlelength": 2.2, "columnspacing": 1.2}
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))
    figure.legend(handles=lines, loc="lower left", bbox_to_anchor=(0.01, 0.0), ncol=columns, **look)


def shade_events(axes, theme, events):
    """Grey, from marker to marker; the scale is left to the lines."""
    for begin, end in events:
        axes.axvspan(begin, end, color=theme.grid, linewidth=0, zorder=0)


def empty_panel(axes, theme, why):
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", fontsize=9, color=theme.faint)


def whiskers(axes, at, middle, low, high, **look):
    below, above = [one - end for one, end in zip(middle, low)], [end - one for one, end in zip(middle, high)]
    axes.errorbar(at, middle, yerr=[below, above], **WHISKERS, **look)


def label_levels(axes, theme, what):
    axes.set_ylabel(what, fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)


def write_same(make_figure, path):
    """The figure that `make_figure()` returns as an SVG whose text stays text, and which is the same for the same
    figure."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gloo-bypass"}):
        figure = make_figure()
        try:
            look = {"facecolor": figure.get_facecolor(), "metadata": {"Date": None, "Creator": None}}
            figure.savefig(path, **look)
        finally:
            pyplot.close(figure)


def write(figure, path):
    """In the format that the file's name says."""
    figure.savefig(path, facecolor=figure.get_facecolor())
    pyplot.close(figure)
