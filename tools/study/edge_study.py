"""Studies of one edge: rank 3 sends to rank 2, its successor on the ring 0 -> 3 -> 2 -> 1 -> 0, over an edge that
is slow or far. Pure.

The published runs trained DistilGPT2; here Gloo's ring all-reduces one vector by itself, so that nothing hides behind
backward: at published size as many bytes as DistilGPT2's gradient has, at small size 16 MiB.
"""

from dataclasses import dataclass, field

from gloo_bypass_tools.study.study import Study

PUBLISHED_BYTES = 81_912_576 * 4  # DistilGPT2's gradient in FP32
MIB = 2**20
# Every other edge. The published bridge had about 25 Gbit/s between containers (iperf3); this machine's ranks have
# less.
FAST_RATE_MBIT, FAST_DELAY_MS = 10_000.0, 0.02
# Room for all that is under way on a long edge; a slow edge has a router's buffer, which fills as it does with tc.
FAR_QUEUE, SLOW_QUEUE, FAST_QUEUE = "256MiB", "1MiB", "4MiB"
BASE = "base"
# Largest segment of Gloo's ring: as c10d leaves it, or two of them a rank, the fewest that its schedule allows.
SEGMENTS = ("default", "two")
SEGMENT_NAMES = {"default": "1 MiB", "two": "two a rank"}


@dataclass(frozen=True)
class Variant:
    """What the slow edge is: a rate or a delay; neither: like all others. `name` is that of the published file."""

    name: str
    rate_mbit: float | None = None
    delay_ms: float | None = None

    @property
    def one_way_ms(self):
        return FAST_DELAY_MS if self.delay_ms is None else self.delay_ms

    @property
    def label(self):
        if self.rate_mbit is not None:
            return f"{self.rate_mbit:g} Mbit/s"
        return "no limit" if self.delay_ms is None else f"{self.delay_ms:g} ms"


@dataclass(frozen=True)
class Scale:
    """`bytes` of the vector; all-reduces that are timed and that warm up, in each run."""

    bytes: int
    rounds: int
    warm_up: int


SCALES = {"small": Scale(16 * MIB, 2, 1), "published": Scale(PUBLISHED_BYTES, 1, 1)}


@dataclass(frozen=True, kw_only=True)
class EdgeStudy(Study):
    """`tables`: of the published T_ar and event duration. `lossy`: the variants that are measured with loss too, at
    each scale. `model(plan, study, cell)`: a prediction.Model. `targets(plan, study, rows)`: what the project wants.
    `shares`: whether TCP's time is told apart by whose it is."""

    tables: dict
    losses: tuple
    lossy: dict
    model: object
    targets: object
    shares: bool = False
    scales: dict = field(default_factory=lambda: SCALES)
    ranks: int = 4
