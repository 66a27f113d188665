"""From a results folder's raw files to everything that is drawn from them. Run again, it draws the same again."""

from dataclasses import astuple, dataclass

import pandas

from gloo_bypass_tools.report import (
    machine,
    page,
    place,
    plots,
    program_rows,
    published,
    records,
    stored_programs,
    summary,
)
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.report.table import comparison_table, target_line, verdict

SCHEMA = "gloo-bypass/comparison/1"


@dataclass(frozen=True)
class Measurement:
    """A results folder, read: the record of results.json and the frames of the raw files."""

    record: dict
    steps: pandas.DataFrame
    runs: pandas.DataFrame
    reduces: pandas.DataFrame
    idle: pandas.DataFrame
    beside: pandas.DataFrame
    bound: pandas.DataFrame
    # Runs of a training that was set aside, since the machine was not steady: for their bits.
    aside: pandas.DataFrame
    # Runs of scripts/compare-programs.
    programs: tuple = ()
    # What quickstart measured in the guest besides: another machine. Compare its figures only with each other.
    guest: "Measurement | None" = None

    @property
    def transports(self):
        return list(self.record["plan"]["transports"])

    @property
    def place(self):
        return place.from_record(self.record)


@dataclass(frozen=True)
class Summary:
    """What the reports show. `same_bits` is None unless every transport was trained."""

    training: list
    all_reduce: list
    headline_all_reduce: list
    idle: list
    same_bits: bool | None
    digests: dict
    targets: list
    beside: list
    doubt: str
    # The transports that the doubt is about.
    doubted: dict
    bound: list
    bound_transports: list
    # Said where RDMA in software loses to TCP in bandwidth.
    remark: str
    # What programs gain through torch.distributed.
    programs: list
    guest: "Summary | None" = None


def load(folder):
    """Reads a folder that comparison.py has written; RecordError says what is wrong with it."""
    path = folder.place("results.json")
    record = records.json_object(path)
    if record.get("schema") != SCHEMA:
        raise records.RecordError(f"{path}: schema {record.get('schema')!r}, not {SCHEMA!r}")
    warm_up = records.number_at(path, records.value_at(path, record, "plan", dict), "warm_up")

    def trained(runs):
        """(rows of steps, row of the run) of each rank's file."""
        return [
            records.read_training(folder.place(name), one["transport"], one["repeat"], warm_up)
            for one in runs
            for name in one["files"]
        ]

    def all_of(read, names):
        return [row for name in names for row in read(folder.place(name))]

    training = trained(records.value_at(path, record, "training", list))
    steps, runs = [row for rows, _ in training for row in rows], [run for _, run in training]
    reduces = all_of(records.read_all_reduce, records.value_at(path, record, "all_reduce", list))
    idle = all_of(records.read_idle, records.value_at(path, record, "idle", list))
    # Folders of earlier versions have none of the rest.
    aside = [run for _, run in trained(record.get("set_aside", {}).get("training", []))]
    beside = []
    for one in record.get("beside_write", []):
        writes = [folder.place(name) for name in one["write"]]
        beside += records.read_beside_write(folder.place(one["all_reduce"]), writes, one["repeat"])
    bound = all_of(records.read_all_reduce, record.get("bound", []))
    inner = record.get("guest", {}).get("folder")
    return Measurement(
        record,
        records.frame_of(steps, records.STEP_COLUMNS),
        records.frame_of(runs, records.RUN_COLUMNS),
        records.frame_of(reduces, records.REDUCE_COLUMNS),
        records.frame_of(idle, records.IDLE_COLUMNS),
        records.frame_of(beside, records.WRITE_COLUMNS),
        records.frame_of(bound, records.REDUCE_COLUMNS),
        records.frame_of(aside, records.RUN_COLUMNS),
        tuple(stored_programs.read(folder.place(name)) for name in record.get("programs", [])),
        load(ResultsFolder(folder.place(inner))) if inner else None,
    )


def summarise(measurement):
    transports, plan = measurement.transports, measurement.record["plan"]
    training = summary.training_rows(measurement.steps, transports)
    reduces = summary.all_reduce_rows(measurement.reduces, transports)
    idle = summary.idle_rows(measurement.idle, transports)
    bound_transports = summary.columns_of(measurement.bound, transports)
    bound = summary.bound_rows(measurement.bound, bound_transports)
    reached = []
    if plan["ranks"] == 2:
        if len(transports) > 1 and transports[1] != "RDMA" and not measurement.place.emulated:
            reached += summary.targets(training, reduces, idle, transports[1], transports[0])
        if "RDMA" in transports and len(measurement.reduces):
            reached += summary.rdma_targets(measurement.beside, reduces, bound, idle)
    return Summary(
        training,
        reduces,
        summary.headline_rows(reduces),
        idle,
        summary.identical_in_each([measurement.runs, measurement.aside], transports),
        summary.digests(measurement.runs),
        reached,
        published.beside(training, transports, plan["ranks"]) if training and published.comparable(plan) else [],
        summary.doubt(training, transports),
        summary.doubted(training, transports),
        bound,
        bound_transports,
        place.remark(measurement.place) if summary.slower_than_baseline(reduces, "RDMA") else "",
        [row for run in measurement.programs for row in program_rows.rows_of(run)],
        summarise(measurement.guest) if measurement.guest else None,
    )


