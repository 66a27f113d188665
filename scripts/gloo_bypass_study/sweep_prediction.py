"""What the model says of a sweep's quantities. Pure; each sweep's `model_about` says it in words.

base   medians of the base point's quantities over the same transport, from which the models of training start: the processor's part of a step
       cannot be computed. None where the base was not measured
"""

import functools
import math
import statistics

import numpy as np

from gloo_bypass_model import overlap, ring, schedule

from . import catalogue, prediction, sweeps, training, transports

BISECTIONS = 60


def edge_rate(reduce_plan, transport):
    """Bytes/s of data on an edge: the rate without headers."""
    return catalogue.FAST_RATE_MBIT * 1e6 / 8 * prediction.payload_share(reduce_plan, transport)


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
    """Halving-doubling and bcube: 2 log2 N exchanges. Bound buffers (halving-doubling) need no notice of a posted receive."""
    of_one = plan.of_reduce(point)
    waits = point.algorithm == "bcube" and completion_of(of_one, transport, point) != "buffered"
    # Over RDMA what is long is announced and read: a way there and back before the data's.
    ways = 3 if prediction.is_fetched(transport, of_one.bytes // point.ranks) else 2 if waits else 1
    return (2 * math.log2(point.ranks) * point.delay_ms * 1e-3 * ways
            + ring.serialisation_s(point.ranks, of_one.bytes, edge_rate(of_one, transport)))


def reduce_s(plan, point, transport):
    return ring_s(plan, point, transport) if point.algorithm == "ring" else rounds_s(plan, point, transport)


def time_of_buckets(listed, window_s, byte_s):
    """T_ar where an all-reduce has byte_s for each byte, and as much longer as others run beside it."""
    return overlap.timeline([bucket.ready * window_s for bucket in listed], [bucket.size for bucket in listed],
                            lambda size, together: size * byte_s * together)


def bucket_timeline(model, point, base_point, base):
    """Of this point's buckets, where the base's T_ar and its visible part say how long backward's window and a byte take."""
    window_s = base["t_ar"] - base["t_exposed"]
    of_base, total = training.gradient_buckets(base_point, model), 0.0
    if base["t_ar"] <= 0:
        return None
    low, high = 0.0, 2 * base["t_ar"] / sum(bucket.size for bucket in of_base)
    for _ in range(BISECTIONS):
        total = (low + high) / 2
        low, high = (low, total) if time_of_buckets(of_base, window_s, total).ar_s > base["t_ar"] else (total, high)
    # The window is from the first bucket's readiness to the last one's, and a smaller first bucket is ready sooner: by little, left out.
    return time_of_buckets(training.gradient_buckets(point, model), window_s, total)


def bucket_value(model, study, point, key, base):
    made = bucket_timeline(model, point, study.variant(study.base), base)
    if made is None:
        return None
    return {"t_ar": made.ar_s, "t_exposed": made.exposed_s, "t_step": base["t_step"] + made.exposed_s - base["t_exposed"]}.get(key)


def straggler_value(point, key, base):
    if key != "t_step" or base.get("cpu") is None:
        return None
    share = 1.0 if point.processor_share is None else point.processor_share
    return max(base["t_step"], base["t_step"] * base["cpu"] / share)


def scaling_value(study, point, key, base, cores):
    first = study.variant(study.base)

    def crowded(ranks):
        return max(1.0, ranks / cores)
    stretch = crowded(point.ranks) / crowded(first.ranks)
    computed = (base["t_step"] - base["t_exposed"]) * point.batch / first.batch * stretch
    visible = base["t_exposed"] * ring.rank_bytes(point.ranks, 1) / ring.rank_bytes(first.ranks, 1) * stretch
    step_s = computed + visible
    samples = point.ranks * point.batch / step_s
    return {"t_step": step_s, "samples_per_s": samples,
            "efficiency": samples / (first.ranks * first.batch / base["t_step"]) * first.ranks / point.ranks}.get(key)


def value_of(plan, study, point, transport, key, base, cores):
    """In seconds, bytes, shares; None where no model is."""
    if study.workload == sweeps.REDUCE:
        time_s = reduce_s(plan, point, transport)
        return {"time": time_s, "busbw": ring.rank_bytes(point.ranks, point.bytes or plan.bytes) / time_s}.get(key)
    if key == "bytes_per_event":
        return training.event_bytes(plan, point, transport).frames
    if key == "lost_time":
        return point.down_ms * 1e-3
    if not base or None in (base.get("t_step"), base.get("t_ar"), base.get("t_exposed")):
        return None
    if study.name == "bucket":
        return bucket_value(plan.model_over(transport), study, point, key, base)
    if study.name == "stragglers":
        return straggler_value(point, key, base)
    return scaling_value(study, point, key, base, cores) if study.name.endswith("-scaling") else None
