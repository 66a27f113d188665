"""What the page of published training shows, and its tables on the terminal; see rendering.py."""

from dataclasses import dataclass

from gloo_bypass_tools.model import output
from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import page, training_pictures, training_tables, transports
from gloo_bypass_tools.study.plan import steps_of

OWN_DIGITS = 3
# Statistics that a metric's name implies.
IMPLIED = ("count", "sum", "mean", "epoch-mean", "level")


@dataclass(frozen=True)
class Summary:
    """`own_rows`: of transports that trained another model, and of variants without published figures."""

    rows: list
    own_rows: list
    targets: list
    flows: list
    same_bits: dict

    @property
    def all_rows(self):
        return [*self.rows, *self.own_rows]

    def csv_lines(self):
        return training_tables.csv_lines(self.all_rows)


def summarise(record, plan, study):
    runs, of_runs = record["runs"], ("rows_of", "own_rows", "targets_of", "flows_of")
    tables = (getattr(training_tables, name)(plan, study, runs) for name in of_runs)
    return Summary(*tables, training_tables.same_bits(plan, runs))


def notes_of(record, plan, study):
    """What was measured and how, a paragraph each."""
    points = [study.variant(name) for name in plan.variants]
    return page.notes(
        record,
        plan,
        study,
        models=" and ".join(dict.fromkeys(plan.model_over(one) for one in plan.transports)),
        trained=True,
        files=dict(plan.files),
        sizes=[(one.name, steps_of(plan, one), one.epoch_steps) for one in points],
        has_times=any(one.edge.is_slow for one in points),
    )


def figure_name(row):
    """With the statistic and the unit."""
    metric = row.metric.removesuffix(measurements.RATIO)
    ratio = "ratio" if metric != row.metric else ""
    statistic, unit = "" if row.statistic in IMPLIED else row.statistic, "" if row.unit == "1" else row.unit
    return ", ".join(part for part in (training_tables.METRICS.get(metric, metric), ratio, statistic, unit) if part)


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


def pictures_of(folder, record, plan, study, made):
    return training_pictures.all_of(folder, record, plan, study, made.flows)


def words_of(record, plan, study, made, drawn):
    decimals = decimals_of(made.all_rows)
    return notes_of(record, plan, study), {
        "figure_name": figure_name,
        "figure": lambda value, row: f"{value:,.{decimals[row.metric, row.unit]}f}",
        "models": lambda listed: models_of(plan, listed),
        "tables": table_parts(plan, made),
        "sections": training_pictures.sections_of(drawn),
    }


def models_of(plan, listed):
    """What these transports trained."""
    return " and ".join(dict.fromkeys(f"the {plan.model_over(one)} model" for one in listed))


def figure_text(value):
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def table_parts(plan, made):
    """(rows, their transports, whether anything was published of them) of each table that has rows."""
    own = [one for one in plan.transports if any(one in row.measured for row in made.own_rows)]
    parts = ((made.rows, training_tables.published_transports(plan), True), (made.own_rows, own, False))
    return [part for part in parts if part[0]]


def study_table(plan, rows, listed, published):
    columns = ["<variant", "<figure", "<", "unit"]
    columns = ["table", *columns, "published"] if published else columns
    for transport in listed:
        columns += [transports.heading(plan, transport), "model", "ratio"]
    table = output.table("", *columns)
    for row in rows:
        cells = [row.variant, row.metric, row.statistic, row.unit]
        cells = [row.table, *cells, figure_text(row.published)] if published else cells
        for transport in listed:
            value, model = row.measured.get(transport), row.model.get(transport)
            ratio = "" if value is None or model is None else f"{value / model:.4f}"
            cells += [figure_text(value), figure_text(model), ratio]
        output.add_row(table, *cells)
    return table


def show(plan, study, made, say, console):
    for rows, listed, published in table_parts(plan, made):
        say(f"\n{study.title}{'' if published else f', {models_of(plan, listed)}'}", "bold")
        console.print(study_table(plan, rows, listed, published))
        timed = any(row.metric == "t_ar" and row.model for row in rows)
        times = "; T_ar by Gloo's schedule, from when the run without limit had its buckets ready" if timed else ""
        say(f"\nmodel: 2(N-1) S and headers{times}; ratio: measured / model", "dim")
    for name, same in made.same_bits.items():
        bits = "bit for bit the same" if same else "DIFFERENT"
        say(f"{name}: the parameters end {bits} over all transports", "green" if same else "red")
