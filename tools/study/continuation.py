"""Going on with a study that was cut off. Its folder holds the command it was begun with and every run that ended
well; what is missing is measured by the same command, with the same programs, on the same machine.

A run is in results.json only once it is whole (results.py), so what a killed process left half written is in no run,
and is made anew. Files of a run that were damaged since no longer say what results.json has of them, and are refused.
"""

import json
import shlex

from gloo_bypass_tools.common import exclusive
from gloo_bypass_tools.report import machine, records
from gloo_bypass_tools.report.results import ResultsError, ResultsFolder
from gloo_bypass_tools.study import guest_part
from gloo_bypass_tools.study.plan import cells_of

# Figures of one study must agree in them to stand in one table.
ALIKE = {"commit": "commit", "processor": "processor", "cores": "number of cores", "kernel": "kernel"}
SET_UP = {
    "programs": "build",
    "files": "text, vocabulary or weights",
    "environment": "environment",
    "kernel_tcp": "kernel's TCP",
}


def read(path, schema, root):
    """(the folder, its record, the study's arguments). RecordError where it is no study, or cannot be gone on with
    here."""
    folder = ResultsFolder(path)
    place = folder.place("results.json")
    record = records.of_schema(place, schema)
    measured, here = records.value_at(place, record, "machine", dict), machine.describe(root)
    for key, name in ALIKE.items():
        if measured.get(key) != here[key]:
            raise records.RecordError(
                f"{path}: its runs are of {name} {measured.get(key)!r}, and here is "
                f"{here[key]!r}: go on there, or measure all of it anew"
            )
    had, has = records.value_at(place, measured, "packages", dict), here["packages"]
    if changed := sorted(one for one in {*had, *has} if had.get(one) != has.get(one)):
        raise records.RecordError(
            f"{path}: its runs were with other versions of {', '.join(changed)}: measure all of it anew"
        )
    for number, stage in enumerate(records.value_at(place, record, "stages", list)):
        records.value_at(f"{place}: stages[{number}]", stage if isinstance(stage, dict) else {}, "log", str)
    try:
        words = shlex.split(records.value_at(place, record, "repeat_command", str))
    except ValueError as error:
        raise records.RecordError(f"{place}: repeat_command: {error}") from error
    if words[:1] != ["scripts/study"]:
        raise records.RecordError(f"{place}: repeat_command is no command of scripts/study")
    return folder, record, words[1:]


def as_written(value):
    return json.loads(json.dumps(value))


def check(folder, record, measurement):
    """RecordError unless the runs are of this measurement's plan, its cells, each once, and its set-up, and their files
    say what the record has of them."""
    place, plan, cells = folder.place("results.json"), measurement.plan, cells_of(measurement.plan)
    known = [cell.as_record() for cell in cells]
    if as_written(plan.as_record()) != record.get("plan"):
        raise records.RecordError(
            f"{place}: its command and its plan do not agree: was one of them changed? Measure anew"
        )
    for key, name in SET_UP.items():
        there, here = records.value_at(place, record, key, dict), as_written(measurement.record[key])
        if differing := sorted(one for one in {*there, *here} if there.get(one) != here.get(one)):
            raise records.RecordError(
                f"{folder.path}: the {name} is not what its runs had: {', '.join(differing)}: go "
                "on with that, or measure all of it anew"
            )
    seen = []
    for number, run in enumerate(records.value_at(place, record, "runs", list)):
        about = (run.get("repeat"), run.get("cell")) if isinstance(run, dict) else None
        if about is None or about[1] not in known or about[0] not in range(1, plan.repeats + 1) or about in seen:
            raise records.RecordError(f"{place}: runs[{number}] is none of this study's, or there twice")
        check_files(folder, f"{place}: runs[{number}]", run, cells[known.index(about[1])], measurement)
        seen.append(about)


def check_files(folder, place, run, cell, measurement):
    """Checks one run; its folder must be the one that it was measured into."""
    slug = measurement.slug_of(run["repeat"], cell)
    if run.get("folder") not in (f"raw/{slug}", f"{guest_part.FOLDER}/raw/{slug}"):
        raise records.RecordError(f"{place}: 'folder' is {run.get('folder')!r}, not raw/{slug}")
    output = folder.place(run["folder"])
    if not output.is_dir():
        raise records.RecordError(f"{output} is missing: move it back, or measure anew")
    try:
        found = as_written(measurement.read(cell, output))
    except records.RecordError as error:
        raise records.RecordError(f"{error}: it was whole once: bring it back, or measure anew") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise records.RecordError(
            f"{output}: one of its files is damaged ({error!r}): bring the whole one back, or measure anew"
        ) from error
    if differing := sorted(key for key, value in found.items() if run.get(key) != value):
        raise records.RecordError(
            f"{place}: '{differing[0]}' is not what the files in {output} say: bring the right "
            "ones back, or measure anew"
        )


def is_finished(folder, record):
    """Whether its page was drawn of all that it has: after it was written down for the last time."""
    page = folder.place("index.html")
    return (
        record.get("state") == "complete"
        and page.exists()
        and page.stat().st_mtime_ns >= folder.place("results.json").stat().st_mtime_ns
    )


def alone(folder):
    """While it lasts no other process measures into the folder. ResultsError where one does."""
    refusal = ResultsError(f"{folder.path} is being measured by another process: wait for it, or end it")
    return exclusive.alone(folder.path, refusal)
