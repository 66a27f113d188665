"""A study as one HTML page that needs nothing else. Pure. Style and machine table are the report's."""

from pathlib import Path

import jinja2

from gloo_bypass_model import quantities
from gloo_bypass_report import machine, page, wording

from . import catalogue, columns, tables, transports

FOLDERS = (Path(__file__).parent, page.FOLDER)
SOURCE = "Distributed AI fabrics: a network-side perspective"


def environment_with(**filters):
    """Of the studies' templates; a name that is not given is an error."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDERS), autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)
    environment.filters |= {"number": wording.number, "duration": wording.duration, "ratio": ratio} | filters
    return environment


def machine_lines(record):
    return page.machine_lines(record)


def ratio(value):
    return "\u2013" if value is None else f"{value:.2f}"


def plural(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def in_words(names):
    """TCP, DPDK and RDMA."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def turns(rows):
    """How often each cell was run."""
    runs = sorted({len(one.runs) for row in rows for one in row.measured.values()})
    return plural(runs[0], "time") if len(runs) == 1 else f"{runs[0]} to {runs[-1]} times"


def settings_text(settings):
    return ", ".join(f"{name}={value}" for name, value in settings)


def load_note(record):
    load = record["machine"].get("load_before")
    if load is None or load <= 0.5:
        return []
    return [f"The machine's load was {load:g} when the study began: something else was running, so take times as provisional."]


def notes(record, plan, study, rows):
    """What was measured and how, each a sentence or two; honest about what the numbers cannot say."""
    kernel = record["kernel_tcp"]
    found = [
        f"{study.about} {plan.ranks} ranks on this machine, each behind the emulated fabric: every frame of either transport crosses the same links. "
        "One all-reduce of one vector at a time, by all_reduce_perf: Gloo's ring, float sums, results checked.",
        f"Each run is fresh processes and a fresh fabric: {plural(plan.warm_up, 'all-reduce')} to warm up, {plan.rounds} timed, a barrier before each; "
        f"the time is that of the slowest rank. The transports ran in turn, cell by cell, {turns(rows)} each. Medians are over all timed "
        "all-reduces; the 99th percentile of so few is the slowest.",
        "Schedule: what Gloo's ring allows at this segment size, as this transport completes its sends, over edges that do nothing but delay and "
        "serialise. Floor: one delay in each half of the ring and the bytes at the edge's rate, which no schedule beats. Neither knows the processor.",
        "With loss the model sends lost frames again: a segment comes one round trip later for each time. That alone doubles the time where every "
        "window of two iterations a rank loses a frame; only a transport that sends redundantly could do better.",
        f"Published: median T_ar of training DistilGPT2, whose {catalogue.PUBLISHED_BYTES / 1e6:.2f} MB go in buckets against backward. Scaled: by "
        "bytes to the vector reduced here. Its base, 21 s for bytes that need little time themselves, is the processor's: compare growth with care.",
        f"TCP: {kernel['congestion_control']} congestion control, tcp_rmem {kernel['tcp_rmem']}, tcp_wmem {kernel['tcp_wmem']}"
        + (f"; changed in the ranks' namespaces: {settings_text(plan.sysctls)}." if plan.sysctls else ".")]
    found += tables.elsewhere_of(rows)
    if plan.settings:
        found.append(f"Bypass ranks ran with {settings_text(plan.settings)}.")
    found.append(f"{plan.ranks} ranks and the fabric share {plural(record['machine'].get('cores'), 'core')}: what takes processor time takes longer "
                 f"here than on {plan.ranks} machines.")
    return found + load_note(record)


def html_of(record, plan, study, rows, found, pictures):
    """`found`: what rendering.Summary has besides the rows; `pictures`: of edge_pictures."""
    environment = environment_with(seconds=quantities.seconds, heading=lambda one: transports.heading(plan, one))
    return environment.get_template("study.html.j2").render(
        record=record, plan=plan, study=study, rows=rows, found=found, source=SOURCE, absent=columns.absent_of(record, plan),
        sections={name: [one.as_shown() for one in pictures if one.section == name] for name in ("result", "ranks")},
        segment_names=catalogue.SEGMENT_NAMES, notes=notes(record, plan, study, rows) if rows else [], others=plan.transports[1:],
        compared=transports.compared(plan),
        machine_lines=page.machine_lines(record), table_number=study.tables["t_ar"],
        opening=f"{plan.ranks} ranks on {machine.in_words(record['machine'])}, over {in_words(plan.transports)} through an emulated fabric; ring "
                f"all-reduce of {wording.number(plan.bytes / 1e6)} MB.")
