"""Every picture of a study's training, in the sections of its page, in both themes. Pure but for reading the raw
files."""

from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import event_plots, matrix_plot, pictures, trace_plots, training_tables
from gloo_bypass_tools.study.pictures import RANKS, in_both

# The sections of the page, in its order; their words are in its template.
EVENTS, TRAFFIC, MATRIX, _ = SECTIONS = ("events", "traffic", "matrix", RANKS)
TRAFFIC_PLOTS = {
    "throughput": (trace_plots.throughput, "Throughput of all edges together"),
    "cumulative": (trace_plots.cumulative, "Bytes so far of each direction"),
}


def sections_of(found):
    """(key, pictures) of each section that has any; its words are the template's."""
    shown = {key: [one.as_shown() for one in found if one.section == key] for key in SECTIONS}
    return [(key, listed) for key, listed in shown.items() if listed]


def flows_by_key(listed):
    return {
        (variant, transport, phase): {(start, end): megabytes for start, end, megabytes in edges}
        for variant, transport, phase, edges in listed
    }


def event_pictures(plan, study, runs):
    is_published = bool(training_tables.published_transports(plan))
    figures = [one for one in measurements.read() if is_published and one.study == study.published_name]
    for quantity in event_plots.QUANTITIES:

        def model_of(variant, transport):
            point = study.variant(variant)
            return training_tables.model_of(plan, point, quantity.metric, "median", transport, runs)

        groups = event_plots.groups_of(quantity, plan, runs, figures, model_of)
        alt = f"{quantity.title}, {quantity.unit}, for each variant: published, and each transport."
        yield in_both(EVENTS, quantity.name, alt, lambda theme: event_plots.event_plot(quantity, plan, groups, theme))


def matrix_picture(flows, variant, transports):
    alt = f"{variant}: heat maps of the MB from rank to rank, before and in training, over each transport; the table "
    alt += "below has the same figures."
    name = f"matrix-{pictures.slug_of(variant)}"
    return in_both(MATRIX, name, alt, lambda theme: matrix_plot.matrix(flows, variant, transports, theme))


def all_of(folder, record, plan, study, flows):
    """In the order of the page. `flows`: as training_tables.flows_of()."""
    runs, transports, by_key = record["runs"], plan.transports, flows_by_key(flows)
    variants = [name for name in plan.variants if any(run["cell"]["variant"] == name for run in runs)]
    by_run, found = pictures.traces_of(folder, runs), list(event_pictures(plan, study, runs))
    for name, (draw, what) in TRAFFIC_PLOTS.items():
        if any(trace.total is not None for trace in by_run.values()):
            alt = f"{what} over time, a row for each variant, a column for each transport."
            found.append(in_both(TRAFFIC, name, alt, lambda theme: draw(by_run, variants, transports, theme)))
    for variant in variants:
        if any(key[0] == variant for key in by_key):
            found.append(matrix_picture(by_key, variant, transports))
        found += pictures.of_ranks(by_run, variant, variant, transports)
    return [one for one in found if one is not None]
