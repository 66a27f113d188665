"""All-reduces by three of Gloo's algorithms."""

from gloo_bypass_tools.study import prediction
from gloo_bypass_tools.study.definition import MIB, REDUCE, Point, sweep

ABOUT = """
Four ranks reduce vectors of three sizes by three of Gloo's algorithms, over edges of 5 ms, one way. Ring and bcube are
what PyTorch can use; halving-doubling is Gloo's older class with buffers bound beforehand.
"""
MODEL = """
Ring: Gloo's schedule. The others: rounds, 2 log2 N of them, of one delay each (two where data waits for the notice of a
posted receive: bcube over TCP), and the bytes, 2(N-1)/N S a rank, at the edge's rate; no processor.
"""
SIZES = {"64 KiB": 64 * 1024, "1 MiB": MIB, "16 MiB": 16 * MIB}


def points():
    for algorithm in ("ring", "halving_doubling", "bcube"):
        for label, size in SIZES.items():
            yield Point(
                f"{algorithm}-{label.replace(' ', '')}",
                ranks=4,
                label=label,
                series=algorithm.replace("_", "-"),
                algorithm=algorithm,
                bytes=size,
                delay_ms=5.0,
            )


STUDIES = (
    sweep(
        REDUCE,
        name="algorithm",
        order=110,
        title="Ring, halving-doubling and bcube",
        about=ABOUT,
        model_about=MODEL,
        axis="vector",
        variants=tuple(points()),
        base="ring-64KiB",
        quantities=("time", "busbw", "sent_again"),
        predicted=prediction.of_reduce,
    ),
)
