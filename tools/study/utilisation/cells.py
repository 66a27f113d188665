"""What is measured: methods of training over links. Pure.

Ranks wait where they would compute, as hosts do while their accelerators compute: the processor is left to the
transports.
"""

from dataclasses import dataclass

from gloo_bypass_tools.execution_traces.methods import DDP, DILOCO, STREAMING, Method

RANKS = 2
# DistilGPT2's; in bfloat16, as the published models have them. A step of an accelerator that is not a fast one.
PARAMETERS, BITS, STEP_S = 81_912_576, 16, 0.2
# H, P and the steps that an overlapped sum may take: chosen here, within what the papers try.
INNER_STEPS, FRAGMENTS, OVERLAP, FEW_BITS = 50, 5, 5, 4
DDP_STEPS = 3

METHODS = {
    "DDP": Method(DDP, PARAMETERS, BITS, STEP_S, DDP_STEPS),
    "local SGD, DiLoCo": Method(DILOCO, PARAMETERS, BITS, STEP_S, INNER_STEPS, INNER_STEPS),
    "streaming": Method(STREAMING, PARAMETERS, BITS, STEP_S, INNER_STEPS, INNER_STEPS, FRAGMENTS),
    "streaming, overlapped": Method(
        STREAMING, PARAMETERS, BITS, STEP_S, INNER_STEPS + OVERLAP, INNER_STEPS, FRAGMENTS, OVERLAP
    ),
    "streaming, overlapped, 4 bits": Method(
        STREAMING, PARAMETERS, FEW_BITS, STEP_S, INNER_STEPS + OVERLAP, INNER_STEPS, FRAGMENTS, OVERLAP
    ),
}

RATES_MBIT = (100.0, 300.0, 1000.0)
LEAST_QUEUE_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """`delay_ms`: one way. `loss_percent` of the frames of each way."""

    name: str
    title: str
    delay_ms: float
    loss_percent: float


PLACES = {
    one.name: one
    for one in (
        Place("near", "no delay", 0.0, 0.0),
        Place("far", "50 ms each way", 50.0, 0.0),
        Place("lossy", "50 ms each way, 1 % lost", 50.0, 1.0),
    )
}


@dataclass(frozen=True)
class Cell:
    place: str
    rate_mbit: float
    transport: str
    method: str

    @property
    def about(self):
        return f"{self.method} at {self.rate_mbit:g} Mbit/s, {PLACES[self.place].title}, {self.transport}"


def cells_of(places, rates, transports, methods):
    """What is compared stands together."""
    return [
        Cell(place, rate, transport, method)
        for place in places
        for rate in rates
        for method in methods
        for transport in transports
    ]


def edges(cell):
    """The settings of every edge: its queue holds what is under way on it."""
    place = PLACES[cell.place]
    queue = round(max(LEAST_QUEUE_BYTES, cell.rate_mbit * 1e6 / 8 * 2e-3 * place.delay_ms))
    words = [f"rate={cell.rate_mbit:g}Mbit/s", f"delay={place.delay_ms:g}ms", f"queue={queue}B"]
    return [*words, f"loss={place.loss_percent:g}%"] if place.loss_percent else words


def compute_s(method):
    return method.steps * method.step_s


def window_s(method):
    """What is computed while each number is exchanged once; of DDP, in all of its steps."""
    return (method.steps if method.name == DDP else method.inner_steps) * method.step_s


def utilisation(method, whole_s):
    """The share of its time that a training computes, if it goes on like this. `whole_s`: what all steps took."""
    exposed_s = max(whole_s - compute_s(method), 0.0)
    return window_s(method) / (window_s(method) + exposed_s)