SUMMARY_COLUMNS = ("section", "quantity", "unit", "transport", "median", "tail", "samples")
SUMMARY_COLUMNS += ("times_better", "times_better_low", "times_better_high")


def summary_lines(rows, transports):
    """Rows as lines of summary.csv: one a quantity and transport."""
    lines = []
    for row in rows:
        for transport in transports:
            figure, ratio = row.figures.get(transport), row.ratios.get(transport, summary.Ratio(None))
            if figure is not None:
                what = (row.section, row.label, row.unit, transport)
                lines.append((*what, *astuple(figure), *astuple(ratio)))
    return lines


def title_of(measurement):
    plan = measurement.record["plan"]
    where = "" if measurement.place == place.Place(place.HOST) else f", {measurement.place.in_words()}"
    return (
        f"{plan['ranks']} ranks on {machine.in_words(measurement.record['machine'])}{where}; {plan['model']}, "
        f"batch size {plan['batch_size']}, sequence length {plan['seq_len']}"
    )


def show(measurement, made, console):
    """The table and the verdict on the terminal; the guest's own after it."""

    def say(text, style=""):
        console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)

    rows = [*made.training, *made.programs, *made.headline_all_reduce, *made.idle]
    if rows:
        console.print()
        say(title_of(measurement), "bold")
        doubted = {summary.TRAINING: made.doubted} | {
            program_rows.section_of(run): run.transports for run in measurement.programs if run.doubt
        }
        console.print(comparison_table(rows, measurement.transports, doubted=doubted))
        if made.bound:
            console.print()
            console.print(comparison_table(made.bound, made.bound_transports, tails=False))
        if len(measurement.transports) > 1:
            ibverbs = " ibverbs: Gloo's own transport over verbs." if "GLOO_IBVERBS" in made.bound_transports else ""
            first = measurement.transports[0]
            say(f"\nRatio: how many times better than {first}, in times as in rates.{ibverbs}", "dim")
    for target in made.targets:
        if target.label.startswith("RDMA"):
            say(*target_line(target))
    for text in (
        made.remark,
        page.set_aside_in_words(measurement.record),
        made.doubt,
        *(page.not_steady(run) for run in measurement.programs),
    ):
        if text:
            say(text, "yellow")
    text, style = verdict(made.same_bits, made.digests)
    if text:
        say(text, style)
    show_guest(measurement, made, console, say)


def show_guest(measurement, made, console, say):
    if measurement.guest:
        say(f"\nAnother machine, so compare its figures only with each other: {measurement.guest.place.in_words()}.")
        show(measurement.guest, made.guest, console)
    elif why_not := measurement.record.get("guest", {}).get("why_not"):
        say(f"RDMA: not measured: this machine has no RDMA device, and the guest is not available: {why_not}", "yellow")


def write_csv(folder, measurement, made):
    rows = [*made.training, *made.programs, *made.all_reduce, *made.bound, *made.idle]
    lines = summary_lines(rows, made.bound_transports)
    for name, frame in (
        ("steps.csv", measurement.steps),
        ("runs.csv", measurement.runs),
        ("all_reduce.csv", measurement.reduces),
        ("idle.csv", measurement.idle),
        ("beside_write.csv", measurement.beside),
        ("bound.csv", measurement.bound),
        ("summary.csv", records.frame_of(lines, SUMMARY_COLUMNS)),
    ):
        if len(frame):
            folder.write_text(name, frame.to_csv(index=False, lineterminator="\n"))


def pictures(measurement, made, theme):
    """File name -> PNG; the guest's all-reduces under names of their own."""
    found = plots.all_of(measurement.steps, measurement.reduces, measurement.transports, theme, made.same_bits)
    if measurement.guest:
        within = measurement.guest
        inner = plots.all_of(within.steps, within.reduces, within.transports, theme, made.guest.same_bits)
        found |= {f"guest_{name}": inner[name] for name in ("bandwidth", "latency") if name in inner}
    return found


def render(folder):
    """Writes CSV files, plots and the page. Returns (Measurement, Summary)."""
    measurement = load(folder)
    made = summarise(measurement)
    write_csv(folder, measurement, made)
    if measurement.guest:
        write_csv(ResultsFolder(folder.place(measurement.record["guest"]["folder"])), measurement.guest, made.guest)
    light, dark = pictures(measurement, made, plots.LIGHT), pictures(measurement, made, plots.DARK)
    for name, content in light.items():
        folder.write_bytes(f"plots/{name}.png", content)
    folder.write_text("index.html", page.html_of(measurement, made, light, dark))
    return measurement, made
