"""Training with and without a barrier after each step."""

from gloo_bypass_tools.study.training import TrainingStudy, TrainingVariant

STUDIES = (
    TrainingStudy(
        name="barrier",
        order=30,
        title="With and without a barrier after each step",
        about="Two ranks, which wait for each other at the end of each step, or do not.",
        variants=(TrainingVariant("no-barrier"), TrainingVariant("barrier", barrier=True)),
    ),
)
