"""From the folder of a study of one slow edge to its tables, plots and page; rendering.py calls it."""

from dataclasses import dataclass

from gloo_bypass_tools.model import output, quantities
from gloo_bypass_tools.report import machine
from gloo_bypass_tools.study import columns, edge_pictures, edge_study, page, pictures, tables, transports


@dataclass(frozen=True)
class Summary:
    rows: list
    targets: list
    shares: list
    windows: list


def summarise(record, plan, study):
    rows = tables.rows_of(plan, study, record["runs"])
    return Summary(
        rows,
        tables.targets_of(plan, study, rows) if rows else [],
        tables.shares_of(plan, study, rows) if rows else [],
        tables.windows_of(rows, plan.settings),
    )


def turns(rows):
    """How often each cell was run."""
    runs = sorted({len(one.runs) for row in rows for one in row.measured.values()})
    return page.plural(runs[0], "time") if len(runs) == 1 else f"{runs[0]} to {runs[-1]} times"


def render(folder, record, plan, study):
    """Writes the plots and the page; returns the Summary."""
    made = summarise(record, plan, study)
    drawn = edge_pictures.all_of(folder, record, plan, study, made.rows)
    pictures.write(folder, drawn)
    environment = page.environment_with(seconds=quantities.seconds, heading=lambda one: transports.heading(plan, one))
    said = (
        page.notes(
            "edge_notes.txt.j2",
            record,
            plan,
            study,
            turns=turns(made.rows),
            elsewhere=tables.elsewhere_of(made.rows),
            published_bytes=edge_study.PUBLISHED_BYTES,
        )
        if made.rows
        else []
    )
    folder.write_text(
        "index.html",
        environment.get_template("edge.html.j2").render(
            record=record,
            plan=plan,
            study=study,
            rows=made.rows,
            found=made,
            source=page.SOURCE,
            absent=columns.absent_of(record, plan),
            machine=machine.in_words(record["machine"]),
            sections={name: [one.as_shown() for one in drawn if one.section == name] for name in ("result", "ranks")},
            segment_names=edge_study.SEGMENT_NAMES,
            notes=said,
            others=plan.transports[1:],
            compared=transports.compared(plan),
            machine_lines=page.machine_lines(record),
            table_number=study.tables["t_ar"],
        ),
    )
    return made


def csv_lines(made):
    return tables.csv_lines(made.rows)


def study_table(plan, study, rows):
    columns = ["<edge", "<loss", "<segments", "published"]
    for transport in plan.transports:
        columns += [transports.heading(plan, transport), "model", "x"]
    table = output.table(
        f"{study.title}: all-reduce of {plan.bytes / 1e6:.1f} MB, {plan.ranks} ranks, seconds",
        *columns,
        "floor",
        *[f"{one}/floor" for one in plan.transports if one != "TCP"],
    )
    for row in rows:
        cells = [
            row.label,
            f"{row.loss_percent:g} %",
            edge_study.SEGMENT_NAMES[row.segment],
            quantities.seconds(row.published_s),
        ]
        for transport in plan.transports:
            measured = quantities.seconds(row.measured[transport].median_s) if transport in row.measured else "-"
            cells += [measured, quantities.seconds(row.model[transport].repeated_s), page.ratio(row.ratio(transport))]
        output.add_row(
            table,
            *cells,
            quantities.seconds(row.floor_s),
            *[page.ratio(row.floor_ratio(one)) for one in plan.transports if one != "TCP"],
        )
    return table


def show(plan, study, made, say, console):
    if not made.rows:
        return
    table = study_table(plan, study, made.rows)
    title, table.title = table.title, None
    say(f"\n{title}", "bold")
    console.print(table)
    say(
        "\nmodel: Gloo's schedule at this segment size, as the transport completes, lost frames sent again; x: "
        "measured / model; floor: propagation and serialisation; published: T_ar in training over TCP, scaled to this "
        "size",
        "dim",
    )
    for sentence in tables.elsewhere_of(made.rows):
        say(sentence, "dim")
    for one in made.shares:
        say(
            f"{one.label}: of TCP's {quantities.seconds(one.total_s)}, {100 * one.share(one.transport_s):.0f} % are "
            f"TCP's, {100 * one.share(one.pipeline_s):.0f} % Gloo's pipeline's, {100 * one.share(one.rest_s):.0f} % "
            "propagation, serialisation and processor"
        )
