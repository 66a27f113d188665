"""From a sweep's folder to its tables, plots and page; rendering.py calls it."""

from dataclasses import dataclass

from gloo_bypass_tools.model import output
from gloo_bypass_tools.report import machine, wording
from gloo_bypass_tools.study import (
    columns,
    page,
    pictures,
    sweep_plots,
    sweep_tables,
    sweeps,
    training,
    training_pictures,
    training_rendering,
    training_tables,
    transports,
)


@dataclass(frozen=True)
class Summary:
    rows: list
    targets: list


def cores_of(record):
    cores = record["machine"].get("cores")
    return cores if isinstance(cores, int) and cores > 0 else 1


def summarise(record, plan, study):
    rows = sweep_tables.rows_of(plan, study, record["runs"], cores_of(record))
    return Summary(rows, sweep_tables.targets_of(plan, study, record["runs"], rows))


def notes(record, plan, study):
    """What was measured and how, a paragraph each."""
    trained, steps = study.workload == sweeps.TRAIN, ""
    if trained:
        steps = ", ".join(dict.fromkeys(str(training.steps_of(plan, study.variant(name))) for name in plan.variants))
    return page.notes(
        "sweep_notes.txt.j2",
        record,
        plan,
        study,
        trained=trained,
        steps=steps,
        cores=cores_of(record),
        models=training_rendering.models_of(plan, plan.transports) if trained else "",
        ways=sweep_tables.ways_of(record["runs"]),
    )


def figure_text(figure):
    if figure is None:
        return "-"
    spread = f" ({wording.number(figure.low)} to {wording.number(figure.high)})" if figure.samples > 1 else ""
    return wording.number(figure.median) + spread


def sections_of(plan, study, rows):
    """(key, heading, unit, rows) of each quantity that was measured."""
    found = []
    for key in study.quantities:
        of_key = [row for row in rows if row.key == key]
        if of_key:
            quantity = sweep_tables.QUANTITIES[key]
            found.append((key, quantity.label[0].upper() + quantity.label[1:], quantity.unit, of_key))
    return found


def pictures_of_runs(folder, record, plan, study):
    """What every study of training shows of its runs; of all-reduces the ranks of one point, since all are alike."""
    if study.workload == sweeps.TRAIN:
        return training_pictures.all_of(
            folder, record, plan, study, training_tables.flows_of(plan, study, record["runs"])
        )
    measured = [name for name in plan.variants if any(run["cell"]["variant"] == name for run in record["runs"])]
    shown = [study.base] if study.base in measured else measured[:1]
    return list(
        training_pictures.variant_pictures(plan, shown, training_pictures.traces_of(folder, plan, record["runs"]), {})
    )


def render(folder, record, plan, study):
    """Writes the plots and the page; returns the Summary."""
    made = summarise(record, plan, study)
    by_quantity = sweep_plots.all_of(made.rows, plan, study)
    of_runs = pictures_of_runs(folder, record, plan, study)
    pictures.write(folder, [*by_quantity.values(), *of_runs])
    environment = page.environment_with(heading=lambda one: transports.heading(plan, one))
    folder.write_text(
        "index.html",
        environment.get_template("sweep.html.j2").render(
            record=record,
            plan=plan,
            study=study,
            made=made,
            quantities=sections_of(plan, study, made.rows),
            pictures={key: one.as_shown() for key, one in by_quantity.items()},
            sections=list(training_rendering.sections_of(of_runs)),
            absent=columns.absent_of(record, plan),
            notes=notes(record, plan, study) if made.rows else [],
            source=page.SOURCE,
            has_series=any(study.variant(name).series for name in plan.variants),
            against=sweep_tables.against,
            compared=transports.compared(plan),
            machine_lines=page.machine_lines(record),
            machine=machine.in_words(record["machine"]),
        ),
    )
    return made


def section_table(plan, study, rows):
    published, modelled = any(row.published is not None for row in rows), any(row.modelled for row in rows)
    table = output.table(
        "",
        f"<{study.axis}",
        *(["published"] if published else []),
        *[
            column
            for one in plan.transports
            for column in ((transports.heading(plan, one), "model") if modelled else (transports.heading(plan, one),))
        ],
    )
    for row in rows:
        point = row.point
        cells = [
            f"{point.series} {point.label}".strip(),
            *(["-" if row.published is None else wording.number(row.published)] if published else []),
        ]
        for transport in plan.transports:
            figure = row.figures.get(transport)
            cells.append(figure_text(figure))
            if modelled:
                cells.append("-" if figure is None or figure.model is None else wording.number(figure.model))
        output.add_row(table, *cells)
    return table


def csv_lines(made):
    return sweep_tables.csv_lines(made.rows)


def show(plan, study, made, say, console):
    for _, heading, unit, rows in sections_of(plan, study, made.rows):
        say(f"\n{heading}{f', {unit}' if unit else ''}", "bold")
        table = section_table(plan, study, rows)
        table.title = None
        console.print(table)
    if made.rows:
        say(f"\nmedians, in brackets the extremes; model: {study.model_about}", "dim")
