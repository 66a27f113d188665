"""One edge of the ring with little bandwidth: of one vector, and training over it."""

from gloo_bypass_tools.study import edge_study, prediction, tables, training

ABOUT = """
The edge from rank 3 to rank 2 has 200, 100 or 50 Mbit/s; every other edge, and the way back, is fast.
"""
# Times serialisation.
MOST = 1.1


def targets_of(plan, study, rows):
    """Over each transport, against serialisation."""
    found = []
    for variant in study.variants:
        if variant.rate_mbit is None or variant.name not in plan.variants:
            continue
        row = tables.row_at(rows, variant.name, "default")
        found += [
            tables.target_of(
                f"{variant.label} over {transport}",
                f"T_ar within {MOST:g} x of serialisation",
                None if row is None else row.floor_ratio(transport),
                MOST,
            )
            for transport in plan.transports
        ]
    return found


STUDY = edge_study.EdgeStudy(
    name="edge-bandwidth",
    order=20,
    title="One ring edge with little bandwidth",
    about=ABOUT,
    variants=(
        edge_study.Variant(edge_study.BASE),
        *(edge_study.Variant(f"{rate}Mbit", rate_mbit=float(rate)) for rate in (200, 100, 50)),
    ),
    tables={"t_ar": "5.18", "event_duration": "5.17"},
    losses=(0.0,),
    lossy={"small": (), "published": ()},
    model=prediction.model_of,
    targets=targets_of,
)
STUDIES = (STUDY, training.over_slow_edge(STUDY, order=90))
