"""Data frames to PNG. Pure: no file is read or written, and no global state of matplotlib is changed for good.

Colours are from Okabe and Ito's palette, which colour-blind readers can tell apart; lines also differ in marker and
dash. Every plot comes in a light and a dark theme, sized so that its text stays readable on a phone.
"""

import io
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the back-end comes first)
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator  # noqa: E402

from gloo_bypass_tools.common.transports import BY_NAME  # noqa: E402
from gloo_bypass_tools.report import summary, wording  # noqa: E402

WIDTH_IN, HEIGHT_IN, DOTS_PER_IN = 5.4, 3.7, 200


@dataclass(frozen=True)
class Theme:
    """`series` colour the transports in their order, `parts` the parts of a step."""

    name: str
    paper: str
    ink: str
    faint: str
    grid: str
    series: tuple
    parts: dict


LIGHT = Theme(
    "light",
    "#ffffff",
    "#1a1c1f",
    "#5d6269",
    "#e3e5e8",
    ("#c2560c", "#0072b2", "#00805f", "#a4508b", "#8a6d00"),
    {"forward": "#56b4e9", "backward": "#0072b2", "exposed": "#d55e00", "optimizer": "#8a8f96", "other": "#d5d8dc"},
)
DARK = Theme(
    "dark",
    "#16181c",
    "#e8eaed",
    "#a4a9b1",
    "#30343b",
    ("#f0914a", "#56b4e9", "#2fc79e", "#e08fc6", "#e3c14b"),
    {"forward": "#8cccf2", "backward": "#2f8fd0", "exposed": "#ee7a2a", "optimizer": "#8a8f96", "other": "#4a4f57"},
)
MARKERS = ("o", "s", "^", "D", "v")
DASHES = ("-", "-", "--", ":", "-.")


def place_of(transport, index):
    """A transport looks the same in every plot, whichever others stand beside it; the rest go by their order."""
    look = BY_NAME[transport].look if transport in BY_NAME else None
    return index % 4 if look is None else look


def open_frame(axes, theme):
    """Two sides, and their numbers, in the theme's faint colour."""
    axes.set_facecolor(theme.paper)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.faint)
    axes.tick_params(colors=theme.faint, labelsize=9.5)


def figure_with(theme, height_in=HEIGHT_IN):
    """A figure and its axes in this theme: open frame, faint grid."""
    figure, axes = pyplot.subplots(figsize=(WIDTH_IN, height_in), dpi=DOTS_PER_IN, layout="constrained")
    figure.set_facecolor(theme.paper)
    open_frame(axes, theme)
    axes.xaxis.label.set_color(theme.ink)
    axes.yaxis.label.set_color(theme.ink)
    axes.set_axisbelow(True)
    return figure, axes


def png_of(figure):
    buffer = io.BytesIO()
    try:
        # No date or version in the file: the same data give the same bytes.
        figure.savefig(buffer, format="png", facecolor=figure.get_facecolor(), metadata={"Software": None})
    finally:
        pyplot.close(figure)
    return buffer.getvalue()


def titled(axes, theme, title, subtitle="", pad=None):
    pad = pad or (22 if subtitle else 8)
    axes.set_title(title, loc="left", color=theme.ink, fontsize=12, fontweight="bold", pad=pad)
    if subtitle:
        place = {"transform": axes.transAxes, "va": "bottom", "ha": "left", "clip_on": False}
        axes.text(0, 1.025, subtitle, color=theme.faint, fontsize=9.5, linespacing=1.2, **place)


def unit_of(seconds):
    """The factor, the sign and the name of the unit in which times up to `seconds` read well."""
    return (1.0, "s", "seconds") if seconds >= 0.3 else (1e3, "ms", "milliseconds")


