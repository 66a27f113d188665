"""The rows as Markdown. Pure.

Names of tables in the page: circumstances, counts, thesis, articles.
"""

import statistics
from functools import partial

from gloo_bypass_tools.report import machine, marked_tables
from gloo_bypass_tools.report.results_chart import markdown
from gloo_bypass_tools.report.wording import heading
from gloo_bypass_tools.study.published.measured import COLUMNS
from gloo_bypass_tools.study.published.rows import ARTICLES, THESIS

HEADER = ("figure", "unit", "published", "model", *map(heading, COLUMNS), "why not measured")


def digits(value):
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def beside(values, published):
    """All runs' values; in brackets the middle one over the published."""
    if not values:
        return ""
    text = "; ".join(digits(one) for one in values)
    return f"{text} ({statistics.median(values) / published:.3g})" if published else text


def cells(row):
    model = beside([row.model.value], row.published) if row.model else ""
    if row.model and not row.modelled:
        model = f"*{model}*"
    each = [beside(row.measured.get(one), row.published) for one in COLUMNS]
    return [", ".join(part for part in row.label if part), row.unit, digits(row.published), model, *each, row.why]


def sections(rows):
    """A table for each section, without columns that nothing stands in."""
    parts = []
    for section in dict.fromkeys(row.section for row in rows):
        lines = [cells(row) for row in rows if row.section == section]
        kept = [at for at in range(len(HEADER)) if at < 3 or any(line[at] for line in lines)]
        parts.append(
            f"### {section}\n\n{markdown([HEADER[at] for at in kept], [[one[at] for at in kept] for one in lines])}"
        )
    return "\n\n".join(parts)


def of_source(rows, source):
    return [row for row in rows if row.source == source]


def counts(rows):
    """How many have what."""
    lines = []
    for source in (THESIS, ARTICLES):
        listed = of_source(rows, source)
        each = [row.modelled for row in listed], [bool(row.measured) for row in listed]
        neither = sum(not modelled and not found for modelled, found in zip(*each))
        follows = sum(row.model is not None and not row.modelled for row in listed)
        lines.append([source, *(str(one) for one in (len(listed), *map(sum, each), neither, follows))])
    header = ["", "figures", "modelled", "measured", "neither", "follow from other published figures alone"]
    return markdown(header, lines)


def circumstances(run):
    if run is None:
        return "Not measured."
    told = machine.circumstances(run, others_cores=run.others_cores)
    return f"`scripts/study published --json docs/studies/published/run.json`, commit {run.commit[:7]}, {told}."


def makers(rows, run):
    made = {source: partial(sections, of_source(rows, source)) for source in (THESIS, ARTICLES)}
    return made | {"counts": partial(counts, rows), "circumstances": partial(circumstances, run)}


def renewed(text, rows, run, place):
    return marked_tables.renewed(text, makers(rows, run), place)
