"""Training with two sizes of the local batch."""

from gloo_bypass_tools.study.definition import Point, Study

STUDIES = (
    Study(
        name="batch-size",
        order=40,
        title="Local batch size 8 and 16",
        about="Two ranks; twice the samples a step, and so half the steps.",
        variants=(Point("bs=8"), Point("bs=16", batch=16)),
    ),
)