def step_breakdown(steps, transports, theme):
    """Stacked bars: where a step's time goes, the part of the all-reduce that backward waits for on its own."""
    measured = summary.measured_steps(steps)
    names = {"forward": "forward", "backward": "backward", "exposed": "all-reduce, not hidden"}
    names |= {"optimizer": "optimiser", "other": "other"}
    present = [transport for transport in transports if (measured["transport"] == transport).any()]
    figure, axes = figure_with(theme, 1.65 + 0.62 * len(present))
    ends = []
    for position, transport in enumerate(present):
        part = measured[measured["transport"] == transport]
        medians = part[["forward_s", "backward_s", "exposed_s", "optimizer_s", "step_s"]].median()
        pieces = {name: medians[f"{name}_s"] for name in ("forward", "backward", "exposed", "optimizer")}
        pieces["other"] = max(0.0, medians["step_s"] - sum(pieces.values()))
        ends.append((position, transport, pieces, part["step_s"]))
    longest = max(max(sum(pieces.values()), series.quantile(0.99)) for _, _, pieces, series in ends)
    scale, unit, name_of_unit = unit_of(longest)
    for position, transport, pieces, series in ends:
        left = 0.0
        for name, seconds in pieces.items():
            look = {"color": theme.parts[name], "edgecolor": theme.paper, "linewidth": 0.8, "height": 0.62}
            axes.barh(position, seconds, left=left, label=names[name] if position == 0 else None, **look)
            if seconds > 0.085 * longest:
                dark_text = name == "forward" or name == "other" and theme.name == "light"
                look = {"ha": "center", "va": "center", "fontsize": 9.5, "color": "#14161a" if dark_text else "#ffffff"}
                axes.text(left + seconds / 2, position, wording.number(seconds * scale), **look)
            left += seconds
        tail = series.quantile(0.99)
        axes.plot([series.median(), tail], [position, position], color=theme.ink, linewidth=1.1, solid_capstyle="butt")
        axes.plot([tail, tail], [position - 0.09, position + 0.09], color=theme.ink, linewidth=1.1)
        look = {"va": "center", "ha": "left", "fontsize": 10.5, "fontweight": "bold", "color": theme.ink}
        said = f"{wording.number(series.median() * scale)} {unit}"
        axes.text(max(left, tail) + 0.015 * longest, position, said, **look)
    axes.set_yticks([position for position, *_ in ends], [transport for _, transport, *_ in ends])
    axes.tick_params(axis="y", length=0, labelsize=11, labelcolor=theme.ink)
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, longest * 1.17)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * scale:g}"))
    axes.set_xlabel(f"{name_of_unit} a step (median; whisker to the 99th percentile)", fontsize=10)
    axes.grid(axis="x", color=theme.grid, linewidth=0.8)
    titled(axes, theme, "Where a training step's time goes", pad=26)
    spaces = {"borderpad": 0.2, "columnspacing": 1.0, "handlelength": 0.9, "handleheight": 0.9, "handletextpad": 0.4}
    place = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.985), "ncols": 5}
    axes.legend(frameon=False, fontsize=9, labelcolor=theme.ink, **place, **spaces)
    return png_of(figure)


def named_at(axes, text, point, points_away, colour, fontsize=9.5, **more):
    """A bold text so many points away from a point of the plot."""
    place = {"xytext": points_away, "textcoords": "offset points"}
    axes.annotate(text, point, color=colour, fontsize=fontsize, fontweight="bold", **place, **more)


