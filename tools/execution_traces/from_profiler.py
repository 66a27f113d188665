"""The files that PyTorch's profiler exports of ranks on a CPU, one a rank (torch.profiler, export_chrome_trace), as
execution traces. Pure.

The thread that issues collectives is followed. It computes where its operators run, and between them (Python does).
It waits for a collective that was asked for synchronously; for one that ends while no operator runs; and for all that
it began where an optimiser's step or a profiler's step ends, since DistributedDataParallel waits for its buckets
there. Collectives are matched with what the process group's threads did by their order.
"""

from gloo_bypass_tools.execution_traces.timeline import Timeline
from gloo_bypass_tools.execution_traces.trace import TraceError, quoted

STEP, OPTIMIZER = "ProfilerStep#", "Optimizer.step"
# The operator that begins it: (Chakra's name, the process group's span, the place of what this rank puts in)
OPERATORS = {
    "c10d::allreduce_": ("ALL_REDUCE", "gloo:all_reduce", 0),
    "c10d::broadcast_": ("BROADCAST", "gloo:broadcast", 0),
    "c10d::reduce_": ("REDUCE", "gloo:reduce", 0),
    "c10d::allgather_": ("ALL_GATHER", "gloo:all_gather", 1),
    "c10d::_allgather_base_": ("ALL_GATHER", "gloo:_all_gather_base", 1),
    "c10d::alltoall_base_": ("ALL_TO_ALL", "gloo:all_to_all", 1),
    "c10d::_reduce_scatter_base_": ("REDUCE_SCATTER", "gloo:_reduce_scatter_base", 1),
    "c10d::barrier": ("BARRIER", "gloo:barrier", None),
}
# A shorter wait for what ends while no operator runs may be none: Python needs as long between two operators.
LEAST_WAIT_US = 100
ELEMENT_BYTES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "long": 8}
ELEMENT_BYTES |= {"unsigned char": 1, "signed char": 1, "bool": 1, "short": 2}


def is_one(document):
    return isinstance(document, dict) and "traceEvents" in document and "distributedInfo" in document


def end_of(event):
    return event["ts"] + event["dur"]


class Call:
    """An operator that begins a collective, and the span of the process group's thread that ran it, if it has one."""

    def __init__(self, event, span):
        self.event, self.span = event, span
        self.operation, _, self.place = OPERATORS[event["name"]]
        inputs = event["args"].get("Concrete Inputs", [])
        self.is_synchronous = "False" in inputs[-3:]

    @property
    def end_us(self):
        return end_of(self.span or self.event)


def elements_of(dims):
    """Of a tensor's sizes, or of several tensors'."""
    if dims and isinstance(dims[0], list):
        return sum(map(elements_of, dims))
    count = 1
    for size in dims:
        count *= size
    return count


def bytes_of(path, call):
    if call.place is None:
        return 0
    dims = call.event["args"].get("Input Dims", [])
    if len(dims) <= call.place:
        raise TraceError(
            f"{path}: {call.event['name']} does not say how long its vector is: profile with record_shapes=True"
        )
    types = call.span["args"].get("Input type", []) if call.span else []
    types = [one for one in types or call.event["args"].get("Input type", []) if one in ELEMENT_BYTES]
    if not types:
        raise TraceError(f"{path}: {call.event['name']}: of which type its elements are is not known")
    return elements_of(dims[call.place]) * ELEMENT_BYTES[types[0]]


def calls_of(path, events):
    """The calls of one thread in order, with their spans: the process group takes up what has one name in order."""
    for event in events:
        if event["name"].startswith("c10d::") and event["name"] not in OPERATORS:
            raise TraceError(f"{path}: {quoted(event['name'])}: understood are {', '.join(OPERATORS)}")
    begun = sorted((event for event in events if event["name"] in OPERATORS), key=lambda event: event["ts"])
    if not begun:
        raise TraceError(f"{path}: it has no collective of PyTorch's distributed package on a CPU (c10d::...)")
    if len({event["tid"] for event in begun}) > 1:
        raise TraceError(f"{path}: several threads begin collectives; one is understood")
    spans = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["name"].startswith("gloo:"):
            spans.setdefault(event["name"], []).append(event)
    calls = []
    for event in begun:
        waiting = spans.get(OPERATORS[event["name"]][1], [])
        while waiting and waiting[0]["ts"] < event["ts"]:  # begun before the profiler was
            waiting.pop(0)
        calls.append(Call(event, waiting.pop(0) if waiting else None))
    return calls


