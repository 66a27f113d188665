"""What a trace holds, as text. Pure."""

from collections import Counter

from gloo_bypass_tools.execution_traces.trace import COLLECTIVE, COMPUTE, RECEIVE, SEND, quoted


def kinds_of(trace):
    """{(what, bytes): how often}, for what a rank exchanges."""
    found = Counter()
    for node in trace.nodes:
        if node.kind == COLLECTIVE:
            found[node.operation + (f" in group {quoted(node.group)}" if node.group else ""), node.bytes] += 1
        elif node.kind in (SEND, RECEIVE):
            found[f"{node.kind} {'to' if node.kind == SEND else 'from'} rank {node.peer}", node.bytes] += 1
    return found


def lines_of_rank(rank, trace):
    on_cpu = sum(node.duration_us for node in trace.nodes if node.kind == COMPUTE and node.on_cpu)
    elsewhere = sum(node.duration_us for node in trace.nodes if node.kind == COMPUTE and not node.on_cpu)
    steps = f", steps {min(trace.steps_us)} to {max(trace.steps_us)}" if trace.steps_us else ""
    yield (
        f"rank {rank}: {len(trace.nodes)} nodes{steps}; computes {on_cpu / 1e6:.3f} s on the processor, "
        f"{elsewhere / 1e6:.3f} s elsewhere"
    )
    for (what, size), count in sorted(kinds_of(trace).items(), key=lambda one: (one[0][0], -one[0][1])):
        yield f"  {count:7} x {what}" + (f" of {size} bytes" if size else "")


def text_of(traces):
    """Ranks that do the same as the rank before are not told twice."""
    lines = []
    for rank, trace in enumerate(traces):
        first, *rest = lines_of_rank(rank, trace)
        same = rank > 0 and kinds_of(trace) == kinds_of(traces[rank - 1])
        lines += [first + (": the same exchanges" if same else ""), *([] if same else rest)]
    return "\n".join(lines)
