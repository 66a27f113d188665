"""From a study's folder to its tables, CSV files, plots and page. Run again, it draws the same again."""

import csv
import io

from gloo_bypass_tools.report import records
from gloo_bypass_tools.study import catalogue, edge_rendering, sweep_rendering, training_rendering
from gloo_bypass_tools.study.edge_study import EdgeStudy
from gloo_bypass_tools.study.measurement import SCHEMA
from gloo_bypass_tools.study.options import kind_of
from gloo_bypass_tools.study.sweeps import Sweep
from gloo_bypass_tools.study.training import TrainingStudy
from rich.text import Text

# Each has render(folder, record, plan, study), csv_lines(made), show(plan, study, made, say, console).
RENDERERS = {EdgeStudy: edge_rendering, TrainingStudy: training_rendering, Sweep: sweep_rendering}


def load(folder):
    """(record, plan, study) of a folder that measurement.py has written; RecordError says what is wrong with it."""
    path = folder.place("results.json")
    record = records.json_object(path)
    if record.get("schema") != SCHEMA:
        raise records.RecordError(f"{path}: schema {record.get('schema')!r}, not {SCHEMA!r}")
    study = catalogue.STUDIES.get(record.get("study"))
    if study is None:
        raise records.RecordError(f"{path}: study {record.get('study')!r} is none of {', '.join(catalogue.STUDIES)}")
    records.value_at(path, record, "runs", list)
    try:
        plan = kind_of(study.name).plan_type.from_record(records.value_at(path, record, "plan", dict))
    except TypeError as error:
        raise records.RecordError(f"{path}: the plan is not whole: {error}") from error
    return record, plan, study


def csv_text(lines):
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def sample_lines(folder, record):
    """Every sample of every rank: one line each. at_s since its rank began; at_unix_s where the probe knew the
    clock."""
    lines = []
    for run in record["runs"]:
        for rank in range(len(run["ranks"])):
            path = folder.place(f"{run['folder']}/probe-{rank}.json")
            if not path.exists():
                continue
            probe = records.json_object(path)
            for sample in probe["samples"]:
                began = probe.get("began_unix_s")
                lines.append(
                    {
                        **run["cell"],
                        "repeat": run["repeat"],
                        "rank": rank,
                        "at_unix_s": None if began is None else round(began + sample["at_s"], 3),
                        **{
                            key: sample[key]
                            for key in ("at_s", "cpu_s", "resident_bytes", "received_bytes", "sent_bytes")
                        },
                    }
                )
    return lines


def event_lines(record):
    """Every event of every captured run: one line each."""
    return [
        {**run["cell"], "repeat": run["repeat"], "event": number, "bytes": event["bytes"], "seconds": event["seconds"]}
        for run in record["runs"]
        if "capture" in run
        for number, event in enumerate(run["capture"]["events"], start=1)
    ]


def write_csv(folder, record, summary):
    for name, lines in (
        ("summary.csv", summary),
        ("samples.csv", sample_lines(folder, record)),
        ("events.csv", event_lines(record)),
    ):
        if lines:
            folder.write_text(name, csv_text(lines))


def render(folder):
    """Writes CSV files, plots and the page. Returns (record, plan, study, Summary of its kind)."""
    record, plan, study = load(folder)
    renderer = RENDERERS[type(study)]
    made = renderer.render(folder, record, plan, study)
    write_csv(folder, record, renderer.csv_lines(made))
    return record, plan, study, made


def show(record, plan, study, made, console):
    """The tables on the terminal."""

    def say(text, style=""):
        console.print(Text(text), style=style, soft_wrap=True)

    RENDERERS[type(study)].show(plan, study, made, say, console)
    for target in made.targets:
        style = {True: "green", False: "red", None: "yellow"}[target.met]
        verdict = {True: ": reached", False: ": not reached", None: ""}[target.met]
        say(f"{target.label}: {target.measured}; wanted {target.wanted}{verdict}", style)
