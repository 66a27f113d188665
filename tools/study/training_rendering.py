"""From the folder of a study of training to its tables and page; rendering.py calls it."""

from dataclasses import dataclass

from gloo_bypass_tools.model import output
from gloo_bypass_tools.report import machine, measurements
from gloo_bypass_tools.study import (
    columns,
    page,
    pictures,
    training,
    training_pictures,
    training_prediction,
    training_tables,
    transports,
)

# Metric of the published file -> what the page calls it.
METRICS = {
    "allreduce_events": "events",
    "total_bytes": "bytes in all",
    "total_duration": "duration in all",
    "th_avg_overall": "TH_avg",
    "bytes_per_event": "bytes of an event",
    "event_duration": "duration of an event",
    "th_peak": "TH_peak of an event",
    "t_step": "T_step",
    "t_ar": "T_ar",
    "oh_ar": "OH_ar",
    "train_loss": "loss",
    "cpu_utilization": "processor of a rank",
    "memory": "memory of a rank",
    "tx_bytes": "bytes sent by a rank",
}
# Statistics that a metric's name implies.
OWN_DIGITS = 3
IMPLIED = ("count", "sum", "mean", "epoch-mean", "level")


@dataclass(frozen=True)
class Summary:
    rows: list
    own_rows: list  # of transports that trained another model, and of variants, of which nothing was published
    targets: list
    flows: list
    # by variant: whether all runs over all transports ended with the same parameters, of those on one machine
    same_bits: dict

    @property
    def all_rows(self):
        return [*self.rows, *self.own_rows]


def same_bits(plan, runs):
    """Of another machine, with another model too, the parameters are others."""
    found = {}
    for name in plan.variants:
        for place, listed in (
            ("", [one for one in plan.transports if one not in plan.guest]),
            (", in the guest", plan.guest),
        ):
            of_place = [run for run in runs if run["cell"]["variant"] == name and run["cell"]["transport"] in listed]
            if len({run["cell"]["transport"] for run in of_place}) > 1:
                found[name + place] = len({run["sha256"] for run in of_place}) == 1
    return found


def summarise(record, plan, study):
    runs = record["runs"]
    return Summary(
        training_tables.rows_of(plan, study, runs),
        training_tables.own_rows(plan, study, runs),
        training_tables.targets_of(plan, study, runs),
        training_tables.flows_of(plan, study, runs),
        same_bits(plan, runs),
    )


def notes(record, plan, study):
    """What was measured and how, a paragraph each."""
    variants = [study.variant(name) for name in plan.variants]
    return page.notes(
        "training_notes.txt.j2",
        record,
        plan,
        study,
        models=trained_models(plan),
        trained=True,
        files=dict(plan.files),
        sizes=[(one.name, training.steps_of(plan, one), one.epoch_steps) for one in variants],
        has_times=any(map(training_prediction.has_times, variants)),
    )


def figure_name(row):
    """With the statistic and the unit."""
    metric = row.metric.removesuffix(measurements.RATIO)
    return ", ".join(
        [
            METRICS.get(metric, metric),
            *(["ratio"] if metric != row.metric else []),
            *([] if row.statistic in IMPLIED else [row.statistic]),
            *([row.unit] if row.unit != "1" else []),
        ]
    )


def decimals_of(rows):
    """(metric, unit) -> digits after the point, as many as published figures of it have: ours have no more."""
    found = {}
    for row in rows:
        if row.published is None:
            found.setdefault((row.metric, row.unit), OWN_DIGITS)
            continue
        digits = len(f"{row.published:.10f}".rstrip("0").partition(".")[2])
        found[row.metric, row.unit] = max(digits, found.get((row.metric, row.unit), 0))
    return found


def sections_of(found):
    """(key, pictures) of each that has any; its words are the template's."""
    for key in training_pictures.SECTIONS:
        listed = [one.as_shown() for one in found if one.section == key]
        if listed:
            yield key, listed


def render(folder, record, plan, study):
    """Writes the plots and the page; returns the Summary."""
    made = summarise(record, plan, study)
    found = training_pictures.all_of(folder, record, plan, study, made.flows)
    pictures.write(folder, found)
    decimals = decimals_of(made.all_rows)
    environment = page.environment_with(
        figure_name=figure_name,
        figure=lambda value, row: f"{value:,.{decimals[row.metric, row.unit]}f}",
        heading=lambda one: transports.heading(plan, one),
        models=lambda listed: models_of(plan, listed),
    )
    folder.write_text(
        "index.html",
        environment.get_template("training.html.j2").render(
            record=record,
            plan=plan,
            study=study,
            made=made,
            tables=table_parts(plan, made),
            sections=list(sections_of(found)),
            absent=columns.absent_of(record, plan),
            notes=notes(record, plan, study),
            source=page.SOURCE,
            machine_lines=page.machine_lines(record),
            machine=machine.in_words(record["machine"]),
        ),
    )
    return made


def trained_models(plan):
    return " and ".join(dict.fromkeys(plan.model_over(one) for one in plan.transports))


def models_of(plan, listed):
    """What these transports trained."""
    return " and ".join(dict.fromkeys(f"the {plan.model_over(one)} model" for one in listed))


def figure_text(value):
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def table_parts(plan, made):
    """(rows, their transports, whether anything was published of them) of each table that has rows."""
    own = [one for one in plan.transports if any(one in row.measured for row in made.own_rows)]
    return [
        part
        for part in ((made.rows, training_tables.published_transports(plan), True), (made.own_rows, own, False))
        if part[0]
    ]


def study_table(plan, rows, listed, published):
    columns = [
        *(["table"] if published else []),
        "<variant",
        "<figure",
        "<",
        "unit",
        *(["published"] if published else []),
    ]
    for transport in listed:
        columns += [transports.heading(plan, transport), "model", "ratio"]
    table = output.table("", *columns)
    for row in rows:
        cells = [
            *([row.table] if published else []),
            row.variant,
            row.metric,
            row.statistic,
            row.unit,
            *([figure_text(row.published)] if published else []),
        ]
        for transport in listed:
            value, model = row.measured.get(transport), row.model.get(transport)
            cells += [
                figure_text(value),
                figure_text(model),
                "" if value is None or model is None else f"{value / model:.4f}",
            ]
        output.add_row(table, *cells)
    return table


def csv_lines(made):
    return training_tables.csv_lines(made.all_rows)


def show(plan, study, made, say, console):
    for rows, listed, published in table_parts(plan, made):
        table = study_table(plan, rows, listed, published)
        table.title = None
        say(f"\n{study.title}{'' if published else f', {models_of(plan, listed)}'}", "bold")
        console.print(table)
        timed = (
            "; T_ar by Gloo's schedule, from when the run without limit had its buckets ready"
            if any(row.metric == "t_ar" and row.model for row in rows)
            else ""
        )
        say(f"\nmodel: 2(N-1) S and headers{timed}; ratio: measured / model", "dim")
    for name, same in made.same_bits.items():
        say(
            f"{name}: the parameters end {'bit for bit the same' if same else 'DIFFERENT'} over all transports",
            "green" if same else "red",
        )
