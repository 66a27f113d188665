"""What happened over time in a study's runs as pictures: CPU, memory and traffic of ranks; throughput; what each
direction carried. Pure.

`traces` has a RunTrace for each (variant, transport) that has one: of its first run.
"""

from gloo_bypass_tools.report.plots import place_of, png_of
from gloo_bypass_tools.study import panels

NOT_MEASURED = "not measured"
SECONDS = "seconds since the ranks began"
# Of the busiest direction: what carries less is acknowledgements for the most part.
SMALL_SHARE = 0.02
# Resource -> label, what is drawn of a RankTrace, its unit.
RESOURCES = (
    ("CPU, %", "cpu_percent", 1.0),
    ("memory, MB", "resident_bytes", 1e6),
    ("sent, Mbit/s", "sent_bit_s", 1e6),
    ("received, Mbit/s", "received_bit_s", 1e6),
)


def known_stairs(axes, at, values, unit, look):
    """A level between each two samples; nothing where it was not counted. Returns whether anything was drawn."""
    levels = [float("nan") if value is None else value / unit for value in values]
    if not levels or all(value is None for value in values):
        return False
    axes.stairs(levels, at, baseline=None, linewidth=1.3, color=look["color"], linestyle=look["linestyle"])
    return True


def resource_panel(axes, theme, trace, key, unit):
    drawn = False
    for rank in trace.ranks:
        look = panels.look_of(rank.rank, theme)
        if key == "resident_bytes":
            # The last sample may be of a rank that has ended, and has none.
            levels = [value / unit if value else float("nan") for value in rank.resident_bytes]
            axes.plot(rank.at_s, levels, linewidth=1.3, **look)
            drawn = True
        else:
            drawn = known_stairs(axes, rank.at_s, getattr(rank, key), unit, look) or drawn
    if trace.one_clock:
        panels.shade_events(axes, theme, trace.events)
    if not drawn:
        panels.empty_panel(axes, theme, "not counted")


def ranks(traces, variant, label, transports, theme):
    """CPU, memory, bytes out and in of every rank of one variant over time."""
    heights, title = [1.15] * len(RESOURCES), f"The ranks, {label}"
    figure, axes = panels.panels(theme, len(transports), heights, title, keyed=True, share_x="all")
    panels.name_columns(axes, transports, theme)
    listed = set()
    for column, transport in enumerate(transports):
        trace = traces.get((variant, transport))
        for row, (_, key, unit) in enumerate(RESOURCES):
            if trace is None or not trace.ranks:
                panels.empty_panel(axes[row][column], theme, NOT_MEASURED)
                continue
            resource_panel(axes[row][column], theme, trace, key, unit)
            listed |= {rank.rank for rank in trace.ranks}
    for row, (name, _, _) in enumerate(RESOURCES):
        axes[row][0].set_ylabel(name, fontsize=9.5)
        axes[row][0].set_ylim(bottom=0)
        for one in axes[row]:
            one.grid(axis="y", color=theme.grid, linewidth=0.8)
    if listed:
        panels.key_of(figure, theme, [(f"rank {rank}", panels.look_of(rank, theme)) for rank in sorted(listed)])
    events = any(trace.one_clock and trace.events for (name, _), trace in traces.items() if name == variant)
    panels.label_time(figure, theme, SECONDS + ("; grey: events, from marker to marker" if events else ""))
    return png_of(figure)


def traffic_panels(traces, variants, transports, theme, title, keyed):
    """A row for each variant; panels without traffic say so. Returns (figure, all axes, [(axes, trace, transport's
    place)])."""
    figure, axes = panels.panels(theme, len(transports), [1.55] * len(variants), title, keyed)
    panels.name_columns(axes, transports, theme)
    found = []
    for row, variant in enumerate(variants):
        for column, transport in enumerate(transports):
            one, trace = axes[row][column], traces.get((variant, transport))
            one.grid(axis="y", color=theme.grid, linewidth=0.8)
            if trace is None or trace.total is None:
                panels.empty_panel(one, theme, NOT_MEASURED)
                continue
            panels.shade_events(one, theme, trace.events)
            found.append((one, trace, place_of(transport, column)))
    return figure, axes, found