def all_reduce_time(steps, transports, theme):
    """Every step's all-reduce time as a point, and the medians: all of it, and what backward could not hide."""
    measured = summary.measured_steps(steps)
    present = [transport for transport in transports if (measured["transport"] == transport).any()]
    figure, axes = figure_with(theme)
    columns = (("all_reduce_s", "all-reduce, T_ar"), ("exposed_s", "of it not hidden\nbehind backward"))
    width = 0.8 / max(1, len(present))
    top = max(measured[column].max() for column, _ in columns)
    scale, unit, name_of_unit = unit_of(top)
    for group, (column, _) in enumerate(columns):
        for index, transport in enumerate(present):
            values = measured[measured["transport"] == transport][column].to_numpy()
            centre = group + (index - (len(present) - 1) / 2) * width
            # Points spread by their order in time, left to right, not at random.
            spread = [centre + width * 0.5 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
            look = place_of(transport, index)
            colour = theme.series[look]
            points = {"linestyle": "none", "marker": MARKERS[look], "markersize": 3.8, "markeredgewidth": 0}
            axes.plot(spread, values, color=colour, alpha=0.45 if theme.name == "light" else 0.7, **points)
            median, ends = summary.figure_of(values).median, [centre - width * 0.36, centre + width * 0.36]
            axes.plot(ends, [median, median], linewidth=2.6, solid_capstyle="butt", color=colour)
            said = f"{transport}\n{wording.number(median * scale)} {unit}"
            named_at(axes, said, (centre, max(values)), (0, 5), colour, ha="center", va="bottom", linespacing=1.15)
    axes.set_xticks(range(len(columns)), [label for _, label in columns])
    axes.tick_params(axis="x", length=0, labelsize=10.5, labelcolor=theme.ink)
    axes.set_xlim(-0.55, len(columns) - 0.45)
    axes.set_ylim(0, top * 1.22)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * scale:g}"))
    axes.set_ylabel(f"{name_of_unit} a step", fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    titled(axes, theme, "All-reduce in training", "each point a step, each bar the median")
    return png_of(figure)


def size_axis(axes, sizes):
    """Powers of two, named as the benchmark names them, every other one where they are many."""
    chosen = sorted(sizes)
    while len(chosen) > 7:
        chosen = chosen[::2]
    axes.set_xscale("log", base=2)
    axes.set_xticks(chosen, [summary.size_text(int(size)) for size in chosen])
    axes.xaxis.set_minor_locator(NullLocator())


def plain_log_axis(axis):
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,), numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def by_size(reduces, transports, theme, columns, title, y_label, sizes):
    """One line a transport over the sizes, both axes logarithmic, whiskers from the median to the 99th percentile.
    `columns`: of these two."""
    figure, axes = figure_with(theme)
    shown = reduces[reduces["bytes"].isin(sizes)]
    ends = []
    for index, transport in enumerate(transports):
        part = shown[shown["transport"] == transport].sort_values("bytes")
        if not len(part):
            continue
        look = place_of(transport, index)
        colour = theme.series[look]
        middle, tail = (part[column].to_numpy() for column in columns)
        whiskers = {"yerr": [(middle - tail).clip(min=0), (tail - middle).clip(min=0)], "elinewidth": 1, "capsize": 2.2}
        marks = {"marker": MARKERS[look], "markersize": 5.5, "markeredgecolor": theme.paper, "markeredgewidth": 0.8}
        axes.errorbar(part["bytes"], middle, color=colour, linewidth=2, linestyle=DASHES[look], **whiskers, **marks)
        ends.append((transport, part["bytes"].iloc[-1], middle[-1], colour))
    axes.set_yscale("log")
    size_axis(axes, sizes)
    plain_log_axis(axes.yaxis)
    for transport, at, value, colour in apart(ends, axes.get_ylim()):
        beside = {"va": "center", "ha": "left", "annotation_clip": False}
        named_at(axes, transport, (max(sizes), value), (8, 0), colour, fontsize=11, **beside)
    axes.set_xlabel("message size", fontsize=10)
    axes.set_ylabel(y_label, fontsize=10)
    axes.grid(color=theme.grid, linewidth=0.8)
    titled(axes, theme, title, "ring, median; whisker to the 99th percentile")
    return png_of(figure)


def apart(ends, limits, share=0.075):
    """Moves labels at the lines' ends up until none lies on another; positions are on a logarithmic axis."""
    least = (limits[1] / limits[0]) ** share
    placed = []
    for transport, at, value, colour in sorted(ends, key=lambda end: end[2]):
        if placed and value < placed[-1][2] * least:
            value = placed[-1][2] * least
        placed.append((transport, at, value, colour))
    return placed


