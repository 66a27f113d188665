"""Who sends how much to whom in training with two ranks and with four."""

from gloo_bypass_tools.study.definition import Point, Study

ABOUT = """
Between two ranks each direction carries as much as the other; four ranks send one way round a ring.
"""

STUDIES = (
    Study(
        name="flow-symmetry",
        order=70,
        title="Who sends to whom: two ranks and four",
        about=ABOUT,
        variants=(Point("ws=2"), Point("ws=4", ranks=4)),
        flows=(("flow-symmetry", "ws=2"), ("ws4-flows", "ws=4")),
    ),
)
