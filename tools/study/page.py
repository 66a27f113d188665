"""A study as one HTML page that needs nothing else. Pure. Style and machine table are the report's."""

from pathlib import Path

from gloo_bypass_tools.report import machine, page

FOLDERS = (Path(__file__).parent / "templates", page.FOLDER)
SOURCE = "Distributed AI fabrics: a network-side perspective"


def environment_with(**filters):
    """Of the studies' templates."""
    return page.environment_over(
        FOLDERS, ratio=ratio, plural=plural, in_words=in_words, settings=settings_text, **filters
    )


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


def settings_text(settings):
    return ", ".join(f"{name}={value}" for name, value in settings)


def notes(template, record, plan, study, **values):
    """What was measured and how, a paragraph each, as the study's template has it."""
    return page.paragraphs(
        environment_with(),
        template,
        record=record,
        plan=plan,
        study=study,
        kernel=record["kernel_tcp"],
        **guest_values(record, plan),
        **values,
    )


def guest_values(record, plan):
    """Of what was measured in the guest."""
    described = record.get("guest", {}).get("machine", {})
    return {
        "in_guest": [one for one in plan.guest if any(run["cell"]["transport"] == one for run in record["runs"])],
        "guest_machine": machine.in_words(described),
        "guest_kernel": described.get("kernel", machine.UNKNOWN),
    }
