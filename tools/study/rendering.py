"""From a study's folder to its tables, CSV files, plots and page. Run again, it draws the same again."""

import csv
import io

from gloo_bypass_tools.report import records
from gloo_bypass_tools.study import (
    catalogue,
    definition,
    edge_rendering,
    page,
    pictures,
    plan,
    sweep_rendering,
    training_rendering,
)
from gloo_bypass_tools.study.measurement import SCHEMA
from rich.text import Text

# Each has summarise(record, plan, study), a Summary with `targets` and csv_lines(); pictures_of(folder, record, plan,
# study, made); words_of(record, plan, study, made, pictures), which gives the notes and the template's values; and
# show(plan, study, made, say, console).
LAYOUTS = {definition.EDGE: edge_rendering, definition.PUBLISHED: training_rendering, definition.SWEEP: sweep_rendering}


def load(folder):
    """(record, plan, study) of a folder that measurement.py has written; RecordError says what is wrong with it."""
    path = folder.place("results.json")
    record = records.of_schema(path, SCHEMA)
    study = catalogue.STUDIES.get(record.get("study"))
    if study is None:
        raise records.RecordError(f"{path}: study {record.get('study')!r} is none of {', '.join(catalogue.STUDIES)}")
    records.value_at(path, record, "runs", list)
    try:
        return record, plan.plan_from(study, records.value_at(path, record, "plan", dict)), study
    except (KeyError, TypeError) as error:
        raise records.RecordError(f"{path}: the plan is not whole: {error}") from error


def csv_text(lines):
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def sample_lines(folder, record):
    """Every sample of every rank: one line each. at_s since its rank began; at_unix_s where the probe knew the
    clock."""
    lines, copied = [], ("at_s", "cpu_s", "resident_bytes", "received_bytes", "sent_bytes")
    for run in record["runs"]:
        for rank in range(len(run["ranks"])):
            path = folder.place(f"{run['folder']}/probe-{rank}.json")
            if not path.exists():
                continue
            probe = records.json_object(path)
            began = probe.get("began_unix_s")
            for sample in probe["samples"]:
                at_unix_s = None if began is None else round(began + sample["at_s"], 3)
                line = {**run["cell"], "repeat": run["repeat"], "rank": rank, "at_unix_s": at_unix_s}
                lines.append(line | {key: sample[key] for key in copied})
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
    samples, events = sample_lines(folder, record), event_lines(record)
    for name, lines in (("summary.csv", summary), ("samples.csv", samples), ("events.csv", events)):
        if lines:
            folder.write_text(name, csv_text(lines))


def summarised(folder):
    """(record, plan, study, Summary of its layout) of a folder. RecordError where its record is damaged."""
    record, planned, study = load(folder)
    try:
        return record, planned, study, LAYOUTS[study.layout].summarise(record, planned, study)
    except (KeyError, TypeError, AttributeError) as error:  # of a record that says something else than was written
        raise records.RecordError(f"{folder.place('results.json')}: damaged, it lacks or garbles {error}") from error


def render(folder):
    """Writes CSV files, plots and the page. Returns (record, plan, study, Summary of its layout)."""
    record, planned, study, made = summarised(folder)
    layout = LAYOUTS[study.layout]
    drawn = layout.pictures_of(folder, record, planned, study, made)
    pictures.write(folder, drawn)
    notes, values = layout.words_of(record, planned, study, made, drawn)
    folder.write_text("index.html", page.html_of(record, planned, study, notes, made=made, **values))
    write_csv(folder, record, made.csv_lines())
    return record, planned, study, made


def show(record, planned, study, made, console):
    """The tables on the terminal."""

    def say(text, style=""):
        console.print(Text(text), style=style, soft_wrap=True)

    LAYOUTS[study.layout].show(planned, study, made, say, console)
    for target in made.targets:
        style = {True: "green", False: "red", None: "yellow"}[target.met]
        verdict = {True: ": reached", False: ": not reached", None: ""}[target.met]
        say(f"{target.label}: {target.measured}; wanted {target.wanted}{verdict}", style)
