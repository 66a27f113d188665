"""One edge of the ring with added delay: of one vector, and training over it."""

from gloo_bypass_tools.study import edge_study, prediction, tables, training, transports

ABOUT = """
The edge from rank 3 to rank 2 has 100, 200 or 300 ms of added delay, one way; every other edge, and the way back, is
short.
"""
# Times what Gloo's schedule, or physics, allows.
MOST, MOST_WITH_LOSS = 1.25, 1.5


def targets_of(plan, _study, rows):
    """The 300 ms edge over the bypass: against Gloo's schedule, and with two segments a rank against physics."""
    if "300ms" not in plan.variants:
        return []
    found = []
    for transport in (one for one in plan.transports if not transports.is_tcp(one)):
        for loss in sorted({row.loss_percent for row in rows} | {0.0}):
            most = MOST_WITH_LOSS if loss else MOST
            label = f"300 ms edge over {transport}" + (f", {loss:g} % loss" if loss else "")
            for segment, yardstick, ratio in (
                ("default", "what Gloo's schedule allows", tables.Row.lossless_ratio),
                ("two", "propagation and serialisation", tables.Row.floor_ratio),
            ):
                row = tables.row_at(rows, "300ms", segment, loss)
                found.append(
                    tables.target_of(
                        f"{label}, segments {edge_study.SEGMENT_NAMES[segment]}",
                        f"within {most:g} x of {yardstick}",
                        None if row is None else ratio(row, transport),
                        most,
                    )
                )
    return found


STUDY = edge_study.EdgeStudy(
    name="edge-latency",
    order=10,
    title="One ring edge with added delay",
    about=ABOUT,
    variants=(
        edge_study.Variant(edge_study.BASE),
        *(edge_study.Variant(f"{ms}ms", delay_ms=float(ms)) for ms in (100, 200, 300)),
    ),
    tables={"t_ar": "5.21", "event_duration": "5.20"},
    losses=(0.0, 0.1, 1.0),
    lossy={"small": ("300ms",), "published": ("100ms", "200ms", "300ms")},
    model=prediction.model_of,
    targets=targets_of,
    shares=True,
)
STUDIES = (STUDY, training.over_slow_edge(STUDY, order=80))
