"""Every picture of a study of one slow edge. Pure but for reading the raw files."""

from gloo_bypass_tools.study import edge_study, pictures, plots, trace_plots, traces

RESULT, RANKS = "result", "ranks"


def traces_of(folder, runs, segment):
    """(variant, transport) -> RunTrace of the first run without loss at this segment size."""
    found = {}
    for run in runs:
        cell = run["cell"]
        key = cell["variant"], cell["transport"]
        if cell["segment"] == segment and not cell["loss_percent"] and key not in found:
            trace = traces.trace_of(folder.place(run["folder"]))
            if trace is not None:
                found[key] = trace
    return found


def all_of(folder, record, plan, study, rows):
    """In the order of the page."""
    if not rows:
        return []
    found = [
        pictures.in_both(
            RESULT,
            "time",
            "Time of the all-reduce over the variants of the slow edge for each transport and segment "
            "size, with "
            "the model's lines and the published times.",
            lambda theme: plots.time(rows, plan, study, theme),
        )
    ]
    if plan.lossy and any(row.loss_percent and row.variant == plan.lossy[-1] for row in rows):
        found.append(
            pictures.in_both(
                RESULT,
                "loss",
                "Time of the all-reduce with loss on the slow edge, for each transport and segment size.",
                lambda theme: plots.loss(rows, plan, study, theme),
            )
        )
    segment = plan.segments[0]
    by_run = traces_of(folder, record["runs"], segment)
    for variant in plan.variants:
        if not any(trace.ranks for (name, _), trace in by_run.items() if name == variant):
            continue
        label = f"{study.variant(variant).label}, segments {edge_study.SEGMENT_NAMES[segment]}"
        found.append(
            pictures.in_both(
                RANKS,
                f"ranks-{variant}",
                f"{label}: CPU, memory, bytes sent and received of each rank over time, over each "
                "transport; samples.csv has the same figures.",
                lambda theme: trace_plots.ranks(by_run, variant, label, plan.transports, theme),
            )
        )
    return found
