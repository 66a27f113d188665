"""Training where one rank has little processor time."""

from gloo_bypass_tools.study.definition import TRAIN, Point, sweep

ABOUT = """
Two ranks; the second may use a whole core, a half or a quarter of one, and the first waits for it.
"""
MODEL = """
T_step: the straggler's processor time of a step, as it was without limit, at the share that it has; not less than the
step without limit.
"""


def predicted(asked):
    base = asked.base
    if not asked.has_times or asked.key != "t_step" or base.get("cpu") is None:
        return None
    share = 1.0 if asked.point.processor_share is None else asked.point.processor_share
    return max(base["t_step"], base["t_step"] * base["cpu"] / share)


STUDIES = (
    sweep(
        TRAIN,
        name="stragglers",
        order=140,
        title="One rank with little processor time",
        about=ABOUT,
        model_about=MODEL,
        axis="share of a core",
        base="free",
        variants=(
            Point("free", barrier=True, label="no limit", published=("barrier", "barrier")),
            *(Point(f"{share:g}", barrier=True, label=f"{share:g}", processor_share=share) for share in (0.5, 0.25)),
        ),
        quantities=("t_step", "t_ar", "t_exposed", "cpu"),
        same_bits=True,
        predicted=predicted,
    ),
)
