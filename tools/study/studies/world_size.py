"""Training with two ranks and with four."""

from gloo_bypass_tools.study.training import TrainingStudy, TrainingVariant

STUDIES = (
    TrainingStudy(
        name="world-size",
        order=60,
        title="Two ranks and four",
        about="Three times the bytes an event, half the events.",
        variants=(TrainingVariant("ws=2"), TrainingVariant("ws=4", ranks=4)),
    ),
)
