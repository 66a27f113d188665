"""One edge of the ring with little bandwidth: of one vector, and training over it."""

from gloo_bypass_tools.study import edge_tables
from gloo_bypass_tools.study.definition import BASE, Edge, Point, edge_study, edge_training_study
from gloo_bypass_tools.study.tables import target_of

ABOUT = """
The edge from rank 3 to rank 2 has 200, 100 or 50 Mbit/s; every other edge, and the way back, is fast.
"""
# Times serialisation.
MOST = 1.1


def targets_of(plan, study, rows):
    """Over each transport, against serialisation."""
    found = []
    for point in (one for one in study.variants if one.edge.is_slow and one.name in plan.variants):
        row, wanted = edge_tables.row_at(rows, point.name, "default"), f"T_ar within {MOST:g} x of serialisation"
        found += [
            target_of(f"{point.label} over {transport}", wanted, row and row.floor_ratio(transport), MOST)
            for transport in plan.transports
        ]
    return found


def point(rate):
    return Point(f"{rate}Mbit", ranks=4, edge=Edge(rate_mbit=float(rate)), label=f"{rate} Mbit/s")


STUDY = edge_study(
    name="edge-bandwidth",
    order=20,
    title="One ring edge with little bandwidth",
    about=ABOUT,
    variants=(Point(BASE, ranks=4, label="no limit"), *map(point, (200, 100, 50))),
    table="5.18",
    losses=(0.0,),
    lossy={"small": (), "published": ()},
    targets=targets_of,
)
STUDIES = (STUDY, edge_training_study(STUDY, order=90))
