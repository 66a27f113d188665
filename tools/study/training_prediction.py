"""The model of training: the bytes of an event, and times over one slow edge. Pure.

The run without limit tells what the processor needs, which no model knows: its T_ar gives when each bucket is ready.
Over the slow edge each all-reduce then lasts what Gloo's ring allows, as the transport completes its sends, two at a
time as c10d runs them.
"""

import math
from dataclasses import dataclass, replace

from gloo_bypass_tools.model import buckets, framing, overlap, ring, schedule
from gloo_bypass_tools.model.prediction import THREADS
from gloo_bypass_tools.study import definition, prediction

# Within so much of 2(N-1) S and headers the bytes of an event have to be.
BYTES_TOLERANCE = 0.005


@dataclass(frozen=True)
class EventBytes:
    """Of one event, by model: all ranks' payload 2(N-1) S, and all frames with their headers and acknowledgements; of
    these, those that go the ring's way, and those that go back. `fewest`: all frames, where no acknowledgement goes
    alone if the path leaves that to the receiver: TCP's sends one for two segments at most (RFC 5681, 4.2), and one for
    many where the kernel hands them up together."""

    payload: float
    forward: float
    backward: float
    fewest: float

    @property
    def frames(self):
        return self.forward + self.backward

    def on_edge(self, ranks, start, end):
        """From one rank to another: the ring goes from each rank to the one before it, and with two ranks both ways are
        that."""
        found = 0.0
        if (start - end) % ranks == 1:
            found += self.forward / ranks
        if (end - start) % ranks == 1:
            found += self.backward / ranks
        return found


def gradient_buckets(point, model):
    """In the order of their all-reduces."""
    limit = buckets.BUCKET_BYTES if point.bucket_mb is None else int(point.bucket_mb * buckets.MEBIBYTE)
    return buckets.of_model(buckets.MODELS[model], point.bits // 8, min(buckets.FIRST_BUCKET_BYTES, limit), limit)


def event_bytes(plan, point, transport):
    """Over this transport, and so of the model that it has there."""
    path = prediction.path_of(plan, transport)
    quiet = replace(path, frames_an_acknowledgement=math.inf) if isinstance(path, framing.TcpPath) else path
    total, fewest, payload = framing.NOTHING, framing.NOTHING, 0
    for bucket in gradient_buckets(point, plan.model_over(transport)):
        parts = schedule.cut(bucket.size, point.ranks, element_bytes=point.bits // 8)
        total += framing.event_cost(path, point.ranks, parts.segments())
        fewest += framing.event_cost(quiet, point.ranks, parts.segments())
        payload += ring.event_bytes(point.ranks, bucket.size)
    return EventBytes(payload, total.forward, total.backward, fewest.total)


def duration_over(plan, point, transport, edge):
    """duration(size, n) of overlap.timeline: one bucket of `size` bytes while n are reduced at once."""
    share, element_bytes = prediction.payload_share(plan, transport, point.ranks), point.bits // 8

    def duration(size, together):
        segment = schedule.cut(size, point.ranks, element_bytes=element_bytes).segment
        edges, completion = prediction.ring_over(edge, point.ranks, transport, segment, share, together)
        return schedule.time_s(size, edges, completion, element_bytes=element_bytes)

    return duration


def reduces_s(plan, point, transport, base_s):
    """T_ar over the slow edge, where it takes base_s without."""
    limits = [duration_over(plan, point, transport, edge) for edge in (definition.Edge(), point.edge)]
    listed = gradient_buckets(point, plan.model_over(transport))
    return overlap.stretched(listed, base_s, *limits, THREADS).ar_s


def time_of(plan, point, transport, metric, base):
    """T_ar and T_step in seconds, their ratio, and the seconds between a step's markers; None where the model says
    nothing. `base`: medians of these without limit over the same transport, as far as they were measured."""
    measured = "event_duration" if metric == "event_duration" else "t_ar"
    if not point.edge.is_slow or measured not in base or metric not in ("t_ar", "t_step", "oh_ar", "event_duration"):
        return None
    reduce_s = reduces_s(plan, point, transport, base[measured])
    if metric == measured:
        return reduce_s
    step_s = base["t_step"] - base["t_ar"] + reduce_s
    return step_s if metric == "t_step" else reduce_s / step_s
