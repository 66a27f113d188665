"""What the page of an all-reduce over one slow edge shows, and its table on the terminal; see rendering.py."""

from dataclasses import dataclass

from gloo_bypass_tools.model import output, quantities
from gloo_bypass_tools.study import definition, edge_plots, edge_tables, page, pictures, transports
from gloo_bypass_tools.study.pictures import RANKS, in_both

RESULT = "result"


@dataclass(frozen=True)
class Summary:
    rows: list
    targets: list
    shares: list
    windows: list

    def csv_lines(self):
        return edge_tables.csv_lines(self.rows)


def summarise(record, plan, study):
    rows = edge_tables.rows_of(plan, study, record["runs"])
    return Summary(
        rows,
        edge_tables.targets_of(plan, study, rows),
        edge_tables.shares_of(plan, study, rows) if rows else [],
        edge_tables.windows_of(rows, plan.settings),
    )


def turns(rows):
    """How often each cell was run."""
    runs = sorted({len(one.runs) for row in rows for one in row.measured.values()})
    return page.plural(runs[0], "time") if len(runs) == 1 else f"{runs[0]} to {runs[-1]} times"


def pictures_of(folder, record, plan, study, made):
    """In the order of the page."""
    if not made.rows:
        return []
    rows, segment = made.rows, plan.segments[0]
    alt = "Time of the all-reduce over the variants of the slow edge for each transport and segment size, with the "
    alt += "model's lines and the published times."
    found = [in_both(RESULT, "time", alt, lambda theme: edge_plots.time(rows, plan, study, theme))]
    if any(row.loss_percent for row in rows):
        alt = "Time of the all-reduce with loss on the slow edge, for each transport and segment size."
        found.append(in_both(RESULT, "loss", alt, lambda theme: edge_plots.loss(rows, plan, study, theme)))
    runs = [run for run in record["runs"] if run["cell"]["segment"] == segment and not run["cell"]["loss_percent"]]
    by_run = pictures.traces_of(folder, runs)
    for name in plan.variants:
        label = f"{study.variant(name).label}, segments {definition.SEGMENT_NAMES[segment]}"
        found += pictures.of_ranks(by_run, name, label, plan.transports)
    return found


def words_of(record, plan, study, made, drawn):
    notes = []
    if made.rows:
        elsewhere, published_bytes = edge_tables.elsewhere_of(made.rows), definition.PUBLISHED_BYTES
        notes = page.notes(
            record, plan, study, turns=turns(made.rows), elsewhere=elsewhere, published_bytes=published_bytes
        )
    sections = {name: [one.as_shown() for one in drawn if one.section == name] for name in (RESULT, RANKS)}
    return notes, {"sections": sections, "segment_names": definition.SEGMENT_NAMES, "others": plan.transports[1:]}


def study_table(plan, study, rows):
    columns = ["<edge", "<loss", "<segments", "published"]
    for transport in plan.transports:
        columns += [transports.heading(plan, transport), "model", "x"]
    others = [one for one in plan.transports if one != "TCP"]
    table = output.table("", *columns, "floor", *[f"{one}/floor" for one in others])
    for row in rows:
        segment, published = definition.SEGMENT_NAMES[row.segment], quantities.seconds(row.published_s)
        cells = [row.label, f"{row.loss_percent:g} %", segment, published]
        for one in plan.transports:
            measured = quantities.seconds(row.measured[one].median_s) if one in row.measured else "-"
            cells += [measured, quantities.seconds(row.model[one].repeated_s), page.ratio(row.ratio(one))]
        floors = [page.ratio(row.floor_ratio(one)) for one in others]
        output.add_row(table, *cells, quantities.seconds(row.floor_s), *floors)
    return table


def show(plan, study, made, say, console):
    if not made.rows:
        return
    say(f"\n{study.title}: all-reduce of {plan.bytes / 1e6:.1f} MB, {plan.ranks} ranks, seconds", "bold")
    console.print(study_table(plan, study, made.rows))
    say(
        "\nmodel: Gloo's schedule at this segment size, as the transport completes, lost frames sent again; x: "
        "measured / model; floor: propagation and serialisation; published: T_ar in training over TCP, scaled to this "
        "size",
        "dim",
    )
    for sentence in edge_tables.elsewhere_of(made.rows):
        say(sentence, "dim")
    for one in made.shares:
        say(
            f"{one.label}: of TCP's {quantities.seconds(one.total_s)}, {100 * one.share(one.transport_s):.0f} % are "
            f"TCP's, {100 * one.share(one.pipeline_s):.0f} % Gloo's pipeline's, {100 * one.share(one.rest_s):.0f} % "
            "propagation, serialisation and processor"
        )
