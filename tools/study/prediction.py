"""The model's times of an all-reduce. Pure.

schedule   Gloo's ring (gloo_bypass_tools.model.schedule) over the cell's edges, with the headers of the transport's
           frames: over TCP data waits for the notice of a posted receive (granted), over DPDK it does not where the
           path is long (buffered), over RDMA it is announced and then read by the receiver (acknowledged, after a way
           there and back)
repeated   the same schedule where the frames that are lost come once more, and those of them that are lost again: a
           segment is complete one round trip later for each time that any of its frames has to be sent again. What a
           transport can do that repairs losses by sending again
floor      what no schedule of a ring can beat: the slow edge alone (schedule.perfect_s)

Where all edges are alike the ring is the same; of halving-doubling and bcube the model is their rounds and their bytes.
None knows the processor: where ranks share cores, as here, the time without limit is the processor's and comes
beside it.
"""

import functools
import math
import random
import statistics
from dataclasses import dataclass

import numpy as np

from gloo_bypass_tools.model import framing, ring, schedule
from gloo_bypass_tools.study import definition, transports
from gloo_bypass_tools.study.plan import segment_bytes, slow_edge

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
    """Of the bytes on an edge: how many are the vector's. `ranks`: where the plan has no number of its own."""
    size = definition.MIB
    return size / path_of(plan, transport).message(size, both_ways=(ranks or plan.ranks) == 2).forward


def bytes_a_second(mbit):
    return mbit * 1e6 / 8


def frames_of(plan, transport, segment):
    path = path_of(plan, transport)
    if transport == "RDMA":
        return math.ceil(segment / path.mtu)
    return math.ceil(segment / (path.frame_payload if transports.is_tcp(transport) else path.chunk))


def is_fetched(transport, segment):
    """Over RDMA long segments are announced, and read by the receiver: data comes after two ways there and one back."""
    return transport == "RDMA" and segment > framing.RDMA_EAGER_BYTES


def completion_of(transport, round_trip_ms, segment):
    if transports.is_tcp(transport):
        return "granted"
    if transport == "RDMA":
        return "acknowledged" if is_fetched(transport, segment) else "buffered"
    return "buffered" if round_trip_ms >= LONG_PATH_RTT_MS else "acknowledged"


def mean_time_s(plan, edges, completion, late, segment=schedule.SEGMENT_BYTES):
    """Over DRAWS seeded draws of losses."""
    return statistics.mean(
        schedule.time_s(plan.bytes, edges, completion, segment_bytes=segment, late=late) for _ in range(DRAWS)
    )


def ring_over(slow, ranks, transport, segment, share, together=1):
    """(edges, completion) of Gloo's ring over the last edge `slow`: of segments of so many bytes, while `together`
    all-reduces share each edge; `share`: payload_share()."""
    fast, rate = (
        bytes_a_second(mbit) * share / together
        for mbit in (definition.FAST_RATE_MBIT, slow.rate_mbit or definition.FAST_RATE_MBIT)
    )
    fast_s = definition.FAST_DELAY_MS * 1e-3
    # One way of data in the schedule is three of frames where it is fetched.
    delay_s = slow.one_way_ms * 1e-3
    ahead_s = delay_s + fast_s if is_fetched(transport, segment) else 0.0
    edges = tuple(schedule.ring_of(ranks, fast, fast_s, slow=schedule.Edge(rate, delay_s + ahead_s, fast_s)))
    return edges, completion_of(transport, slow.one_way_ms + definition.FAST_DELAY_MS, segment)


def model_of(plan, study, cell):
    """Over one slow edge."""
    slow, (start, _) = study.variant(cell.variant).edge, slow_edge(plan.ranks)
    largest = segment_bytes(plan, cell.segment) or schedule.SEGMENT_BYTES
    segment, share = schedule.cut(plan.bytes, plan.ranks, largest).segment, payload_share(plan, cell.transport)
    edges, completion = ring_over(slow, plan.ranks, cell.transport, segment, share)
    lossless_s = schedule.time_s(plan.bytes, edges, completion, segment_bytes=largest)
    return Model(
        lossless_s,
        repeated_s(plan, cell, edges, completion, largest) if cell.loss_percent else lossless_s,
        schedule.perfect_s(plan.bytes, plan.ranks, schedule.Edge(edges[start].rate, slow.one_way_ms * 1e-3)),
        completion,
    )


