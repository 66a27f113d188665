"""The links, and what is measured over each. Pure."""

from dataclasses import dataclass

from gloo_bypass_tools.study.transports import DISTINCT

RANKS = 2
# As long as a link needs for one all-reduce, about; a multiple of what ranks share.
REDUCE_S, LEAST_BYTES, MOST_BYTES = 1.0, 1 << 20, 64 << 20
ROUNDS, WARM_UP = 5, 2
STREAM_S = 6  # of iperf3, unless the user says otherwise; before it come the seconds in which TCP finds the rate
BEGIN_S, START_S = 2, 1
LEAST_QUEUE_BYTES = 1 << 20


@dataclass(frozen=True)
class Link:
    """Both ways: Mbit/s, and ms one way."""

    name: str
    rate_mbit: float
    delay_ms: float = 0.0
    loss_percent: float = 0.0

    @property
    def title(self):
        parts = [f"{self.rate_mbit:g} Mbit/s"]
        parts += [f"{self.delay_ms:g} ms each way"] if self.delay_ms else []
        parts += [f"{self.loss_percent:g} % lost"] if self.loss_percent else []
        return ", ".join(parts)

    @property
    def settings(self):
        """Of every edge; the queue holds what is under way."""
        queue = round(max(LEAST_QUEUE_BYTES, self.rate_mbit * 1e6 / 8 * 2e-3 * self.delay_ms))
        words = [f"rate={self.rate_mbit:g}Mbit/s", f"delay={self.delay_ms:g}ms", f"queue={queue}B"]
        return [*words, f"loss={self.loss_percent:g}%"] if self.loss_percent else words

    @property
    def reduced_bytes(self):
        size = round(self.rate_mbit * 1e6 / 8 * REDUCE_S)
        return min(max(size, LEAST_BYTES), MOST_BYTES) // 4096 * 4096


LINKS = {
    one.name: one
    for one in (
        Link("open", 10_000.0),
        Link("1000", 1000.0),
        Link("200", 200.0),
        Link("100", 100.0),
        Link("50", 50.0),
        Link("far", 1000.0, delay_ms=50.0),
        Link("lossy", 1000.0, delay_ms=50.0, loss_percent=1.0),
    )
}


@dataclass(frozen=True)
class Stream:
    """Of iperf3 over kernel TCP, from rank 1 to rank 0, or `reverse`."""

    streams: int
    reverse: bool = False

    @property
    def title(self):
        return f"iperf3, {self.streams} stream{'s' if self.streams > 1 else ''}{', reversed' if self.reverse else ''}"


# As the published check of the link: four, reversed.
STREAMS = tuple(Stream(*one) for one in ((1,), (4,), (4, True)))


# What all_reduce_perf measures: Gloo's ring over each transport, and our own collectives over those that have them.
OWN = "/own"
REDUCERS = (*DISTINCT, *(transport + OWN for transport in DISTINCT[1:]))


def reduced(reducer):
    """What its all-reduces are called."""
    return f"all-reduce, {reducer.replace(OWN, ', own')}"


COLUMNS = (*(one.title for one in STREAMS), *map(reduced, REDUCERS))


def estimate_s(link, stream_s):
    """Of all that is measured over a link once, at the least."""
    one_s = link.reduced_bytes * 8 / (link.rate_mbit * 1e6) + 4e-3 * link.delay_ms
    return len(STREAMS) * (BEGIN_S + stream_s + START_S) + len(REDUCERS) * ((ROUNDS + WARM_UP) * one_s + 4)
