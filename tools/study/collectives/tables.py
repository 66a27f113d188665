"""A stored run as Markdown, and the page of the study. Pure but for renew()."""

import statistics
from dataclasses import dataclass
from functools import partial

from gloo_bypass_tools.report import machine, marked_tables, memory_rates
from gloo_bypass_tools.report.results_chart import bold, markdown, size_label, time_label
from gloo_bypass_tools.study.collectives import links, stored

# A choice that takes at most so many times as long as the fastest is as good: rounds differ by as much.
AS_GOOD = 1.1
# Where the ring's largest vector took no longer than its smallest, calibration ends at its bound.
NO_COST_GBPS = 1e4


@dataclass(frozen=True)
class Verdict:
    """What is chosen at one size, beside the fastest of what may be chosen there."""

    link: links.Link
    ranks: int
    bytes: int
    by: str
    chosen: stored.Row
    fastest: stored.Row
    choice: stored.Choice

    @property
    def ratio(self):
        return self.chosen.p50_us / self.fastest.p50_us

    @property
    def missed(self):
        return self.ratio > AS_GOOD

    def text(self):
        if self.chosen is self.fastest:
            return f"{self.chosen.contender}, the fastest"
        return bold(f"{self.chosen.contender}, {self.ratio:.2f} x", self.missed)


DEFAULT, TABLE = "by default", "the table"


def fastest_of(rows):
    return min(rows, key=lambda row: row.p50_us)


def verdicts_at(run, link, ranks, size):
    """By default: of all contenders. The table: of those that it can choose, and only where it does."""
    rows = run.at(link.name, ranks, size)
    choice, found = run.choice(link.name, ranks, size), []
    if choice.default in rows:
        found.append(Verdict(link, ranks, size, DEFAULT, rows[choice.default], fastest_of(rows.values()), choice))
    channels = [row for name, row in rows.items() if name not in links.EXECUTORS]
    if choice.table in rows and link.default != links.FLAT:
        found.append(Verdict(link, ranks, size, TABLE, rows[choice.table], fastest_of(channels), choice))
    return found


def verdicts(run):
    return [
        one
        for link in run.links()
        for ranks in run.ranks(link.name)
        for size in run.sizes(link.name, ranks)
        for one in verdicts_at(run, link, ranks, size)
    ]


def cell(row, is_fastest):
    if row is None:
        return ""
    model = "" if row.model_us is None else f" ({time_label(row.model_us)})"
    return bold(time_label(row.p50_us), is_fastest) + model


def table_of(run, link, ranks):
    names = run.contenders(link.name, ranks)
    lines, ways = [], []
    for size in run.sizes(link.name, ranks):
        rows, said = run.at(link.name, ranks, size), verdicts_at(run, link, ranks, size)
        ways = ways or [one.by for one in said]
        best = fastest_of(rows.values())
        cells = [cell(rows.get(name), rows.get(name) is best) for name in names]
        lines.append([size_label(size), *cells, *(one.text() for one in said)])
    return markdown([f"{ranks} ranks", *names, *ways], lines)


def rate_text(parameters):
    return "no cost of bytes" if parameters.beta_gbps > NO_COST_GBPS else f"{parameters.beta_gbps:.2g} GB/s"


def parameters_text(run, link):
    """What alpha and beta are."""
    of_link = [one for one in run.model if one.link == link.name]
    if not of_link:
        return "No model: it needs two sizes of the ring."
    if link.far:
        return f"Model: a delay of {time_label(of_link[0].alpha_us)} and {of_link[0].beta_gbps * 1e3:.2f} MB/s a link."
    each = (f"{time_label(one.alpha_us)} and {rate_text(one)} with {one.ranks} ranks" for one in of_link)
    return f"Model, alpha and beta of a message from the ring's least and largest vector: {'; '.join(each)}."