def trips_at(frames, loss, chance):
    """How often any of so many frames has to be sent until all have arrived, with this much luck (0 to 1)."""
    trips = 1
    while (1 - loss**trips) ** frames < chance:
        trips += 1
    return trips


@functools.lru_cache(maxsize=None)
def repeated_s(plan, cell, edges, completion, largest):
    start, _ = slow_edge(plan.ranks)
    edge, loss, luck = edges[start], cell.loss_percent / 100, random.Random(plan.seed)
    frames = frames_of(plan, cell.transport, schedule.cut(plan.bytes, plan.ranks, largest).segment)
    on_edge = np.arange(plan.ranks) == start

    def late():
        return on_edge * (trips_at(frames, loss, luck.random()) - 1) * (edge.delay_s + edge.back_s)

    return mean_time_s(plan, edges, completion, late, largest)


def lost_of(frames, point, luck):
    """How many of so many frames, one after another, are lost."""
    if not point.burst:
        return int(luck.binomial(frames, point.loss_percent / 100))
    enter, leave = point.burst_enter_percent / 100, definition.BURST_LEAVE_PERCENT / 100
    at, lost = int(luck.geometric(enter)) - 1, 0
    while at < frames:
        length = int(luck.geometric(leave))
        lost += int(luck.binomial(min(length, frames - at), definition.BURST_LOSS_PERCENT / 100))
        at += length + int(luck.geometric(enter))
    return lost


def trips_of(frames, point, luck):
    """How often something of a segment is sent, until all of it is there."""
    trips = 0
    while frames:
        trips, frames = trips + 1, lost_of(frames, point, luck)
    return trips


@functools.lru_cache(maxsize=None)
def equal_ring_s(plan, point, transport):
    """Gloo's ring over equal edges with this point's delay and loss; with loss the mean over seeded draws."""
    segment, delay_s = schedule.cut(plan.bytes, plan.ranks).segment, point.delay_ms * 1e-3
    # One way of data in the schedule is three of frames where it is announced and fetched.
    ways = 3 if is_fetched(transport, segment) else 1
    edges = (schedule.Edge(equal_rate(plan, transport), delay_s * ways, delay_s),) * plan.ranks
    completion = completion_of(transport, 2 * point.delay_ms, segment)
    if not point.loss_percent:
        return schedule.time_s(plan.bytes, edges, completion)
    luck, frames = np.random.default_rng(plan.seed), frames_of(plan, transport, segment)

    def late():
        return np.array([trips_of(frames, point, luck) - 1 for _ in range(plan.ranks)]) * 2 * delay_s

    return mean_time_s(plan, edges, completion, late)


def equal_rate(plan, transport):
    return bytes_a_second(definition.FAST_RATE_MBIT) * payload_share(plan, transport)


def rounds_s(plan, point, transport):
    """Halving-doubling and bcube: 2 log2 N exchanges. Bound buffers (halving-doubling) need no notice of a posted
    receive."""
    segment = schedule.cut(plan.bytes, plan.ranks).segment
    waits = point.algorithm == "bcube" and completion_of(transport, 2 * point.delay_ms, segment) != "buffered"
    # Over RDMA what is long is announced and read: a way there and back before the data's.
    ways = 3 if is_fetched(transport, plan.bytes // plan.ranks) else 2 if waits else 1
    return 2 * math.log2(plan.ranks) * point.delay_ms * 1e-3 * ways + ring.serialisation_s(
        plan.ranks, plan.bytes, equal_rate(plan, transport)
    )


def reduce_s(plan, point, transport):
    """Over equal edges."""
    time_s = equal_ring_s if point.algorithm == "ring" else rounds_s
    return time_s(plan.at(point), point, transport)


def schedule_s(plan, study, cell):
    """What a cell's all-reduce takes without the processor; over a slow edge without losses too."""
    if study.layout == definition.EDGE:
        return model_of(plan, study, cell).schedule_s
    return reduce_s(plan, study.variant(cell.variant), cell.transport)


def of_reduce(asked):
    """What a sweep of all-reduces is predicted by."""
    of_one, time_s = asked.plan.at(asked.point), reduce_s(asked.plan, asked.point, asked.transport)
    return {"time": time_s, "busbw": ring.rank_bytes(of_one.ranks, of_one.bytes) / time_s}.get(asked.key)
