"""Training with two ranks and with four, and who sends how much to whom in it."""

from gloo_bypass_tools.study.definition import Point, Study

ABOUT = """
Three times the bytes an event, half the events. Between two ranks each direction carries as much as the other; four
ranks send one way round a ring.
"""

STUDIES = (
    Study(
        name="world-size",
        order=60,
        title="Two ranks and four, and who sends to whom",
        about=ABOUT,
        variants=(Point("ws=2"), Point("ws=4", ranks=4)),
        flows=(("flow-symmetry", "ws=2"), ("ws4-flows", "ws=4")),
    ),
)
