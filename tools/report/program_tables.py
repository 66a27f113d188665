"""Stored runs of programs as Markdown: one run with all of its quantities, or several beside each other. Pure."""

import re

from gloo_bypass_tools.common import transports
from gloo_bypass_tools.report import machine, memory_rates, programs
from gloo_bypass_tools.report.programs import Key
from gloo_bypass_tools.report.results_chart import bold, markdown, ratio_label, size_label, time_label

# Of the runs that headlines are made of.
DECODER, TRAINED = (programs.BY_NAME[name].sizes[programs.FULL] for name in ("decoding", "training"))
TRAINED_TOKENS = TRAINED["batch"] * TRAINED["length"]
# What a reader looks for first, and its name.
HEADLINES = (
    (Key("decoding", programs.TOKEN), f"tensor-parallel decoding, {DECODER['layers']} layers of {DECODER['hidden']:,}"),
    (Key("decoding", programs.TOKEN_ALONE), "the same without its all-reduces"),
    (Key("all_reduce", programs.HOT, 4), "`all_reduce` of one float, one after the other"),
    (Key("all_reduce", programs.HOT, 8192), "`all_reduce` of 8 KiB, one after the other"),
    (Key("all_reduce", programs.ADDED, 8192, 2), "what one of 8 KiB adds to 2 ms of computing"),
    (Key("all_reduce", programs.HOT, 64 << 20), "`all_reduce` of 64 MiB"),
    (Key("training", programs.STEP), f"step of DistilGPT2 under DDP, {TRAINED_TOKENS} tokens a rank"),
    (Key("training", programs.EXPOSED), "its exposed all-reduce"),
    (Key("training", programs.COPIES), "of that, DDP's copies of gradients"),
)
LABELS = {
    programs.TOKEN: "tensor-parallel decoding: a token",
    programs.TOKEN_MET: "the same, where the ranks only wait for each other",
    programs.TOKEN_ALONE: "the same without its all-reduces",
    programs.FIRST: "`all_reduce`: first calls of a process, {size}",
    programs.HOT: "`all_reduce`: {size}",
    programs.ASYNCHRONOUS: "`all_reduce`: {size}, with `async_op` and `wait()`",
    programs.FUNCTIONAL: "`all_reduce`: {size}, of functional collectives, awaited",
    programs.CALL: "`all_reduce`: {size}, the call after {ms:g} ms of computing",
    programs.ADDED: "`all_reduce`: {size}, adds to {ms:g} ms of computing (mean)",
    programs.STEP: "DistilGPT2 under DDP: a step",
    programs.STEP_ALONE: "the same without its all-reduces",
    programs.EXPOSED: "its exposed all-reduce",
    programs.COPIES: "of that, DDP's copies of gradients",
}


def is_of_gpu(key):
    return programs.BY_NAME[key.program].device == "cuda"


def label(key):
    """None for a quantity that only serves to compute another one."""
    text = LABELS.get(key.quantity)
    return text and ("on the GPU: " if is_of_gpu(key) else "") + text.format(
        size=size_label(key.bytes), ms=key.compute_ms
    )


def place(key):
    """Where a quantity stands in a table."""
    return is_of_gpu(key), list(LABELS).index(key.quantity), key.compute_ms, key.bytes


def tokens(us):
    """Tokens a second."""
    rate = 1e6 / us
    return f"{rate:,.0f} tokens/s" if rate >= 100 else f"{rate:.3g} tokens/s"


def heading(transport):
    """`bypass` for DPDK/own: the name by which programs get our own collectives."""
    device, own = transports.device_of(transport)
    sealed = ", sealed" if transports.is_sealed(transport) else ""
    if not own:
        return device + sealed
    return ("`bypass`" if device == "DPDK" else f"`bypass` over {device}") + sealed


def signed_time(us):
    return time_label(us) if us > 0 else "0 us"


def cell(row):
    """Median and p99. A difference is one number a round and has no p99."""
    if row is None:
        return "-"
    if programs.is_difference(row.key):
        return signed_time(row.median_us)
    rate = f"; {tokens(row.median_us)}" if row.key.program == "decoding" else ""
    return f"{time_label(row.median_us)}, {time_label(row.p99_us)}{rate}"


