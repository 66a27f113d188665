"""From the folder of a study of training to its tables and page; rendering.py's counterpart."""

from dataclasses import dataclass

import jinja2
from gloo_bypass_model import output
from gloo_bypass_report import machine, page as report_page, plots as report_plots, wording
from gloo_bypass_report.plots import figure_with, place_of, png_of, titled

from . import page, training, training_tables


@dataclass(frozen=True)
class Summary:
    rows: list
    targets: list
    flows: list
    same_bits: dict   # by variant: whether all runs over all transports ended with the same parameters


def summarise(record, plan, study):
    runs = record["runs"]
    bits = {name: {run["sha256"] for run in runs if run["cell"]["variant"] == name} for name in plan.variants}
    return Summary(training_tables.rows_of(plan, study, runs), training_tables.targets_of(plan, study, runs),
                   training_tables.flows_of(plan, study, runs),
                   {name: len(found) == 1 for name, found in bits.items()
                    if len({run["cell"]["transport"] for run in runs if run["cell"]["variant"] == name}) > 1})


def event_plot(record, plan, theme):
    """Every event as a point: its duration, by variant and transport."""
    figure, axes = figure_with(theme)
    groups = [(name, transport) for name in plan.variants for transport in plan.transports]
    for at, (name, transport) in enumerate(groups):
        seconds = [event["seconds"] for run in training_tables.runs_of(record["runs"], name, transport) for event in run["capture"]["events"]]
        colour = theme.series[place_of(transport, plan.transports.index(transport))]
        spread = [at + 0.5 * ((i + 0.5) / len(seconds) - 0.5) for i in range(len(seconds))]
        axes.plot(spread, seconds, linestyle="none", marker="o", markersize=4, alpha=0.6, color=colour, markeredgewidth=0)
        if seconds:
            median = training_tables.statistics.median(seconds)
            axes.plot([at - 0.3, at + 0.3], [median, median], color=colour, linewidth=2.4)
            axes.annotate(f"{wording.number(median)} s", (at, max(seconds)), xytext=(0, 4), textcoords="offset points", ha="center",
                          fontsize=9, color=colour)
    axes.set_xticks(range(len(groups)), [f"{name}\n{transport}" for name, transport in groups], fontsize=9)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("seconds between the two markers", fontsize=10)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    titled(axes, theme, "An event's duration", "each point an event of the capture, each bar the median")
    return png_of(figure)


def notes(record, plan, study):
    sizes = "; ".join(f"{name}: {training.steps_of(plan, study.variant(name))} of {study.variant(name).epoch_steps} steps" for name in plan.variants)
    return [
        f"{study.about} {plan.model} trained data parallel through the emulated fabric, batch 8 a rank, sequence length 64 and FP32 unless the variant "
        "says otherwise, 25 MB buckets, on the sample text that comes with the trainer.",
        f"Of the epoch, {sizes}. The first {plan.warm_up} of each run are left out of T_step and T_ar, not of what is captured. The transports ran in turn, "
        f"{page.plural(plan.repeats, 'time')} each.",
        "Bytes per event, its duration and throughput are of the capture at the fabric's ports, between the two markers of a step, acknowledgements "
        "included. Model of bytes: 2(N-1) S, headers of frames of this MTU, Gloo's preambles or this project's grants, acknowledgements; nothing "
        "lost, nothing repeated.",
        "The published machine had 4 virtual processors, and its times are the processor's for the most part; so are these, of another machine. "
        "Its bytes were captured with larger frames (offloading between containers), and so with fewer headers.",
        *page.load_note(record)]


def render(folder, record, plan, study):
    """Writes the CSV file, the plot and the page; returns the Summary."""
    made = summarise(record, plan, study)
    light, dark = ({"events": event_plot(record, plan, theme)} if record["runs"] else {} for theme in (report_plots.LIGHT, report_plots.DARK))
    for name, content in light.items():
        folder.write_bytes(f"plots/{name}.png", content)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(page.FOLDERS), autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)
    environment.filters |= {"number": wording.number, "duration": wording.duration}
    pictures = {name: {"light": report_page.data_uri(light[name]), "dark": report_page.data_uri(dark[name]),
                       "alt": "Duration of every event for each variant and transport."} for name in light}
    folder.write_text("index.html", environment.get_template("training.html.j2").render(
        record=record, plan=plan, study=study, made=made, pictures=pictures, notes=notes(record, plan, study), source=page.SOURCE,
        machine_lines=report_page.machine_lines(record), machine=machine.in_words(record["machine"])))
    return made


def figure_text(value):
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def study_table(plan, study, rows):
    columns = ["table", "<variant", "<figure", "<", "unit", "published"]
    for transport in plan.transports:
        columns += [transport, "model", "ratio"]
    table = output.table(study.title, *columns)
    for row in rows:
        cells = [row.table, row.variant, row.metric, row.statistic, row.unit, figure_text(row.published)]
        for transport in plan.transports:
            value, model = row.measured.get(transport), row.model.get(transport)
            cells += [figure_text(value), figure_text(model), "" if value is None or model is None else f"{value / model:.4f}"]
        output.add_row(table, *cells)
    return table


def show(plan, study, made, say, console):
    if made.rows:
        table = study_table(plan, study, made.rows)
        title, table.title = table.title, None
        say(f"\n{title}", "bold")
        console.print(table)
        say("\nmodel: 2(N-1) S and headers; ratio: measured / model", "dim")
    for name, same in made.same_bits.items():
        say(f"{name}: the parameters end {'bit for bit the same' if same else 'DIFFERENT'} over all transports", "green" if same else "red")
    return made.targets
