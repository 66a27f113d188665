"""Every picture of a study of training, in the sections of its page, in both themes. Pure but for reading the raw
files."""

from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import event_plots, matrix_plot, trace_plots, traces, training_tables
from gloo_bypass_tools.study.pictures import in_both

# The sections of the page, in its order; their words are in its template.
EVENTS, TRAFFIC, MATRIX, RANKS = SECTIONS = ("events", "traffic", "matrix", "ranks")


def slug_of(variant):
    """For a file's name."""
    return "".join(one for one in variant if one.isalnum() or one in "-._")


def traces_of(folder, plan, runs):
    """(variant, transport) -> RunTrace of its first run that left any."""
    found = {}
    for variant in plan.variants:
        for transport in plan.transports:
            for run in training_tables.runs_of(runs, variant, transport)[:1]:
                trace = traces.trace_of(folder.place(run["folder"]))
                if trace is not None:
                    found[variant, transport] = trace
    return found


def flows_by_key(listed):
    return {
        (variant, transport, phase): {(start, end): megabytes for start, end, megabytes in edges}
        for variant, transport, phase, edges in listed
    }


def event_pictures(plan, study, runs):
    figures = (
        [figure for figure in measurements.read() if figure.study == study.published_name]
        if training_tables.published_transports(plan)
        else []
    )

    for name, quantity in (
        ("events", event_plots.DURATION),
        ("throughput-events", event_plots.THROUGHPUT),
        ("bytes-events", event_plots.BYTES),
    ):
        groups = event_plots.groups_of(
            quantity,
            plan,
            runs,
            figures,
            lambda variant, transport: training_tables.model_of(
                plan, study.variant(variant), quantity.metric, "median", transport, runs
            ),
        )
        yield in_both(
            EVENTS,
            name,
            f"{quantity.title}, {quantity.unit}, for each variant: published, and each transport.",
            lambda theme: event_plots.event_plot(quantity, plan, groups, theme),
        )


def variant_pictures(plan, variants, by_run, flows):
    """Those of which each variant has its own."""
    for variant in variants:
        if any(key[0] == variant for key in flows):
            yield in_both(
                MATRIX,
                f"matrix-{slug_of(variant)}",
                f"{variant}: heat maps of the MB from rank to rank, before and in training, over each "
                "transport; the table below has the same figures.",
                lambda theme: matrix_plot.matrix(flows, variant, plan.transports, theme),
            )
        if any(trace.ranks for (name, _), trace in by_run.items() if name == variant):
            yield in_both(
                RANKS,
                f"ranks-{slug_of(variant)}",
                f"{variant}: CPU, memory, bytes sent and received of each rank over time, over each "
                "transport; samples.csv has the same figures.",
                lambda theme: trace_plots.ranks(by_run, variant, variant, plan.transports, theme),
            )


def all_of(folder, record, plan, study, flows):
    """In the order of the page. `flows`: as training_tables.flows_of()."""
    runs = record["runs"]
    variants = [name for name in plan.variants if any(run["cell"]["variant"] == name for run in runs)]
    by_run = traces_of(folder, plan, runs)
    found = list(event_pictures(plan, study, runs))
    if any(trace.total is not None for trace in by_run.values()):
        for name, draw, alt in (
            (
                "throughput",
                trace_plots.throughput,
                "Throughput of all edges together over time, a row for each variant, a column for each transport.",
            ),
            (
                "cumulative",
                trace_plots.cumulative,
                "Bytes so far of each direction over time, a row for each variant, a column for each transport.",
            ),
        ):
            found.append(in_both(TRAFFIC, name, alt, lambda theme: draw(by_run, variants, plan.transports, theme)))
    found += variant_pictures(plan, variants, by_run, flows_by_key(flows))
    return [one for one in found if one is not None]
