"""What a sweep's page shows, and its tables on the terminal; see rendering.py."""

from dataclasses import dataclass

from gloo_bypass_tools.model import output
from gloo_bypass_tools.report import wording
from gloo_bypass_tools.study import (
    definition,
    page,
    pictures,
    sweep_plots,
    sweep_tables,
    training_pictures,
    training_rendering,
    training_tables,
    transports,
)
from gloo_bypass_tools.study.plan import steps_of


@dataclass(frozen=True)
class Summary:
    rows: list
    targets: list

    def csv_lines(self):
        return sweep_tables.csv_lines(self.rows)


def cores_of(record):
    cores = record["machine"].get("cores")
    return cores if isinstance(cores, int) and cores > 0 else 1


def summarise(record, plan, study):
    rows = sweep_tables.rows_of(plan, study, record["runs"], cores_of(record))
    return Summary(rows, sweep_tables.targets_of(plan, study, record["runs"]))


def notes_of(record, plan, study):
    """What was measured and how, a paragraph each."""
    trained = study.workload == definition.TRAIN
    steps = [steps_of(plan, study.variant(name)) if trained else 0 for name in plan.variants]
    return page.notes(
        record,
        plan,
        study,
        trained=trained,
        steps=", ".join(dict.fromkeys(map(str, steps))),
        cores=cores_of(record),
        models=training_rendering.models_of(plan, plan.transports),
        ways=sweep_tables.ways_of(record["runs"]),
    )


def figure_text(figure):
    if figure is None:
        return "-"
    spread = f" ({wording.number(figure.low)} to {wording.number(figure.high)})" if figure.samples > 1 else ""
    return wording.number(figure.median) + spread


def sections_of(study, rows):
    """(key, Quantity, rows) of each quantity that was measured."""
    by_key = {key: [row for row in rows if row.key == key] for key in study.quantities}
    return [(key, sweep_tables.QUANTITIES[key], of_key) for key, of_key in by_key.items() if of_key]


def pictures_of(folder, record, plan, study, made):
    """Of the quantities, then what every study of training shows of its runs; of all-reduces the ranks of one point,
    since all are alike."""
    found, runs = sweep_plots.all_of(made.rows, plan, study), record["runs"]
    if study.workload == definition.TRAIN:
        flows = training_tables.flows_of(plan, study, runs)
        return found + training_pictures.all_of(folder, record, plan, study, flows)
    measured = [name for name in plan.variants if any(run["cell"]["variant"] == name for run in runs)]
    shown, by_run = [study.base] if study.base in measured else measured[:1], pictures.traces_of(folder, runs)
    return found + [one for name in shown for one in pictures.of_ranks(by_run, name, name, plan.transports)]


def words_of(record, plan, study, made, drawn):
    return notes_of(record, plan, study) if made.rows else [], {
        "quantities": sections_of(study, made.rows),
        "pictures": {one.section: one.as_shown() for one in drawn},
        "sections": training_pictures.sections_of(drawn),
        "has_series": any(study.variant(name).series for name in plan.variants),
    }


def section_table(plan, study, rows):
    published, modelled = any(row.published is not None for row in rows), any(row.modelled for row in rows)
    columns = [f"<{study.axis}", *(["published"] if published else [])]
    for transport in plan.transports:
        columns += [transports.heading(plan, transport), *(["model"] if modelled else [])]
    table = output.table("", *columns)

    def text(value):
        return "-" if value is None else wording.number(value)

    for row in rows:
        cells = [f"{row.point.series} {row.point.label}".strip(), *([text(row.published)] if published else [])]
        for figure in map(row.figures.get, plan.transports):
            cells += [figure_text(figure), *([text(figure and figure.model)] if modelled else [])]
        output.add_row(table, *cells)
    return table


def show(plan, study, made, say, console):
    for _, quantity, rows in sections_of(study, made.rows):
        say(f"\n{quantity.heading}{f', {quantity.unit}' if quantity.unit else ''}", "bold")
        console.print(section_table(plan, study, rows))
    if made.rows:
        say(f"\nmedians, in brackets the extremes; model: {study.model_about}", "dim")
