#!/usr/bin/python3
"""Draws one step of a trace that `ddp_train --trace` wrote, all ranks below each other, as an SVG picture.

usage: draw_step.py TRACE.json STEP PICTURE.svg
"""

import html
import json
import math
import sys

WIDTH, LABELS, ROW, BAR, TOP = 1000, 130, 20, 15, 12
COLOURS = {
    "DistributedDataParallel.forward": "#4c78a8",
    "backward": "#72b7b2",
    "exposed gloo:all_reduce": "#e45756",
    "Optimizer.step#AdamW.step": "#f2a03d",
    "gloo:barrier": "#9d755d",
    "gloo:all_reduce": "#b279a2",
    "queued": "#dcc7d9",
}
FILLING = "#bab0ac"
ROWS = {"buckets filling": "filling", "buckets in the process group": "reducing"}
SHORT = {
    "DistributedDataParallel.forward": "forward",
    "Optimizer.step#AdamW.step": "AdamW",
    "exposed gloo:all_reduce": "exposed",
    "gloo:barrier": "barrier",
}


def spans_of(trace, step):
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["args"]["step"] == step]
    if not spans:
        raise ValueError(f"no span of step {step}")
    return spans


def rows_of(trace, spans):
    """(rank, track, name) of each row that has a span, from the top; the whole step is no row."""
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    used = sorted({(span["pid"], span["tid"]) for span in spans})
    return [(rank, track, names[rank, track]) for rank, track in used]


def tick_us(duration):
    """1, 2 or 5 times a power of ten, so that there are five to twelve of them."""
    power = 10 ** math.floor(math.log10(duration / 5))
    return next(power * one for one in (5, 2, 1) if power * one <= duration / 5)


def bar(span, left, scale, y):
    x, width = LABELS + (span["ts"] - left) * scale, max(span["dur"] * scale, 0.7)
    fill = COLOURS.get(span["name"], FILLING)
    bucket = span["args"].get("bucket")
    label = SHORT.get(span["name"], span["name"]) if bucket is None else str(bucket)
    if span["name"] == "queued":
        label = ""
    title = html.escape(f"{span['name']} {json.dumps(span['args'])}: {span['dur'] / 1000:.2f} ms")
    text = (
        f'<text x="{x + 3:.1f}" y="{y + 11}" fill="white">{html.escape(label)}</text>'
        if (width > 7 * len(label) + 4)
        else ""
    )
    return (
        f'<g><title>{title}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{fill}"/>'
        f"{text}</g>"
    )


def picture(trace, step):
    spans = spans_of(trace, step)
    rows = rows_of(trace, spans)
    left = min(span["ts"] for span in spans)
    duration = max(span["ts"] + span["dur"] for span in spans) - left
    scale = (WIDTH - LABELS - 10) / duration
    parts, y, last_rank = [], TOP, 0
    for rank, track, name in rows:
        y += 8 if rank != last_rank else 0
        last_rank = rank
        parts.append(f'<text x="4" y="{y + 11}">rank {rank}: {html.escape(ROWS.get(name, name))}</text>')
        inside = [span for span in spans if (span["pid"], span["tid"]) == (rank, track)]
        # Wide ones first: what is nested in them is drawn over them.
        parts += [
            bar(span, left, scale, y)
            for span in sorted(inside, key=lambda span: -span["dur"])
            if not span["name"].startswith("ProfilerStep#")
        ]
        y += ROW
    tick = tick_us(duration)
    for i in range(int(duration / tick) + 1):
        x = LABELS + i * tick * scale
        parts.append(
            f'<path d="M{x:.1f} {TOP - 4}V{y}" stroke="#000" stroke-opacity=".2"/>'
            f'<text x="{x:.1f}" y="{y + 12}" text-anchor="middle">{i * tick / 1000:g} ms</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 18}" font-family="sans-serif" '
        f'font-size="10">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main():
    if len(sys.argv) != 4 or not sys.argv[2].isdigit():
        print(__doc__.strip().splitlines()[-1], file=sys.stderr)
        return 2
    try:
        with open(sys.argv[1]) as file:
            text = picture(json.load(file), int(sys.argv[2]))
    except (OSError, ValueError, KeyError) as error:
        print(f"draw_step.py: {sys.argv[1]}: {error}", file=sys.stderr)
        return 2
    with open(sys.argv[3], "w") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
