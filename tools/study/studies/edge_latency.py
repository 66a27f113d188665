"""One edge of the ring with added delay: of one vector, and training over it."""

from gloo_bypass_tools.study import edge_tables, transports
from gloo_bypass_tools.study.definition import BASE, SEGMENT_NAMES, Edge, Point, edge_study, edge_training_study
from gloo_bypass_tools.study.tables import target_of

ABOUT = """
The edge from rank 3 to rank 2 has 100, 200 or 300 ms of added delay, one way; every other edge, and the way back, is
short.
"""
# What a time is held against, and the most times it, without and with loss. The schedule of two segments a rank itself
# takes up to 1.27 times propagation and serialisation (at published size), and may take 1.25 and 1.5 times as long.
YARDSTICKS = {
    "default": ("what Gloo's schedule allows", edge_tables.Row.lossless_ratio, 1.25, 1.5),
    "two": ("propagation and serialisation", edge_tables.Row.floor_ratio, 1.6, 1.9),
}


def targets_of(plan, _study, rows):
    """The 300 ms edge over the bypass: against Gloo's schedule, and with two segments a rank against physics."""
    if "300ms" not in plan.variants:
        return []
    found = []
    for transport in (one for one in plan.transports if not transports.is_tcp(one)):
        for loss in sorted({row.loss_percent for row in rows} | {0.0}):
            label = f"300 ms edge over {transport}" + (f", {loss:g} % loss" if loss else "")
            for segment, (yardstick, ratio, lossless, lossy) in YARDSTICKS.items():
                most = lossy if loss else lossless
                row = edge_tables.row_at(rows, "300ms", segment, loss)
                named, wanted = f"{label}, segments {SEGMENT_NAMES[segment]}", f"within {most:g} x of {yardstick}"
                found.append(target_of(named, wanted, row and ratio(row, transport), most))
    return found


def point(ms):
    return Point(f"{ms}ms", ranks=4, edge=Edge(delay_ms=float(ms)), label=f"{ms} ms")


STUDY = edge_study(
    name="edge-latency",
    order=10,
    title="One ring edge with added delay",
    about=ABOUT,
    variants=(Point(BASE, ranks=4, label="no limit"), *map(point, (100, 200, 300))),
    table="5.21",
    losses=(0.0, 0.1, 1.0),
    lossy={"small": ("300ms",), "published": ("100ms", "200ms", "300ms")},
    targets=targets_of,
    shares=True,
)
STUDIES = (STUDY, edge_training_study(STUDY, order=80))
