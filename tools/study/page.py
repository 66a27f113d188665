"""A study as one HTML page that needs nothing else. Pure. Style and machine table are the report's."""

from pathlib import Path

from gloo_bypass_tools.model import quantities
from gloo_bypass_tools.report import machine, page
from gloo_bypass_tools.study import columns, transports

FOLDERS = (Path(__file__).parent / "templates", page.FOLDER)
SOURCE = "Distributed AI fabrics: a network-side perspective"


def environment(plan):
    """Of the studies' templates."""
    return page.environment_over(
        FOLDERS,
        ratio=ratio,
        plural=plural,
        in_words=in_words,
        settings=settings_text,
        seconds=quantities.seconds,
        heading=lambda transport: transports.heading(plan, transport),
    )


def html_of(record, plan, study, notes, **values):
    """The page of the study's layout."""
    return (
        environment(plan)
        .get_template(f"{study.layout}.html.j2")
        .render(
            record=record,
            plan=plan,
            study=study,
            source=SOURCE,
            notes=notes,
            absent=columns.absent_of(record, plan),
            compared=transports.compared(plan),
            machine=machine.in_words(record["machine"]),
            machine_lines=page.machine_lines(record),
            **values,
        )
    )


def ratio(value):
    return "\u2013" if value is None else f"{value:.2f}"


def plural(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def in_words(names):
    """TCP, DPDK and RDMA."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def settings_text(settings):
    return ", ".join(f"{name}={value}" for name, value in settings)


def notes(record, plan, study, **values):
    """What was measured and how, a paragraph each, as the layout's template has it."""
    described = record.get("guest", {}).get("machine", {})
    return page.paragraphs(
        environment(plan),
        f"{study.layout}_notes.txt.j2",
        record=record,
        plan=plan,
        study=study,
        kernel=record["kernel_tcp"],
        in_guest=[one for one in plan.guest if any(run["cell"]["transport"] == one for run in record["runs"])],
        guest_machine=machine.in_words(described),
        guest_kernel=described.get("kernel", machine.UNKNOWN),
        **values,
    )
