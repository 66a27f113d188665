"""A stored run as the README's picture (SVG, without Matplotlib) and as a table of every link.

The picture has a panel for each place: time against size, both logarithmic. The same run gives the same bytes. Colours
follow the reader's light or dark scheme; transports differ by colour and label, links by their dashes.
"""

import math
from html import escape

from gloo_bypass_tools.common.transports import BY_NAME
from gloo_bypass_tools.report import memory_rates, stored_run
from gloo_bypass_tools.report.wording import number

# Sizes in pixels of the picture.
PANEL, PLOT, HEIGHT = 375, 215, 300
LEFT, TOP, BOTTOM = 54, 52, 52
LABEL_GAP = 30
LINE = 15
# Okabe and Ito's colours on white and on black, as in plots.py, by the transport's look; without one, the grey one.
OTHER = ("#5d6269", "#a4a9b1")
COLOURS = (("#c2560c", "#f0914a"), ("#0072b2", "#56b4e9"), ("#a4508b", "#e08fc6"), OTHER, ("#00805f", "#2fc79e"))
DASHES = ("", "6 3", "2 3", "8 3 2 3")
STYLE = """text {{ font: 12px system-ui, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif; fill: {ink}; }}
.paper {{ fill: {paper}; }} .title {{ font-weight: 600; font-size: 14px; }} .faint {{ fill: {faint}; font-size: 11px; }}
.grid {{ stroke: {grid}; }} .line {{ fill: none; stroke-width: 2.2; }}"""
LIGHT = {"ink": "#1a1c1f", "paper": "#ffffff", "faint": "#5d6269", "grid": "#e3e5e8"}
DARK = {"ink": "#e8eaed", "paper": "#16181c", "faint": "#a4a9b1", "grid": "#30343b"}


def size_label(count):
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power and count % (1 << power) == 0:
            return f"{count >> power} {unit}"
    for power, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= power:
            return f"{count / power:.3g} {unit}"
    return f"{count} B"


def time_label(us):
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= factor:
            return f"{us / factor:.3g} {unit}"
    return f"{us:.3g} us"


def ratio_label(ratio):
    return f"{ratio:.0f} x" if ratio >= 9.5 else f"{ratio:.2g} x"


def bold(text, loses):
    return f"**{text}**" if loses and text else text


def markdown(header, lines):
    table = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def in_picture(rows):
    """Links of a larger MTU are left to the table where the same link of 1500 is there: lines would hide each other."""
    links = {row.link for row in rows}
    return [row for row in rows if f"{row.link.rpartition(' ')[0]} 1500" not in links - {row.link}]


def places(run):
    """{place: its rows, by size}, in the order of the run."""
    found = {}
    for row in run.rows:
        found.setdefault(row.where, []).append(row)
    return {where: sorted(in_picture(rows), key=lambda row: row.bytes) for where, rows in found.items()}


def lines_of(rows):
    """{(transport, link): rows}; TCP first, so that ours lies above it."""
    found = {}
    for row in sorted(rows, key=lambda row: row.transport != stored_run.BASE):
        found.setdefault((row.transport, row.link), []).append(row)
    return found


class Panel:
    """Where a size and a time lie in one panel."""

    def __init__(self, rows, left):
        self.left = left
        self.sizes = sorted({row.bytes for row in rows})
        times = [row.median_us for row in rows]
        self.low, self.high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
        self.high = max(self.high, self.low + 1)

    def x(self, count):
        first, last = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        return self.left + LEFT + (PLOT * (math.log2(count) - first) / (last - first) if last > first else PLOT / 2)

    def y(self, us):
        return TOP + HEIGHT * (1 - (math.log10(us) - self.low) / (self.high - self.low))


def spread(labels):
    """Labels (y, ...) moved down, then up, so that no two are closer than LABEL_GAP and all end inside the plot."""
    labels = sorted(labels)
    for index in range(1, len(labels)):
        labels[index] = (max(labels[index][0], labels[index - 1][0] + LABEL_GAP), *labels[index][1:])
    bottom = TOP + HEIGHT
    for index in reversed(range(len(labels))):
        labels[index] = (min(labels[index][0], bottom), *labels[index][1:])
        bottom = labels[index][0] - LABEL_GAP
    return labels


def name_of(transport, link):
    """ "DPDK, netdev 1500"; a link called like its transport is not named twice."""
    return transport + link[len(transport) :] if link.lower().startswith(transport.lower()) else f"{transport}, {link}"


def ratios_of(run, rows):
    found = [run.ratio(rows[0]), run.ratio(rows[-1])]
    if None in found:
        return ""
    first, last = (ratio_label(ratio) for ratio in found)
    return f"{first} to {last}" if len(rows) > 1 else first


def text(x, y, content, kind="", anchor="start"):
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{anchor}>{escape(content)}</text>'


