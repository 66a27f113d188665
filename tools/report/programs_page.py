"""Stored runs of programs as one HTML page that needs nothing else. Pure."""

import html
import re

from gloo_bypass_tools.report import page, program_tables, programs
from gloo_bypass_tools.report.programs import Key

# What is compared with its rate without all-reduces: a name, with them, without them.
BOUNDED = (
    ("tensor-parallel decoding", Key("decoding", programs.TOKEN), Key("decoding", programs.TOKEN_ALONE)),
    ("a step under DDP", Key("training", programs.STEP), Key("training", programs.STEP_ALONE)),
)


def html_of(markdown):
    """Text with `code` and **bold**, which says that something loses."""
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(markdown))
    return re.sub(r"\*\*(.*?)\*\*", r'<b class="bad">\1</b>', text)


def share_of_bound(run, transport, whole, alone):
    """How much of its rate without all-reduces a program reaches; None if it was not measured."""
    with_them, without = run.row(whole, transport), run.row(alone, transport)
    return without.median_us / with_them.median_us if with_them and without else None


def tiles(run):
    """The gain of what a reader looks for first, and how near a program comes to its rate without all-reduces."""
    first, *others = run.transports
    found = []
    for label, whole, _ in BOUNDED:
        for transport in others:
            ratio = run.ratio(whole, transport)
            if ratio:
                text = f"{label}: {transport} as fast as {first}"
                found.append(page.tile(f"{ratio[0]:.2f}\u202f\u00d7", text, ratio[0] >= 1, bool(run.doubt)))
    for label, whole, alone in BOUNDED:
        for transport in run.transports:
            share = share_of_bound(run, transport, whole, alone)
            if share is not None:
                text = f"of its rate without all-reduces: {label} over {transport}"
                found.append(page.tile(f"{share:.2f}", text, doubt=bool(run.doubt)))
    return found


def render(runs):
    """The page, as text."""
    shown = []
    for run in runs:
        header, lines = program_tables.table_of(run)
        shown.append(
            {
                "about": program_tables.about(run),
                "tiles": tiles(run),
                "header": header,
                "lines": lines,
                "notes": program_tables.notes_of(run),
            }
        )
    return page.environment_over(page.FOLDER, marked=html_of).get_template("programs.html.j2").render(runs=shown)
