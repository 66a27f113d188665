"""Going on with a study that was cut off. Its folder holds the command it was begun with and every run that ended
well; what is missing is measured by the same command, at the same commit, on the same machine.

A run is in results.json only once it is whole (results.py), so what a killed process left half written is in no run,
and is made anew.
"""

import fcntl
import json
import os
import shlex
from contextlib import contextmanager
from dataclasses import asdict

from gloo_bypass_tools.report import machine, records
from gloo_bypass_tools.report.results import ResultsError, ResultsFolder

# Figures of one study must agree in them to stand in one table.
ALIKE = {"commit": "commit", "processor": "processor", "cores": "number of cores"}


def read(path, schema, root):
    """(the folder, its record, the study's arguments). RecordError where it is no study, or cannot be gone on with
    here."""
    folder = ResultsFolder(path)
    place = folder.place("results.json")
    record = records.json_object(place)
    if record.get("schema") != schema:
        raise records.RecordError(f"{place}: schema {record.get('schema')!r}, not {schema!r}")
    measured, here = records.value_at(place, record, "machine", dict), machine.describe(root)
    for key, name in ALIKE.items():
        if measured.get(key) != here[key]:
            raise records.RecordError(f"{path}: its runs are of {name} {measured.get(key)!r}, and here is "
                                      f"{here[key]!r}: go on there, or measure all of it anew")
    records.value_at(place, record, "stages", list)
    try:
        words = shlex.split(records.value_at(place, record, "repeat_command", str))
    except ValueError as error:
        raise records.RecordError(f"{place}: repeat_command: {error}") from error
    if words[:1] != ["scripts/study"]:
        raise records.RecordError(f"{place}: repeat_command is no command of scripts/study")
    return folder, record, words[1:]


def check(folder, record, plan, cells):
    """RecordError unless the runs are of this plan and its cells, each once, and their files are there."""
    place, known = folder.place("results.json"), [asdict(cell) for cell in cells]
    if json.loads(json.dumps(plan.as_record())) != record.get("plan"):
        raise records.RecordError(f"{place}: its command and its plan do not agree: was one of them changed? Measure "
                                  "anew")
    seen = []
    for number, run in enumerate(records.value_at(place, record, "runs", list)):
        about = (run.get("repeat"), run.get("cell")) if isinstance(run, dict) else None
        if about is None or about[1] not in known or about[0] not in range(1, plan.repeats + 1) or about in seen:
            raise records.RecordError(f"{place}: runs[{number}] is none of this study's, or there twice")
        if not isinstance(run.get("folder"), str) or not folder.place(run["folder"]).is_dir():
            raise records.RecordError(f"{folder.place(str(run.get('folder')))} is missing: move it back, or measure "
                                      "anew")
        seen.append(about)


@contextmanager
def alone(folder):
    """While it lasts no other process measures into the folder. ResultsError where one does."""
    descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ResultsError(f"{folder.path} is being measured by another process: wait for it, or end it") from error
    finally:
        os.close(descriptor)