def ratio_cell(run, key, transport):
    """How many times as fast as the first transport, with the range over the rounds; '' if it sends nothing."""
    found = None if key.quantity in programs.WITHOUT_RATIO else run.ratio(key, transport)
    if found is None:
        return ""
    value, low, high = found
    span = spanned([low, high], ratio_label)
    spread = f" ({span.removesuffix(' x')})" if " to " in span else ""
    return bold(ratio_label(value), value < 1) + spread


def about(run):
    """A sentence on where and how a run was measured."""
    effort = "" if run.effort == programs.FULL else f", effort {run.effort}"
    rounds = f"{run.rounds} round{'s' if run.rounds > 1 else ''}"
    return (
        f"{run.title}; PyTorch {run.torch}, Python {run.python}, {rounds} in turn{effort}, {run.date}; "
        f"{machine.quiet_in_words(run.load_before, run.others_cores)}. {memory_rates.sentence(run.rates)}"
    )


def table_of(run):
    """Header and lines of a run with all its quantities: median and p99 over each transport, as Markdown."""
    first, *others = run.transports
    header = ["", first, *(word for other in others for word in (heading(other), ""))]
    lines = []
    for key in sorted(filter(label, run.keys()), key=place):
        lines.append([label(key), cell(run.row(key, first))])
        for other in others:
            lines[-1] += [cell(run.row(key, other)), ratio_cell(run, key, other)]
    return header, lines


def notes_of(run):
    """What is to be said below the table, as Markdown."""
    notes = [f"{name}: {versions}." for name, versions in run.libraries.items()]
    notes += [f"Left out: {what}: {why}." for what, why in run.left_out]
    if run.doubt:
        notes.append(f"**The machine was not steady**: {run.doubt}. Ratios near that say little.")
    return notes


def whole(run):
    """One run with all its quantities."""
    return "\n\n".join([about(run), markdown(*table_of(run)), *notes_of(run)])


def spanned(values, text):
    """The least and the largest of some values as text, once where they are the same as text."""
    low, high = text(min(values)), text(max(values))
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"


def headline_cell(runs, key, transport):
    rows = [row for row in (run.row(key, transport) for run in runs) if row is not None]
    if not rows:
        return "-"
    if key.program == "decoding":
        return spanned([-row.median_us for row in rows], lambda us: tokens(-us))
    return spanned([row.median_us for row in rows], signed_time)


def headline_ratio(runs, key, transport):
    """The ratios over all runs; bold if TCP wins in each of them, '' if nothing is sent."""
    if key.quantity in programs.WITHOUT_RATIO:
        return ""
    ratios = [found[0] for found in (run.ratio(key, transport) for run in runs) if found]
    return bold(spanned(ratios, ratio_label), max(ratios) < 1) if ratios else ""


def release_of(run):
    """(2, 13) of 2.13.0+cpu"""
    return tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", run.torch).groups())


def headline(runs):
    """The few quantities that a reader looks for, of the newest PyTorch: one table for each number of cores and ranks;
    ranges are over its runs."""
    groups = {}
    for run in runs:
        if run.effort == programs.FULL:
            groups.setdefault((run.machine["cores"], run.ranks, run.threads, run.transports), []).append(run)
    tables = []
    for (cores, ranks, _, (first, *others)), those in sorted(groups.items()):
        newest = max(map(release_of, those))
        those = [run for run in those if release_of(run) == newest]
        processors = " and ".join(dict.fromkeys(run.machine["processor"] for run in those))
        header = [
            f"PyTorch {newest[0]}.{newest[1]}, {ranks} ranks on {cores} cores of {processors}",
            f"Gloo {first}",
            *(word for other in others for word in (heading(other), "faster")),
        ]
        lines = []
        for key, text in HEADLINES:
            if any(key in run.keys() for run in those):
                lines.append([text, headline_cell(those, key, first)])
                for other in others:
                    lines[-1] += [headline_cell(those, key, other), headline_ratio(those, key, other)]
        tables.append(markdown(header, lines))
    return "\n\n".join(tables)