def merged(events):
    """The intervals in which some operator ran, as (begin, end)."""
    found = []
    for event in sorted(events, key=lambda event: event["ts"]):
        if found and event["ts"] <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_of(event))
        else:
            found.append((event["ts"], end_of(event)))
    return found


# At one moment, in this order.
ENDS_STEP, LEAVES, NEEDS_ALL, BEGINS_STEP, ENTERS, IDLES, CALLS = range(7)


class Follower:
    """Follows the thread through its moments, and notes down in a timeline what it does."""

    def __init__(self, path, timeline):
        self.path, self.timeline = path, timeline
        self.current = ["computing"]
        self.open = []  # (id, call) of collectives that the thread has not waited for

    def enter(self, event):
        self.current.append(event["name"])

    def leave(self, event):
        if event["name"] in self.current:
            self.current.remove(event["name"])

    def begin_step(self, event):
        self.timeline.begin_step(int(event["name"].removeprefix(STEP)), event["dur"])

    def end_step(self, event):
        self.wait_for_all(event)
        self.timeline.end_step()

    def wait_for_all(self, event):
        """They had ended by then, but for what the next step still waits for."""
        self.timeline.wait([node for node, _ in self.open], self.timeline.cursor_us)
        self.open = []

    def call(self, call):
        size = bytes_of(self.path, call)
        node = self.timeline.collective(call.operation, size, call.event["name"])
        if call.is_synchronous:
            self.timeline.compute(end_of(call.event), call.event["name"])
            self.timeline.wait([node], call.end_us)
        else:
            self.open.append((node, call))

    def idle(self, gap):
        """No operator runs from gap[0] to gap[1]."""
        ended = [(node, call) for node, call in self.open if gap[0] + LEAST_WAIT_US <= call.end_us <= gap[1]]
        if ended:
            self.timeline.wait([node for node, _ in ended], max(call.end_us for _, call in ended))
            self.open = [one for one in self.open if one not in ended]


def convert_rank(path, document):
    events = [event for event in document["traceEvents"] if event.get("ph") == "X" and "dur" in event]
    if any("ncclDevKernel" in event["name"] or event.get("cat") == "kernel" for event in events):
        raise TraceError(f"{path}: a profile of a GPU: Chakra's own converter (chakra_converter PyTorch) reads these")
    calls = calls_of(path, events)
    thread = calls[0].event["tid"]
    own = [event for event in events if event["tid"] == thread and event["name"] != "PyTorch Profiler (0)"]
    operators = [event for event in own if event.get("cat") == "cpu_op"]
    steps = [event for event in own if event["name"].startswith(STEP)]
    timeline = Timeline(min(event["ts"] for event in steps or operators))
    follower, moments = Follower(path, timeline), []
    for event in steps:
        moments += [
            (event["ts"], BEGINS_STEP, follower.begin_step, event),
            (end_of(event), ENDS_STEP, follower.end_step, event),
        ]
    for event in own:
        if event.get("cat") == "user_annotation" and event not in steps:
            moments += [(event["ts"], ENTERS, follower.enter, event), (end_of(event), LEAVES, follower.leave, event)]
            if event["name"].startswith(OPTIMIZER):
                moments.append((event["ts"], NEEDS_ALL, follower.wait_for_all, event))
    moments += [(call.event["ts"], CALLS, follower.call, call) for call in calls]
    busy = merged(operators)
    moments += [(end, IDLES, follower.idle, (end, begin)) for (_, end), (begin, _) in zip(busy, busy[1:])]
    for moment, _, act, subject in sorted(moments, key=lambda one: one[:2]):
        if moment >= timeline.begin_us:
            timeline.compute(moment, follower.current[-1])
            act(subject)
    return timeline.trace()


def convert(documents):
    """{path: document of a rank} to Traces in the ranks' order."""
    by_rank = {}
    for path, document in documents.items():
        about = document["distributedInfo"]
        by_rank[about["rank"]] = path, document
        if about.get("pg_count", 1) > 1:
            raise TraceError(
                f"{path}: it has {about['pg_count']} process groups, and does not say which of them a collective is of"
            )
        if about["world_size"] != len(documents):
            raise TraceError(
                f"{path}: one of {about['world_size']} ranks; give the files of all, {len(documents)} are given"
            )
    if sorted(by_rank) != list(range(len(documents))):
        raise TraceError(f"{', '.join(map(str, documents))}: these are not ranks 0 to {len(documents) - 1}")
    return [convert_rank(*by_rank[rank]) for rank in range(len(by_rank))]
