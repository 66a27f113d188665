"""Training with two sizes of the local batch."""

from gloo_bypass_tools.study.training import TrainingStudy, TrainingVariant

STUDIES = (
    TrainingStudy(
        name="batch-size",
        order=40,
        title="Local batch size 8 and 16",
        about="Two ranks; twice the samples a step, and so half the steps.",
        variants=(TrainingVariant("bs=8"), TrainingVariant("bs=16", batch=16)),
    ),
)
