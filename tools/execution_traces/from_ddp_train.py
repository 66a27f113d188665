"""The traces that `ddp_train --trace` writes, as execution traces. Pure.

The training thread computes from one hand-over of a bucket to the next; it waits for all buckets where the file says
that the rest of them was exposed, and at the step's barrier for all ranks (trainer/metrics/tracing/README.md).
"""

from gloo_bypass_tools.execution_traces.timeline import Timeline
from gloo_bypass_tools.execution_traces.trace import TraceError, quoted

STEP = "ProfilerStep#"
FORWARD, BACKWARD, OPTIMIZER = "DistributedDataParallel.forward", "backward", "Optimizer.step#AdamW.step"
BUCKET, EXPOSED, BARRIER = "gloo:all_reduce", "exposed gloo:all_reduce", "gloo:barrier"
UNDERSTOOD = ("all_reduce", "nothing")
# At one moment, in this order.
LEAVES, NEEDS_BUCKETS, ENTERS, WAITS = range(4)


def is_one(document):
    return isinstance(document, dict) and "exchange" in document.get("distributedInfo", {})


def end_of(span):
    return span["ts"] + span["dur"]


def spans_by_rank(path, document):
    """{rank: {step: its spans}}"""
    found = {}
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault(event["pid"], {}).setdefault(event["args"]["step"], []).append(event)
    if not found:
        raise TraceError(f"{path}: it has no steps")
    return found


def complete_steps(document):
    """The last step that every rank has noted down whole."""
    return min(rank["last_step"] - (rank["spans_left_out"] > 0) for rank in document["ranks"])


def add_step(timeline, step, spans):
    """The moments of a step in order, each a call."""
    named = {}
    for span in spans:
        named.setdefault(span["name"], []).append(span)
    whole = named[f"{STEP}{step}"][0]
    timeline.compute(whole["ts"], "between steps")
    timeline.begin_step(step, whole["dur"])
    buckets, current = [], ["step"]

    def enter(span):
        current.append(span["name"])

    def leave(span):
        current.remove(span["name"])

    def hand_over(span):
        size, number = span["args"]["bytes"], span["args"]["bucket"]
        buckets.append(timeline.collective("ALL_REDUCE", size, f"all-reduce of bucket {number}"))

    moments = []
    for name in (FORWARD, BACKWARD, OPTIMIZER):
        for span in named.get(name, []):
            moments += [(span["ts"], ENTERS, enter, span), (end_of(span), LEAVES, leave, span)]
    for span in named.get(BUCKET, []):
        moments.append((span["ts"], ENTERS, hand_over, span))
    for span in named.get(EXPOSED, []):
        moments.append((span["ts"], WAITS, lambda one: timeline.wait(buckets, end_of(one)), span))
    for span in named.get(OPTIMIZER, []):
        # Buckets that had all ended during the backward are needed here, too.
        moments.append((span["ts"], NEEDS_BUCKETS, lambda one: timeline.wait(buckets, one["ts"]), span))
    for moment, _, act, span in sorted(moments, key=lambda one: one[:2]):
        timeline.compute(moment, current[-1])
        act(span)
    for span in named.get(BARRIER, []):
        timeline.compute(span["ts"], current[-1])
        timeline.wait([timeline.collective("BARRIER", 0, "barrier")], end_of(span))
    timeline.compute(end_of(whole), "step")
    timeline.end_step()


def convert(path, document):
    """A Trace for each rank."""
    about = document["distributedInfo"]
    if about["exchange"] not in UNDERSTOOD:
        how = quoted(str(about["exchange"]))
        raise TraceError(f"{path}: its ranks exchanged by {how}: only plain all-reduces of gradients are understood")
    last, traces = complete_steps(document), []
    by_rank = spans_by_rank(path, document)
    if len(by_rank) != about["world_size"] or sorted(by_rank) != list(range(len(by_rank))):
        raise TraceError(f"{path}: it does not have the spans of all {about['world_size']} ranks")
    for rank in range(about["world_size"]):
        steps = [step for step in sorted(by_rank[rank]) if step <= last]
        if not steps:
            raise TraceError(f"{path}: rank {rank} has no whole step")
        timeline = Timeline(min(span["ts"] for span in by_rank[rank][steps[0]]))
        for step in steps:
            add_step(timeline, step, by_rank[rank][step])
        traces.append(timeline.trace())
    return traces
