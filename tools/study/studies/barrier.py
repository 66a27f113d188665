"""Training with and without a barrier after each step."""

from gloo_bypass_tools.study.definition import Point, Study

STUDIES = (
    Study(
        name="barrier",
        order=30,
        title="With and without a barrier after each step",
        about="Two ranks, which wait for each other at the end of each step, or do not.",
        variants=(Point("no-barrier"), Point("barrier", barrier=True)),
    ),
)
