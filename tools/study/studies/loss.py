"""All-reduces over edges that lose frames, each by itself or in bursts."""

from gloo_bypass_tools.study import definition, prediction
from gloo_bypass_tools.study.definition import REDUCE, Point, sweep

ABOUT = f"""
Four ranks reduce one vector over edges of 5 ms, one way, which lose 0 to 5 % of their frames, acknowledgements too:
each by itself, or in bursts of five frames in the mean, of which {definition.BURST_LOSS_PERCENT:g} % are lost.
"""
MODEL = """
Gloo's schedule over these edges, where a segment comes one round trip later for each time that any of its frames has to
be sent again; no processor, no congestion window.
"""


def points():
    yield Point("0", ranks=4, label="0 %", delay_ms=5.0)
    for kind in ("random", "burst"):
        for share in (0.1, 0.5, 1.0, 2.0, 5.0):
            yield Point(
                f"{kind}-{share:g}",
                ranks=4,
                label=f"{share:g} %",
                series=kind,
                delay_ms=5.0,
                loss_percent=share,
                burst=kind == "burst",
            )


STUDIES = (
    sweep(
        REDUCE,
        name="loss",
        order=100,
        title="Loss on every edge, random and in bursts",
        about=ABOUT,
        model_about=MODEL,
        axis="frames lost",
        variants=tuple(points()),
        base="0",
        quantities=("time", "sent_again", "timeouts", "busbw"),
        predicted=prediction.of_reduce,
    ),
)