def panel_of(run, where, rows, left):
    panel = Panel(rows, left)
    right, bottom = left + LEFT + PLOT, TOP + HEIGHT
    parts = [text(left + LEFT, TOP - 22, where, "title")]
    for power in range(panel.low, panel.high + 1):
        y = panel.y(10**power)
        parts += [
            f'<path class="grid" d="M{left + LEFT} {y:.1f}H{right}"/>',
            text(left + LEFT - 6, y + 4, time_label(10**power), "faint", "end"),
        ]
    room = math.inf
    for count in reversed(panel.sizes):
        x = panel.x(count)
        parts.append(f'<path class="grid" d="M{x:.1f} {bottom}v4"/>')
        if room - x >= 44:
            parts.append(text(x, bottom + 18, size_label(count), "faint", "middle"))
            room = x
    labels, names = [], {}
    for (transport, link), line in lines_of(rows).items():
        names.setdefault(transport, []).append(link)
        kind, dash = f"t-{transport.lower()}", DASHES[(len(names[transport]) - 1) % len(DASHES)]
        points = " ".join(f"{panel.x(row.bytes):.1f},{panel.y(row.median_us):.1f}" for row in line)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<polyline class="line {kind}" points="{points}"{dashes}/>')
        for x, y in (point.split(",") for point in points.split()):
            parts.append(f'<circle class="dot {kind}" cx="{x}" cy="{y}" r="2.6"/>')
        if transport != stored_run.BASE or len(names[transport]) == 1:
            labels.append((panel.y(line[-1].median_us), kind, transport, link, ratios_of(run, line)))
    for y, kind, transport, link, ratios in spread(labels):
        ours = transport != stored_run.BASE
        parts.append(text(right + 8, y + 4, name_of(transport, link) if ours else transport, f"name {kind}"))
        if ours and ratios:
            parts.append(text(right + 8, y + 17, ratios, "faint"))
    return parts


def colours_of(transport):
    look = BY_NAME[transport].look if transport in BY_NAME else None
    return OTHER if look is None or look >= len(COLOURS) else COLOURS[look]


def colour_rules(rows, shade):
    rules = []
    for transport in sorted({row.transport for row in rows}):
        kind, colour = f"t-{transport.lower()}", colours_of(transport)[shade]
        rules.append(f".line.{kind} {{ stroke: {colour}; }} .dot.{kind}, .name.{kind} {{ fill: {colour}; }}")
    return "\n".join(rules)


def svg(run):
    panels = places(run)
    state = memory_rates.in_words(run.rates)
    width, height = PANEL * len(panels) + 40, TOP + HEIGHT + BOTTOM + (LINE if state else 0)
    light = STYLE.format(**LIGHT) + "\n" + colour_rules(run.rows, 0)
    dark = STYLE.format(**DARK) + "\n" + colour_rules(run.rows, 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Time of an all-reduce against its size, over TCP and over gloo-bypass</title>",
        f"<style>{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
    ]
    for index, (where, rows) in enumerate(panels.items()):
        parts += panel_of(run, where, rows, index * PANEL)
    legend = "Median time of an all-reduce; lower is better. Below a name: times as fast as TCP, smallest to largest"
    parts.append(text(LEFT, TOP + HEIGHT + BOTTOM - 12, f"{legend} size. {run.machine}, {run.date}.", "faint"))
    if state:
        parts.append(text(LEFT, height - 12, f"While it was measured, the machine {state}.", "faint"))
    return "\n".join([*parts, "</svg>", ""])


def times_of(row):
    return f"{time_label(row.median_us)}, {time_label(row.p99_us)}"


HEADINGS = ("where", "link", "transport", "size")
HEADINGS += ("TCP: median, p99", "ours: median, p99", "ours, busbw", "times as fast")


def cells(run):
    """The headings, then every row that is not TCP's, beside TCP's of the same link and size."""
    base = {row.key: row for row in run.rows if row.transport == stored_run.BASE}
    yield HEADINGS
    for row in run.rows:
        if row.transport == stored_run.BASE:
            continue
        tcp, ratio = base.get((row.where, row.link, row.bytes, stored_run.BASE)), run.ratio(row)
        yield (
            row.where,
            row.link,
            row.transport,
            size_label(row.bytes),
            times_of(tcp) if tcp else "not measured",
            times_of(row),
            f"{number(row.bus_gbps, 'GB/s')} GB/s",
            "" if ratio is None else ratio_label(ratio),
        )


def table(run):
    """The same in Markdown; where TCP is faster, the ratio is bold."""
    headings, *lines = cells(run)
    ratios = [run.ratio(row) for row in run.rows if row.transport != stored_run.BASE]
    lines = [(*line[:-1], bold(line[-1], ratio is not None and ratio < 1)) for line, ratio in zip(lines, ratios)]
    return markdown(headings, lines) + "\n"
