"""From a study's folder to its tables, CSV files, plots and page. Run again, it draws the same again."""

import csv
import io
from dataclasses import dataclass

from gloo_bypass_model import output, quantities
from gloo_bypass_report import records
from rich.text import Text

from . import catalogue, edge_pictures, page, pictures, sweep_rendering, sweep_tables, sweeps, tables, training, training_rendering, training_tables, transports
from .cells import Plan
from .measurement import SCHEMA


@dataclass(frozen=True)
class Summary:
    rows: list
    targets: list
    shares: list
    windows: list


def load(folder):
    """(record, plan, study) of a folder that measurement.py has written; RecordError says what is wrong with it."""
    path = folder.place("results.json")
    record = records.json_object(path)
    if record.get("schema") != SCHEMA:
        raise records.RecordError(f"{path}: schema {record.get('schema')!r}, not {SCHEMA!r}")
    known = catalogue.STUDIES | training.STUDIES | sweeps.STUDIES
    study = known.get(record.get("study"))
    if study is None:
        raise records.RecordError(f"{path}: study {record.get('study')!r} is none of {', '.join(known)}")
    records.value_at(path, record, "runs", list)
    try:
        kind = Plan if study.name in catalogue.STUDIES else sweeps.SweepPlan if study.name in sweeps.STUDIES else training.TrainingPlan
        plan = kind.from_record(records.value_at(path, record, "plan", dict))
    except TypeError as error:
        raise records.RecordError(f"{path}: the plan is not whole: {error}") from error
    return record, plan, study


def summarise(record, plan, study):
    rows = tables.rows_of(plan, study, record["runs"])
    return Summary(rows, tables.targets_of(plan, study, rows) if rows else [], tables.shares_of(plan, study, rows) if rows else [],
                   tables.windows_of(rows, plan.settings))


def csv_text(lines):
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def sample_lines(folder, record):
    """Every sample of every rank: one line each. at_s since its rank began; at_unix_s where the probe knew the clock."""
    lines = []
    for run in record["runs"]:
        for rank in range(len(run["ranks"])):
            path = folder.place(f"{run['folder']}/probe-{rank}.json")
            if not path.exists():
                continue
            probe = records.json_object(path)
            for sample in probe["samples"]:
                began = probe.get("began_unix_s")
                lines.append({**run["cell"], "repeat": run["repeat"], "rank": rank, "at_unix_s": None if began is None else round(began + sample["at_s"], 3),
                              **{key: sample[key] for key in ("at_s", "cpu_s", "resident_bytes", "received_bytes", "sent_bytes")}})
    return lines


def event_lines(record):
    """Every event of every captured run: one line each."""
    return [{**run["cell"], "repeat": run["repeat"], "event": number, "bytes": event["bytes"], "seconds": event["seconds"]}
            for run in record["runs"] if "capture" in run for number, event in enumerate(run["capture"]["events"], start=1)]


def write_csv(folder, record, summary):
    for name, lines in (("summary.csv", summary), ("samples.csv", sample_lines(folder, record)), ("events.csv", event_lines(record))):
        if lines:
            folder.write_text(name, csv_text(lines))


def render(folder):
    """Writes CSV files, plots and the page. Returns (record, plan, study, Summary)."""
    record, plan, study = load(folder)
    if study.name in sweeps.STUDIES:
        made = sweep_rendering.render(folder, record, plan, study)
        write_csv(folder, record, sweep_tables.csv_lines(made.rows))
        return record, plan, study, made
    if study.name in training.STUDIES:
        made = training_rendering.render(folder, record, plan, study)
        write_csv(folder, record, training_tables.csv_lines(made.all_rows))
        return record, plan, study, made
    made = summarise(record, plan, study)
    write_csv(folder, record, tables.csv_lines(made.rows))
    found = edge_pictures.all_of(folder, record, plan, study, made.rows)
    pictures.write(folder, found)
    folder.write_text("index.html", page.html_of(record, plan, study, made.rows, made, found))
    return record, plan, study, made


def study_table(plan, study, rows):
    columns = ["<edge", "<loss", "<segments", "published"]
    for transport in plan.transports:
        columns += [transports.heading(plan, transport), "model", "x"]
    table = output.table(f"{study.title}: all-reduce of {plan.bytes / 1e6:.1f} MB, {plan.ranks} ranks, seconds", *columns, "floor",
                         *[f"{one}/floor" for one in plan.transports if one != "TCP"])
    for row in rows:
        cells = [row.label, f"{row.loss_percent:g} %", catalogue.SEGMENT_NAMES[row.segment], quantities.seconds(row.published_s)]
        for transport in plan.transports:
            measured = quantities.seconds(row.measured[transport].median_s) if transport in row.measured else "-"
            cells += [measured, quantities.seconds(row.model[transport].repeated_s), page.ratio(row.ratio(transport))]
        output.add_row(table, *cells, quantities.seconds(row.floor_s), *[page.ratio(row.floor_ratio(one)) for one in plan.transports if one != "TCP"])
    return table


def show(record, plan, study, made, console):
    """The tables on the terminal."""
    def say(text, style=""):
        console.print(Text(text), style=style, soft_wrap=True)

    if study.name in sweeps.STUDIES:
        sweep_rendering.show(plan, study, made, say, console)
    elif study.name in training.STUDIES:
        training_rendering.show(plan, study, made, say, console)
    else:
        show_edge(plan, study, made, say, console)
    for target in made.targets:
        style = {True: "green", False: "red", None: "yellow"}[target.met]
        verdict = {True: ": reached", False: ": not reached", None: ""}[target.met]
        say(f"{target.label}: {target.measured}; wanted {target.wanted}{verdict}", style)


def show_edge(plan, study, made, say, console):
    if not made.rows:
        return
    table = study_table(plan, study, made.rows)
    title, table.title = table.title, None
    say(f"\n{title}", "bold")
    console.print(table)
    say("\nmodel: Gloo's schedule at this segment size, as the transport completes, lost frames sent again; x: measured / model; floor: propagation "
        "and serialisation; published: T_ar in training over TCP, scaled to this size", "dim")
    for sentence in tables.elsewhere_of(made.rows):
        say(sentence, "dim")
    for one in made.shares:
        say(f"{one.label}: of TCP's {quantities.seconds(one.total_s)}, {100 * one.share(one.transport_s):.0f} % are TCP's, "
            f"{100 * one.share(one.pipeline_s):.0f} % Gloo's pipeline's, {100 * one.share(one.rest_s):.0f} % propagation, serialisation and processor")