def prefix_of(most):
    """Factor and prefix of the unit in which numbers up to this read well."""
    return (1e9, "G") if most >= 1e9 else (1e6, "M") if most >= 1e6 else (1e3, "k")


def finish_traffic(figure, axes, found, variants, theme, unit):
    for row, variant in enumerate(variants):
        axes[row][0].set_ylabel(f"{variant}\n{unit}", fontsize=9.5)
        axes[row][0].set_ylim(bottom=0)
        axes[row][0].set_xlim(left=0)
    since = SECONDS if all(trace.one_clock for _, trace, _ in found) else "seconds since the first frame"
    panels.label_time(figure, theme, since + "; grey: events, from marker to marker")
    return png_of(figure)


def throughput(traces, variants, transports, theme):
    """All frames of each run over time."""
    figure, axes, found = traffic_panels(traces, variants, transports, theme, "Throughput of all edges together", False)
    drawn = [(one, trace.total.coarser(), place) for one, trace, place in found]
    factor, prefix = prefix_of(max((8 * max(series.bytes) / series.interval_s for _, series, _ in drawn), default=1.0))
    for one, series, place in drawn:
        rates = [8 * size / series.interval_s / factor for size in series.bytes]
        one.stairs(rates, series.edges_s, fill=True, color=theme.series[place], linewidth=0)
    return finish_traffic(figure, axes, found, variants, theme, f"{prefix}bit/s")


def large_directions(traces, variant_names):
    """Of all runs of these variants: those that carry much anywhere, the largest first."""
    found = {}
    for (variant, _), trace in traces.items():
        if variant not in variant_names or not trace.directions:
            continue
        sums = {direction: sum(series.bytes) for direction, series in trace.directions.items()}
        for direction, size in sums.items():
            if size > SMALL_SHARE * max(sums.values()):
                found[direction] = max(size, found.get(direction, 0))
    # Those of the ring carry the same but for a little: together, in the order of the ranks.
    return sorted(found, key=lambda direction: (found[direction] < 0.8 * max(found.values()), direction))


def direction_look(index, theme):
    """The first ones lie on each other, as a ring's do; the others are alone."""
    return panels.look_of(index, theme) | {"linewidth": panels.WIDTHS[min(index, len(panels.WIDTHS) - 1)]}


def cumulative(traces, variants, transports, theme):
    """Bytes so far, a line for each direction that carries much; of captures without directions one line in all."""
    large = large_directions(traces, variants)
    figure, axes, found = traffic_panels(traces, variants, transports, theme, "Cumulative traffic", bool(large))
    most = [sum(series.bytes) for _, trace, _ in found for series in trace.directions.values() or (trace.total,)]
    factor, prefix = prefix_of(max(most, default=1.0))
    for one, trace, place in found:
        if not trace.directions:
            series = trace.total.coarser()
            sums = [size / factor for size in series.cumulative]
            one.plot(series.edges_s, sums, linewidth=2, color=theme.series[place])
        # What is small below, then the broadest line first.
        for direction in sorted(trace.directions, key=lambda each: large.index(each) if each in large else -1):
            coarse = trace.directions[direction].coarser()
            look = {"color": theme.faint, "linewidth": 0.7}
            if direction in large:
                look = direction_look(large.index(direction), theme)
            one.plot(coarse.edges_s, [size / factor for size in coarse.cumulative], solid_capstyle="butt", **look)
    if large:
        names = [f"{start}\u2192{end}".replace("r", "") for start, end in large]
        panels.key_of(figure, theme, [(name, direction_look(index, theme)) for index, name in enumerate(names)])
    return finish_traffic(figure, axes, found, variants, theme, f"{prefix}B")
