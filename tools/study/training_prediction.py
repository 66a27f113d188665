"""The model's times of training over one slow edge. Pure.

The run without limit tells what the processor needs, which no model knows: its T_ar gives when each bucket is ready.
Over the slow edge each all-reduce then lasts what Gloo's ring allows, as the transport completes its sends, two at a
time as c10d runs them.
"""

from dataclasses import dataclass

from gloo_bypass_tools.model import overlap, prediction as published_prediction, schedule
from gloo_bypass_tools.study import edge_study, prediction, training


@dataclass(frozen=True)
class Base:
    """Of the run without limit over the same transport: medians, seconds. None: not measured."""

    t_ar_s: float | None = None
    t_step_s: float | None = None
    event_s: float | None = None


def has_times(variant):
    return isinstance(variant, training.SlowEdgeVariant) and variant.edge.name != edge_study.BASE


def duration_over(plan, variant, transport, edge):
    """duration(size, n) of overlap.timeline: one bucket of `size` bytes while n are reduced at once."""
    share, element_bytes = prediction.payload_share(plan, transport, variant.ranks), variant.bits // 8

    def duration(size, together):
        segment = schedule.cut(size, variant.ranks, element_bytes=element_bytes).segment
        edges, completion = prediction.ring_over(edge, variant.ranks, transport, segment, share, together)
        return schedule.time_s(size, edges, completion, element_bytes=element_bytes)

    return duration


def reduces_s(plan, variant, transport, base_s):
    """T_ar over the slow edge, where it takes base_s without."""
    limits = [
        duration_over(plan, variant, transport, edge) for edge in (edge_study.Variant(edge_study.BASE), variant.edge)
    ]
    return overlap.stretched(
        training.gradient_buckets(variant, plan.model_over(transport)), base_s, *limits, published_prediction.THREADS
    ).ar_s


def time_of(plan, variant, transport, metric, base):
    """T_ar and T_step in seconds, their ratio, and the seconds between a step's markers; None where the model says
    nothing."""
    if not has_times(variant):
        return None
    if metric == "event_duration":
        return None if base.event_s is None else reduces_s(plan, variant, transport, base.event_s)
    if metric not in ("t_ar", "t_step", "oh_ar") or base.t_ar_s is None:
        return None
    reduce_s = reduces_s(plan, variant, transport, base.t_ar_s)
    step_s = base.t_step_s - base.t_ar_s + reduce_s
    return {"t_ar": reduce_s, "t_step": step_s, "oh_ar": reduce_s / step_s}[metric]
