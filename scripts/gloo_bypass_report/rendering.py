"""From a results folder's raw files to everything that is drawn from them. Run again, it draws the same again."""

from dataclasses import dataclass

import pandas

from . import machine, page, plots, published, records, summary
from .table import comparison_table, verdict

SCHEMA = "gloo-bypass/comparison/1"


@dataclass(frozen=True)
class Measurement:
    """A results folder, read: the record of results.json and the frames of the raw files."""

    record: dict
    steps: pandas.DataFrame
    runs: pandas.DataFrame
    reduces: pandas.DataFrame
    idle: pandas.DataFrame

    @property
    def transports(self):
        return list(self.record["plan"]["transports"])


@dataclass(frozen=True)
class Summary:
    """What a reader is told. `same_bits` is None where not every transport was trained."""

    training: list
    all_reduce: list
    headline_all_reduce: list
    idle: list
    same_bits: bool | None
    digests: dict
    targets: list
    beside: list
    doubt: str


def load(folder):
    """Reads a folder that comparison.py has written; RecordError says what is wrong with it."""
    path = folder.place("results.json")
    record = records.json_object(path)
    if record.get("schema") != SCHEMA:
        raise records.RecordError(f"{path}: schema {record.get('schema')!r}, not {SCHEMA!r}")
    warm_up = records.number_at(path, records.value_at(path, record, "plan", dict), "warm_up")
    steps, runs, reduces, idle = [], [], [], []
    for one in records.value_at(path, record, "training", list):
        for name in one["files"]:
            rows, run = records.read_training(folder.place(name), one["transport"], one["repeat"], warm_up)
            steps += rows
            runs.append(run)
    for name in records.value_at(path, record, "all_reduce", list):
        reduces += records.read_all_reduce(folder.place(name))
    for name in records.value_at(path, record, "idle", list):
        idle += records.read_idle(folder.place(name))
    return Measurement(record, records.frame_of(steps, records.STEP_COLUMNS), records.frame_of(runs, records.RUN_COLUMNS),
                       records.frame_of(reduces, records.REDUCE_COLUMNS), records.frame_of(idle, records.IDLE_COLUMNS))


def summarise(measurement):
    transports, plan = measurement.transports, measurement.record["plan"]
    training = summary.training_rows(measurement.steps, transports)
    reduces = summary.all_reduce_rows(measurement.reduces, transports)
    idle = summary.idle_rows(measurement.idle, transports)
    reached = []
    if len(transports) > 1 and plan["ranks"] == 2:
        reached = summary.targets(training, reduces, idle, transports[1], transports[0])
    return Summary(
        training, reduces, summary.all_reduce_rows(measurement.reduces, transports, summary.HEADLINE_BYTES), idle,
        summary.identical(measurement.runs, transports), summary.digests(measurement.runs), reached,
        published.beside(training, transports, plan["ranks"]) if training and published.comparable(plan) else [],
        summary.doubt(training, transports))


def row_records(rows, transports):
    """Rows as lines of summary.csv: one a quantity and transport."""
    lines = []
    for row in rows:
        for transport in transports:
            figure, ratio = row.figures.get(transport), row.ratios.get(transport)
            if figure is not None:
                lines.append({"section": row.section, "quantity": row.label, "unit": row.unit, "transport": transport,
                              "median": figure.median, "tail": figure.tail, "samples": figure.samples,
                              "times_better": ratio.value if ratio else None,
                              "times_better_low": ratio.low if ratio else None,
                              "times_better_high": ratio.high if ratio else None})
    return lines


def csv_of(frame):
    return frame.to_csv(index=False, lineterminator="\n")


def terminal_rows(made):
    return [*made.training, *made.headline_all_reduce, *made.idle]


def title_of(measurement):
    plan = measurement.record["plan"]
    return (f"{plan['ranks']} ranks on {machine.in_words(measurement.record['machine'])}; {plan['model']}, batch size "
            f"{plan['batch_size']}, sequence length {plan['seq_len']}")


def show(measurement, made, console):
    """The table and the verdict on the terminal."""
    rows = terminal_rows(made)
    if rows:
        console.print()
        console.print(title_of(measurement), style="bold", highlight=False, soft_wrap=True)
        console.print(comparison_table(rows, measurement.transports))
        if len(measurement.transports) > 1:
            console.print(f"\nRatio: how many times better than {measurement.transports[0]}, in times as in rates.",
                          style="dim", highlight=False)
    if made.doubt:
        console.print(made.doubt, style="yellow", highlight=False, soft_wrap=True)
    text, style = verdict(made.same_bits, made.digests)
    if text:
        console.print(text, style=style, highlight=False, soft_wrap=True)


def render(folder):
    """Writes CSV files, plots and the page. Returns (Measurement, Summary)."""
    measurement = load(folder)
    made = summarise(measurement)
    transports = measurement.transports
    rows = [*made.training, *made.all_reduce, *made.idle]
    columns = ("section", "quantity", "unit", "transport", "median", "tail", "samples", "times_better",
               "times_better_low", "times_better_high")
    for name, frame in (("steps.csv", measurement.steps), ("runs.csv", measurement.runs),
                        ("all_reduce.csv", measurement.reduces), ("idle.csv", measurement.idle),
                        ("summary.csv", records.frame_of(row_records(rows, transports), columns))):
        if len(frame):
            folder.write_text(name, csv_of(frame))
    light = plots.all_of(measurement.steps, measurement.reduces, transports, plots.LIGHT, made.same_bits)
    dark = plots.all_of(measurement.steps, measurement.reduces, transports, plots.DARK, made.same_bits)
    for name, content in light.items():
        folder.write_bytes(f"plots/{name}.png", content)
    folder.write_text("index.html", page.html_of(measurement, made, light, dark))
    return measurement, made
