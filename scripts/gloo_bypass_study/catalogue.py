"""The studies of one edge: rank 3 sends to rank 2, its successor on the ring 0 -> 3 -> 2 -> 1 -> 0, over an edge that is slow or far. Pure.

The published runs trained DistilGPT2; here Gloo's ring all-reduces one vector by itself, so that nothing hides behind backward:
at published size as many bytes as DistilGPT2's gradient has, at small size 16 MiB.
"""

from dataclasses import dataclass

PUBLISHED_BYTES = 81_912_576 * 4       # DistilGPT2's gradient in FP32
MIB = 2**20
# Every other edge. The published bridge had about 25 Gbit/s between containers (iperf3); this machine's ranks have less.
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


@dataclass(frozen=True)
class Study:
    """`tables`: of the published T_ar and event duration. `lossy`: the variants that are measured with loss too, at each scale."""

    name: str
    title: str
    about: str
    variants: tuple
    tables: dict
    losses: tuple
    lossy: dict
    scales: dict
    ranks: int = 4

    def variant(self, name):
        return next(one for one in self.variants if one.name == name)


SCALES = {"small": Scale(16 * MIB, 2, 1), "published": Scale(PUBLISHED_BYTES, 1, 1)}

EDGE_LATENCY = Study(
    name="edge-latency", title="One ring edge with added delay",
    about="The edge from rank 3 to rank 2 has 100, 200 or 300 ms of added delay, one way; every other edge, and the way back, is short.",
    variants=(Variant(BASE), *(Variant(f"{ms}ms", delay_ms=float(ms)) for ms in (100, 200, 300))),
    tables={"t_ar": "5.21", "event_duration": "5.20"}, losses=(0.0, 0.1, 1.0),
    lossy={"small": ("300ms",), "published": ("100ms", "200ms", "300ms")}, scales=SCALES)

EDGE_BANDWIDTH = Study(
    name="edge-bandwidth", title="One ring edge with little bandwidth",
    about="The edge from rank 3 to rank 2 has 200, 100 or 50 Mbit/s; every other edge, and the way back, is fast.",
    variants=(Variant(BASE), *(Variant(f"{rate}Mbit", rate_mbit=float(rate)) for rate in (200, 100, 50))),
    tables={"t_ar": "5.18", "event_duration": "5.17"}, losses=(0.0,), lossy={"small": (), "published": ()}, scales=SCALES)

STUDIES = {one.name: one for one in (EDGE_LATENCY, EDGE_BANDWIDTH)}
