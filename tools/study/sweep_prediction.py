"""What the model says of a sweep's quantities: what several studies share. Pure; each study's file says which it uses,
and has what is its own.
"""

import functools
import math
import statistics

import numpy as np

from gloo_bypass_tools.model import ring, schedule
from gloo_bypass_tools.study import edge_study, prediction, sweeps, training, transports


def edge_rate(reduce_plan, transport):
    """Bytes/s of data on an edge: the rate without headers."""
    return edge_study.FAST_RATE_MBIT * 1e6 / 8 * prediction.payload_share(reduce_plan, transport)


def lost_of(frames, point, luck):
    """How many of so many frames, one after another, are lost."""
    loss = point.loss_percent / 100
    if not point.burst:
        return int(luck.binomial(frames, loss))
    enter, leave = point.burst_enter_percent / 100, sweeps.BURST_LEAVE_PERCENT / 100
    at, lost = int(luck.geometric(enter)) - 1, 0
    while at < frames:
        length = int(luck.geometric(leave))
        lost += int(luck.binomial(min(length, frames - at), sweeps.BURST_LOSS_PERCENT / 100))
        at += length + int(luck.geometric(enter))
    return lost


def trips_of(frames, point, luck):
    """How often something of a segment is sent, until all of it is there."""
    trips = 0
    while frames:
        trips, frames = trips + 1, lost_of(frames, point, luck)
    return trips


@functools.lru_cache(maxsize=None)
def ring_s(plan, point, transport):
    """Gloo's ring over equal edges with this point's delay and loss; with loss the mean over seeded draws."""
    of_one, delay_s = plan.of_reduce(point), point.delay_ms * 1e-3
    # One way of data in the schedule is three of frames where it is announced and fetched.
    fetched = prediction.is_fetched(transport, schedule.cut(of_one.bytes, point.ranks).segment)
    edge = schedule.Edge(edge_rate(of_one, transport), delay_s * (3 if fetched else 1), delay_s)
    edges, completion = (edge,) * point.ranks, completion_of(of_one, transport, point)
    if not point.loss_percent:
        return schedule.time_s(of_one.bytes, edges, completion)
    luck = np.random.default_rng(plan.seed)
    frames = math.ceil(schedule.cut(of_one.bytes, point.ranks).segment / prediction.frame_payload(of_one, transport))

    def late():
        return np.array([trips_of(frames, point, luck) - 1 for _ in range(point.ranks)]) * 2 * delay_s

    return statistics.mean(schedule.time_s(of_one.bytes, edges, completion, late=late) for _ in range(prediction.DRAWS))


def completion_of(of_one, transport, point):
    if transport == "RDMA" or transports.is_tcp(transport):
        return prediction.completion_of(transport, point.delay_ms, schedule.cut(of_one.bytes, point.ranks).segment)
    return "buffered" if 2 * point.delay_ms >= prediction.LONG_PATH_RTT_MS else "acknowledged"


def rounds_s(plan, point, transport):
    """Halving-doubling and bcube: 2 log2 N exchanges. Bound buffers (halving-doubling) need no notice of a posted
    receive."""
    of_one = plan.of_reduce(point)
    waits = point.algorithm == "bcube" and completion_of(of_one, transport, point) != "buffered"
    # Over RDMA what is long is announced and read: a way there and back before the data's.
    ways = 3 if prediction.is_fetched(transport, of_one.bytes // point.ranks) else 2 if waits else 1
    return 2 * math.log2(point.ranks) * point.delay_ms * 1e-3 * ways + ring.serialisation_s(
        point.ranks, of_one.bytes, edge_rate(of_one, transport)
    )


def reduce_s(plan, point, transport):
    return ring_s(plan, point, transport) if point.algorithm == "ring" else rounds_s(plan, point, transport)


def of_reduce(asked):
    """What a sweep of all-reduces is predicted by."""
    point, time_s = asked.point, reduce_s(asked.plan, asked.point, asked.transport)
    return {"time": time_s, "busbw": ring.rank_bytes(point.ranks, point.bytes or asked.plan.bytes) / time_s}.get(
        asked.key
    )


def has_times(base):
    """Whether a model of training can start from it."""
    return None not in (base.get("t_step"), base.get("t_ar"), base.get("t_exposed"))


def value_of(plan, study, point, transport, key, base, cores):
    """In seconds, bytes, shares; None where no model is. What a study's own file leaves to all of training: bytes."""
    if study.workload == sweeps.TRAIN and key == "bytes_per_event":
        return training.event_bytes(plan, point, transport).frames
    return study.predicted(sweeps.Asked(plan, study, point, transport, key, base, cores))
