"""How much of what a far edge costs TCP is the transport's, and how much is Gloo's pipeline. Pure.

With Gloo's own segments, TCP takes t1 and a transport that completes sends at once takes t2; with two segments a rank
that one takes t3:

  t1 - t2   the transport's: its data waits for the notice of a posted receive, and its window has to open
  t2 - t3   Gloo's pipeline: two iterations of 1 MiB segments under way, however far the edge
  t3        what is left: propagation, serialisation, the processor
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shares:
    """Of one delay. Seconds; growth: of T_ar against the run without limit."""

    label: str
    total_s: float
    transport_s: float
    pipeline_s: float
    rest_s: float
    growth: float | None
    published_growth: float | None
    modelled_growth: float | None

    def share(self, part_s):
        return part_s / self.total_s


def shares_of(label, tcp_s, other_s, other_two_s, base_s=None, published_growth=None, modelled_growth=None):
    """None where a figure is missing. A part below 0 stays so: noise is shown, not hidden."""
    if None in (tcp_s, other_s, other_two_s) or tcp_s <= 0:
        return None
    return Shares(
        label,
        tcp_s,
        tcp_s - other_s,
        other_s - other_two_s,
        other_two_s,
        tcp_s / base_s if base_s else None,
        published_growth,
        modelled_growth,
    )