def powers_of_two(reduces):
    """The sizes of the sweep, without single sizes measured beside it."""
    return [size for size in sorted(reduces["bytes"].unique()) if size & (size - 1) == 0]


def bandwidth(reduces, transports, theme, least=1024):
    frame = reduces.copy()
    for percentile in ("p50", "p99"):
        frame[f"{percentile}_busbw"] = summary.busbw(frame["bytes"], frame[f"{percentile}_us"], frame["ranks"])
    columns, sizes = ("p50_busbw", "p99_busbw"), [size for size in powers_of_two(frame) if size >= least]
    return by_size(frame, transports, theme, columns, "All-reduce bandwidth", "bus bandwidth, GB/s", sizes)


def latency(reduces, transports, theme):
    sizes = [size for size in powers_of_two(reduces) if size <= summary.SMALL_BYTES]
    title = "All-reduce time of small messages"
    return by_size(reduces, transports, theme, ("p50_us", "p99_us"), title, "microseconds", sizes)


def loss(steps, transports, theme, same_bits):
    """The loss of each transport over the steps, the first one broad, the others on top of it."""
    first = steps[steps["repeat"] == steps["repeat"].min()]
    # Without a barrier no rank knows the mean over the ranks.
    column = "loss" if first["loss_mean"].isna().any() else "loss_mean"
    figure, axes = figure_with(theme)
    curves = []
    for index, transport in enumerate(transports):
        part = first[(first["transport"] == transport) & (first["rank"] == first["rank"].min())].sort_values("step")
        if not len(part):
            continue
        look = place_of(transport, index)
        shape = {"linewidth": 7, "alpha": 0.45} if index == 0 else {"linewidth": 1.8, "marker": MARKERS[look]}
        shape |= {"markersize": 4.5, "solid_capstyle": "round"}
        axes.plot(part["step"], part[column], color=theme.series[look], label=transport, **shape)
        curves.append(part.set_index("step")[column])
    largest = max((float((curve - curves[0]).abs().max()) for curve in curves[1:]), default=None)
    same, different = "the parameters end bit for bit the same", "the parameters end in different bits"
    verdict = {True: same, False: different, None: ""}[same_bits]
    said = "" if largest is None else f"largest difference {largest:g}"
    axes.set_xlabel("step", fontsize=10)
    axes.set_ylabel("loss, nats a token", fontsize=10)
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True, nbins=8))
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.legend(frameon=False, fontsize=11, labelcolor=theme.ink, loc="upper right")
    titled(axes, theme, "Loss", "; ".join(part for part in (said, verdict) if part))
    return png_of(figure)


# File name -> a text for readers who cannot see the plot.
DESCRIPTIONS = {
    "step_breakdown": "Stacked bars: the median time of a step's parts for each transport.",
    "all_reduce_time": "All-reduce time of every training step for each transport, with medians.",
    "bandwidth": "Bus bandwidth of the ring all-reduce over the message size for each transport.",
    "latency": "Time of the ring all-reduce of small messages over the message size for each transport.",
    "loss": "Loss over the steps for each transport, drawn over each other.",
    "guest_bandwidth": "In the guest: bus bandwidth of the ring all-reduce over the message size for each transport.",
    "guest_latency": "In the guest: time of the ring all-reduce of small messages over the message size for each "
    "transport.",
}


def all_of(steps, reduces, transports, theme, same_bits=None):
    """File name -> PNG, for what there are data for."""
    made = {}
    if len(summary.measured_steps(steps)):
        made["step_breakdown"] = step_breakdown(steps, transports, theme)
        made["all_reduce_time"] = all_reduce_time(steps, transports, theme)
        made["loss"] = loss(steps, transports, theme, same_bits)
    if len(reduces):
        if sum(size >= 1024 for size in powers_of_two(reduces)) > 1:
            made["bandwidth"] = bandwidth(reduces, transports, theme)
        if sum(size <= summary.SMALL_BYTES for size in powers_of_two(reduces)) > 1:
            made["latency"] = latency(reduces, transports, theme)
    return made
