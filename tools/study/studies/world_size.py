"""Training with two ranks and with four."""

from gloo_bypass_tools.study.definition import Point, Study

STUDIES = (
    Study(
        name="world-size",
        order=60,
        title="Two ranks and four",
        about="Three times the bytes an event, half the events.",
        variants=(Point("ws=2"), Point("ws=4", ranks=4)),
    ),
)
