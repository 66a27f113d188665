"""A kept run of a study: run.json, which says what was run where, and summary.csv, a line for each figure and
transport.

    {"schema": "gloo-bypass/study-summary/1", "study": "world-size", "command": "scripts/study world-size ...",
     "plan": {...}, "commit": "0123abc...", "date": "2026-11-28", "machine": {...}, "kernel_tcp": {...}, "programs":
     {"trainer": SHA-256, ...}, "environment": {...}, "load_before": 0.1, "seconds": 1080.5,
     "left_out": [{"what": ..., "why": ...}]}

`seconds`: of all its programs. A run that was cut off, or of a commit with changes, is not kept.
"""

import csv
import datetime
import io
import json
import re
import shlex
from dataclasses import dataclass, fields
from pathlib import Path

from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.report import checked_csv, machine, records, row_lines
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study import catalogue
from gloo_bypass_tools.study.summaries import lines
from gloo_bypass_tools.study.summaries.lines import COLUMNS, Line

SCHEMA = "gloo-bypass/study-summary/1"
RUN_FILE, SUMMARY_FILE = "run.json", "summary.csv"
FOLDER_NAME = re.compile(r"(?P<study>.+)-(?P<number>[1-9][0-9]*)")
NUMBERS, OPTIONAL = ("published", "measured", "model"), ("published", "model")
DIGITS = 6
# Of the command: where this machine has things.
PLACES = ("--build", "--output")
# Of a plan: what all kept runs of a study must have the same, since their values stand side by side.
COMPARED = ("bytes", "steps", "model", "mtu", "settings", "sysctls", "files", "ranks", "warm_up")


@dataclass(frozen=True)
class Run:
    """`lines`: in the order of the study's tables."""

    study: str
    command: str
    plan: dict
    commit: str
    date: datetime.date
    machine: dict
    kernel_tcp: dict
    programs: dict
    environment: dict
    load_before: float
    seconds: float
    left_out: tuple
    lines: tuple


KEYS = {"schema"} | {one.name for one in fields(Run)} - {"lines"}
OBJECTS = ("kernel_tcp", "programs", "environment")


def without_places(command):
    words, found = shlex.split(command), []
    for at, word in enumerate(words):
        if word.partition("=")[0] not in PLACES and (at == 0 or words[at - 1] not in PLACES):
            found.append(word)
    return shlex.join(found)


def of_results(place, record, study, summary):
    """The run to keep of a results folder, as rendering.summarised() has read it. RecordError says why not."""
    described = records.value_at(place, record, "machine", dict)
    if record.get("state") != "complete" or record.get("failures"):
        raise RecordError(f"{place}: the study is not complete: finish it with scripts/study --continue")
    if record.get("guest"):
        raise RecordError(f"{place}: runs in a guest are not kept: its machine is another")
    stages = records.value_at(place, record, "stages", list)
    day = {"date": records.text_at(f"{place}: machine", described, "date")[:10]}
    return Run(
        study.name,
        without_places(records.text_at(place, record, "repeat_command")),
        records.value_at(place, record, "plan", dict) | {"files": record.get("files", {})},  # digests, no paths
        records.commit_at(f"{place}: machine", described, "commit"),
        records.date_at(f"{place}: machine", day, "date"),
        machine.stored(described),
        *(records.value_at(place, record, key, dict) for key in OBJECTS),
        records.number_at(f"{place}: machine", described, "load_before"),
        round(sum(records.number_at(place, stage, "seconds") for stage in stages), 1),
        records.left_out_at(place, record),
        tuple(lines.of_summary(study, summary)),
    )


def number_text(value):
    return "" if value is None else f"{value:.{DIGITS}g}"


def files_of(run):
    """{name: content}"""
    head = {"schema": SCHEMA} | {key: value for key, value in vars(run).items() if key != "lines"}
    head |= {"date": run.date.isoformat(), "left_out": row_lines.left_out(run.left_out)}
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in run.lines:
        writer.writerow(vars(line) | {key: number_text(getattr(line, key)) for key in NUMBERS})
    return {RUN_FILE: (json.dumps(head, indent=1) + "\n").encode(), SUMMARY_FILE: text.getvalue().encode()}


def check_beside(place, run, kept):
    """RecordError where the run cannot stand beside the kept ones of its study."""
    for other in kept:
        if files_of(other) == files_of(run):
            raise RecordError(f"{place}: is kept already")
        for key in COMPARED:
            if other.plan.get(key) != run.plan.get(key):
                raise RecordError(
                    f"{place}: its {key} is {run.plan.get(key)!r}, and that of the kept runs {other.plan.get(key)!r}: "
                    "they cannot stand side by side"
                )


def write(run, folder):
    """Into a new folder of the next number: world-size-1. Returns it."""
    taken = [place_of(one)[1] for one in folder.glob(f"{run.study}-*/") if place_of(one)[0] == run.study]
    made = folder / f"{run.study}-{max(taken, default=0) + 1}"
    partial = folder / f".{made.name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    for name, content in files_of(run).items():
        write_whole(partial / name, content)
    partial.rename(made)
    return made


def line_at(place, row):
    for key in ("variant", "metric", "statistic", "transport"):
        checked_csv.text_at(place, row, key)
    return Line(**row | {key: checked_csv.number_at(place, row, key, key in OPTIONAL) for key in NUMBERS})


def read(folder):
    path = Path(folder) / RUN_FILE
    record = records.of_schema(path, SCHEMA)
    records.only(path, record, KEYS)
    study = records.text_at(path, record, "study")
    if study not in catalogue.STUDIES:
        raise RecordError(f"{path}: study '{study}' is none of {', '.join(catalogue.STUDIES)}")
    return Run(
        study,
        records.text_at(path, record, "command"),
        records.value_at(path, record, "plan", dict),
        records.commit_at(path, record, "commit"),
        records.date_at(path, record, "date"),
        records.machine_at(path, record),
        *(records.value_at(path, record, key, dict) for key in OBJECTS),
        *(records.number_at(path, record, key) for key in ("load_before", "seconds")),
        records.left_out_at(path, record),
        tuple(checked_csv.read(Path(folder) / SUMMARY_FILE, COLUMNS, line_at)),
    )


def place_of(folder):
    """(study, number) of the folder of a kept run."""
    found = FOLDER_NAME.fullmatch(folder.name)
    if not found:
        raise RecordError(f"{folder}: is no folder of a kept run, as world-size-1")
    return found["study"], int(found["number"])


def read_all(folder):
    """All kept runs, {study: runs, in the order of their numbers}."""
    found = {}
    for one in sorted((one for one in Path(folder).glob("[!.]*/")), key=place_of):
        run = read(one)
        if run.study != place_of(one)[0]:
            raise RecordError(f"{one}: is of the study '{run.study}'")
        found.setdefault(run.study, []).append(run)
    return found
