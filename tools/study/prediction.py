"""The model's times of a cell. Pure.

schedule   Gloo's ring (gloo_bypass_tools.model.schedule) over the cell's edges, with the headers of the transport's
           frames: over TCP data waits for the notice of a posted receive (granted), over DPDK it does not where the
           path is long (buffered), over RDMA it is announced and then read by the receiver (acknowledged, after a way
           there and back)
repeated   the same schedule where the frames that are lost come once more, and those of them that are lost again: a
           segment is complete one round trip later for each time that any of its frames has to be sent again. What a
           transport can do that repairs losses by sending again
floor      what no schedule can beat: on an edge that is far, one delay in each half of the ring, and the bytes that
           cross it at its rate

Neither knows the processor: where ranks share cores, as here, the time without limit is the processor's and comes
beside it.
"""

import functools
import math
import random
import statistics
from dataclasses import dataclass

import numpy as np

from gloo_bypass_tools.model import framing, schedule
from gloo_bypass_tools.study import cells, edge_study, transports

LONG_PATH_RTT_MS = 0.3  # GLOO_BYPASS_LONG_PATH_RTT_US
DRAWS = 15  # of losses: their mean is steady to a few per cent
ROCE_4096_LEAST_MTU = 4176  # SoftRoCE keeps 80 bytes of a packet for headers


@dataclass(frozen=True)
class Model:
    """Seconds. schedule_s: Gloo's ring as this transport completes; repeated_s: with the cell's loss, the same without
    any; floor_s: propagation and serialisation."""

    schedule_s: float
    repeated_s: float
    floor_s: float
    completion: str


def path_of(plan, transport):
    name = "TCP" if transports.is_tcp(transport) else "DPDK netdev, pci"
    if transport == "RDMA":
        name = f"RDMA, RoCEv2 {4096 if plan.mtu >= ROCE_4096_LEAST_MTU else 1024}"
    return next(one for one in framing.paths(plan.mtu) if one.name == name)


def payload_share(plan, transport, ranks=None):
    """Of the bytes on an edge: how many are the vector's. `ranks`: of a plan that has none itself."""
    size = edge_study.MIB
    return size / path_of(plan, transport).message(size, both_ways=(ranks or plan.ranks) == 2).forward


def frame_payload(plan, transport):
    path = path_of(plan, transport)
    if transport == "RDMA":
        return path.mtu
    return path.frame_payload if transports.is_tcp(transport) else path.chunk


def is_fetched(transport, segment):
    """Over RDMA long segments are announced, and read by the receiver: data comes after two ways there and one back."""
    return transport == "RDMA" and segment > framing.RDMA_EAGER_BYTES


def completion_of(transport, delay_ms, segment):
    if transports.is_tcp(transport):
        return "granted"
    if transport == "RDMA":
        return "acknowledged" if is_fetched(transport, segment) else "buffered"
    return "buffered" if delay_ms + edge_study.FAST_DELAY_MS >= LONG_PATH_RTT_MS else "acknowledged"


def ring_over(variant, ranks, transport, segment, share, together=1):
    """(edges, completion) of Gloo's ring where its last edge is the variant's: of segments of so many bytes, while
    `together` all-reduces share each edge; `share`: payload_share()."""
    fast, rate = (
        mbit * 1e6 / 8 * share / together
        for mbit in (edge_study.FAST_RATE_MBIT, variant.rate_mbit or edge_study.FAST_RATE_MBIT)
    )
    fast_s = edge_study.FAST_DELAY_MS * 1e-3
    # One way of data in the schedule is three of frames where it is fetched.
    delay_s = variant.one_way_ms * 1e-3
    ahead_s = delay_s + fast_s if is_fetched(transport, segment) else 0.0
    edges = tuple(schedule.ring_of(ranks, fast, fast_s, slow=schedule.Edge(rate, delay_s + ahead_s, fast_s)))
    return edges, completion_of(transport, variant.one_way_ms, segment)


def model_of(plan, study, cell):
    variant = study.variant(cell.variant)
    largest = cells.segment_bytes(plan, cell.segment) or schedule.SEGMENT_BYTES
    edges, completion = ring_over(
        variant,
        plan.ranks,
        cell.transport,
        schedule.cut(plan.bytes, plan.ranks, largest).segment,
        payload_share(plan, cell.transport),
    )
    lossless = schedule.time_s(plan.bytes, edges, completion, segment_bytes=largest)
    return Model(
        lossless,
        repeated_s(plan, cell, edges, completion, largest) if cell.loss_percent else lossless,
        floor_s(plan, edges[cells.slow_edge(plan.ranks)[0]].rate, variant.one_way_ms * 1e-3),
        completion,
    )


def trips_of(frames, loss, chance):
    """How often any of so many frames has to be sent until all have arrived, with this much luck (0 to 1)."""
    trips = 1
    while (1 - loss**trips) ** frames < chance:
        trips += 1
    return trips


@functools.lru_cache(maxsize=None)
def repeated_s(plan, cell, edges, completion, segment):
    """Mean over DRAWS seeded draws."""
    start, _ = cells.slow_edge(plan.ranks)
    edge, loss = edges[start], cell.loss_percent / 100
    luck = random.Random(plan.seed)
    frames = math.ceil(schedule.cut(plan.bytes, plan.ranks, segment).segment / frame_payload(plan, cell.transport))
    on_edge = np.arange(plan.ranks) == start

    def late():
        return on_edge * (trips_of(frames, loss, luck.random()) - 1) * (edge.delay_s + edge.back_s)

    return statistics.mean(
        schedule.time_s(plan.bytes, edges, completion, segment_bytes=segment, late=late) for _ in range(DRAWS)
    )


def floor_s(plan, rate, delay_s):
    """With two ranks every byte crosses the edge once in each half too."""
    return 2 * delay_s + 2 * (plan.ranks - 1) / plan.ranks * plan.bytes / rate