def tables_of_link(run, link):
    tables = (table_of(run, link, ranks) for ranks in run.ranks(link.name))
    return "\n\n".join([parameters_text(run, link), *tables])


def fastest_table(run):
    """What wins where."""
    lines = []
    for link in run.links():
        for ranks in run.ranks(link.name):
            won = {}
            for size in run.sizes(link.name, ranks):
                won.setdefault(fastest_of(run.at(link.name, ranks, size).values()).contender, []).append(size)
            said = "; ".join(f"{name}: {', '.join(map(size_label, sizes))}" for name, sizes in won.items())
            lines.append([link.title, str(ranks), said])
    return markdown(["link", "ranks", "the fastest: at these sizes"], lines)


def choices_table(run):
    """Every choice that is not the fastest, the worst first."""
    every = verdicts(run)
    missed = sorted((one for one in every if one.missed), key=lambda one: -one.ratio)
    counts = []
    for way in dict.fromkeys(one.by for one in every):
        of_way = [one for one in every if one.by == way]
        good = sum(not one.missed for one in of_way)
        counts.append(f"{way}: {good} of {len(of_way)} choices are the fastest, or within {100 * (AS_GOOD - 1):.0f} %")
    lines = [
        [
            one.link.title,
            str(one.ranks),
            size_label(one.bytes),
            f"{one.chosen.contender} ({one.by})",
            time_label(one.chosen.p50_us),
            one.fastest.contender,
            time_label(one.fastest.p50_us),
            f"{one.ratio:.2f} x",
            one.choice.own_cores or "",
        ]
        for one in missed
    ]
    header = ["link", "ranks", "size", "chosen", "", "the fastest", "", "as long", "by the model, a core each"]
    return "; ".join(counts) + "." + (f"\n\n{markdown(header, lines)}" if lines else "")


def model_table(run):
    """How far the model is off, and whether it names the fastest schedule."""
    lines = []
    for link in run.links():
        for ranks in run.ranks(link.name):
            ratios, named, sizes = [], 0, run.sizes(link.name, ranks)
            for size in sizes:
                modelled = [row for row in run.at(link.name, ranks, size).values() if row.model_us is not None]
                modelled = [row for row in modelled if row.contender != links.GLOO]
                if not modelled:
                    continue
                ratios += [row.model_us / row.p50_us for row in modelled]
                best = min(modelled, key=lambda row: row.model_us)
                named += best.p50_us <= AS_GOOD * fastest_of(modelled).p50_us
            if ratios:
                middle, low, high = (f"{value:.2f}" for value in (statistics.median(ratios), min(ratios), max(ratios)))
                lines.append([link.title, str(ranks), middle, f"{low} to {high}", f"{named} of {len(sizes)}"])
    return markdown(["link", "ranks", "model / measured, median", "range", "it names the fastest schedule"], lines)


def circumstances(run):
    told = machine.circumstances(run, f"effort {run.effort}", others_cores=run.others_cores)
    left_out = "".join(f" Not measured: {what}: {why}." for what, why in run.left_out)
    return f"{told}. {memory_rates.sentence(run.rates)}{left_out}"


TABLES = {
    "circumstances": circumstances,
    "fastest": fastest_table,
    "choices": choices_table,
    "model": model_table,
    **{link.name: lambda run, link=link: tables_of_link(run, link) for link in links.LINKS},
}


def whole(run):
    """Everything, for the terminal."""
    parts = [circumstances(run), fastest_table(run), choices_table(run), model_table(run)]
    parts += [f"{link.title}\n\n{tables_of_link(run, link)}" for link in run.links()]
    return "\n\n".join(parts)


def renewed(text, run, place):
    """The page with its tables made again; RecordError for one that nobody makes."""
    return marked_tables.renewed(text, {name: partial(make, run) for name, make in TABLES.items()}, place)


def renew(path, run):
    """Writes the page where its tables have changed."""
    marked_tables.renew(path, partial(renewed, run=run, place=path))
