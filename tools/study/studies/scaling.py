"""Training with two, three and four ranks: with the same global batch, and with the same batch each."""

from gloo_bypass_tools.model import ring
from gloo_bypass_tools.study.definition import TRAIN, Point, sweep

GLOBAL_BATCH = 24
STRONG = f"Two, three and four ranks share a global batch of {GLOBAL_BATCH} samples."
WEAK = """
Two, three and four ranks with 8 samples each and a barrier after each step. With a barrier, two ranks alone were
published: for four see `world-size`.
"""
MODEL = """
From the step of two ranks: computation by samples a rank, what is visible of the all-reduce by bytes, 2(N-1)/N S a
rank; both stretched by ranks / cores where ranks share cores.
"""


def predicted(asked):
    point, first, base = asked.point, asked.base_point, asked.base
    if not asked.has_times:
        return None

    def crowded(ranks):
        return max(1.0, ranks / asked.cores)

    stretch = crowded(point.ranks) / crowded(first.ranks)
    computed = (base["t_step"] - base["t_exposed"]) * point.batch / first.batch * stretch
    visible = base["t_exposed"] * ring.rank_bytes(point.ranks, 1) / ring.rank_bytes(first.ranks, 1) * stretch
    step_s = computed + visible
    samples = point.ranks * point.batch / step_s
    return {
        "t_step": step_s,
        "samples_per_s": samples,
        "computing": computed / step_s,
        "efficiency": samples / (first.ranks * first.batch / base["t_step"]) * first.ranks / point.ranks,
    }.get(asked.key)


def study(name, order, title, about, batch_of, published=()):
    """`published`: study and variant of the published file that measured two ranks so."""
    return sweep(
        TRAIN,
        name=name,
        order=order,
        title=title,
        about=about,
        model_about=MODEL,
        axis="ranks",
        variants=tuple(
            Point(
                f"ws={ranks}",
                ranks=ranks,
                batch=batch_of(ranks),
                barrier=True,
                label=f"{ranks} ranks",
                published=published if ranks == 2 else (),
            )
            for ranks in (2, 3, 4)
        ),
        base="ws=2",
        quantities=("t_step", "samples_per_s", "efficiency", "computing", "t_ar", "bytes_per_event"),
        predicted=predicted,
    )


STUDIES = (
    study("strong-scaling", 150, "More ranks for the same global batch", STRONG, lambda ranks: GLOBAL_BATCH // ranks),
    study("weak-scaling", 160, "More ranks with the same batch each", WEAK, lambda ranks: 8, ("barrier", "barrier")),
)
