"""What each rank does to play traces: its nodes in the order of their times, bound to groups of ranks, checked against
what the other ranks do, so that what could never end is refused before anything begins.

Pure.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass

from gloo_bypass_tools.execution_traces import trace
from gloo_bypass_tools.execution_traces.trace import COLLECTIVE, COMPUTE, RECEIVE, SEND, TraceError, quoted


@dataclass
class Action:
    """`after`: places of actions in the rank's list that have ended before this one begins; `follows`: the place of the
    one that must have begun, since a group's collectives are the same ones in the same order on all its ranks.
    `group`: its place in Plan.groups."""

    name: str
    kind: str
    after: list
    follows: int | None = None
    duration_us: int = 0
    on_cpu: bool = False
    stream: int = 0
    operation: str = ""
    bytes: int = 0
    group: int = 0
    peer: int = 0
    tag: int = 0
    step: int | None = None


@dataclass
class Plan:
    """`groups`: lists of ranks; the first is all of them. `actions`: a list for each rank. `steps_us`: {step: how long
    the slowest rank took in the run that was traced}."""

    groups: list
    actions: list
    steps_us: dict

    @property
    def ranks(self):
        return len(self.actions)

    def of_rank(self, rank):
        return {"groups": self.groups, "actions": [asdict(action) for action in self.actions[rank]]}


def repeated(traces, ranks):
    """The trace of one rank as that of `ranks` ranks which do the same."""
    if len(traces) > 1 and ranks not in (None, len(traces)):
        raise TraceError(f"the trace is of {len(traces)} ranks, not of {ranks}: --ranks is for a trace of one rank")
    if len(traces) > 1 or ranks in (None, 1):
        return traces
    for node in traces[0].nodes:
        if node.kind in (SEND, RECEIVE):
            raise TraceError(
                f"node {node.id} sends to or receives from rank {node.peer}: --ranks takes a trace of one rank for "
                "every rank's, and can do so only with collectives"
            )
    return traces * ranks


def duration_of(node, flops):
    if node.kind != COMPUTE or node.duration_us or not node.operations:
        return node.duration_us
    if not flops:
        raise TraceError(
            f"node {node.id} ({quoted(node.name)}) says how many operations it takes, not how long: give --flops, the "
            "operations a second of the machine that is to be imitated"
        )
    duration_us = round(1e6 * node.operations / flops)
    if duration_us > trace.MOST_US:
        raise TraceError(f"node {node.id} ({quoted(node.name)}) would take more than a day: give a higher --flops")
    return duration_us


def channel_of(node):
    """Within one, the order is the same on both sides."""
    return (COLLECTIVE, node.group) if node.kind == COLLECTIVE else (node.kind, node.peer, node.tag)


def actions_of(one, groups, flops):
    nodes = sorted(one.nodes, key=lambda node: (node.start_us, node.id))
    places = {node.id: place for place, node in enumerate(nodes)}
    latest, actions = {}, []
    for place, node in enumerate(nodes):
        action = Action(
            node.name,
            node.kind,
            sorted({places[other] for other in node.waits_for}),
            duration_us=duration_of(node, flops),
            **{name: getattr(node, name) for name in ("on_cpu", "stream", "operation", "bytes", "peer", "tag", "step")},
        )
        if node.kind in (COLLECTIVE, SEND, RECEIVE):
            channel = channel_of(node)
            action.follows, latest[channel] = latest.get(channel), place
        if node.kind == COLLECTIVE:
            action.group = groups[node.group]
        actions.append(action)
    return actions


def make(traces, flops=None):
    """The Plan of the ranks' traces, or a TraceError."""
    everyone, members = list(range(len(traces))), defaultdict(list)
    for rank, one in enumerate(traces):
        for name in {node.group for node in one.nodes if node.kind == COLLECTIVE}:
            members[name].append(rank)
    members[""] = everyone
    names = ["", *sorted(name for name in members if name)]
    groups = {name: place for place, name in enumerate(names)}
    plan = Plan([members[name] for name in names], [actions_of(one, groups, flops) for one in traces], {})
    collectives, messages = [collectives_of(plan, rank) for rank in everyone], messages_of(plan)
    check_matches(plan, names, collectives, messages)
    check_end(plan, meetings_of(plan, collectives, messages))
    for one in traces:
        for step, duration_us in one.steps_us.items():
            plan.steps_us[step] = max(plan.steps_us.get(step, 0), duration_us)
    return plan


# --- what ranks do together ------------------------------------------------------------------------------------------


def collectives_of(plan, rank):
    """{group: the places of its collectives in the rank's list, in order}"""
    found = defaultdict(list)
    for place, action in enumerate(plan.actions[rank]):
        if action.kind == COLLECTIVE:
            found[action.group].append(place)
    return found


def in_words(action):
    return f"{action.operation} of {action.bytes} bytes ({quoted(action.name)})"


def check_group(plan, collectives, group, name):
    first, *others = plan.groups[group]
    expected = collectives[first][group]
    for rank in others:
        found = collectives[rank][group]
        where = f"in group {quoted(name)}" if name else "of all ranks"
        for number, (mine, theirs) in enumerate(zip(found, expected)):
            one, other = plan.actions[rank][mine], plan.actions[first][theirs]
            if (one.operation, one.bytes) != (other.operation, other.bytes):
                raise TraceError(
                    f"collective {number + 1} {where} is {in_words(one)} on rank {rank}, {in_words(other)} on rank "
                    f"{first}: these are no traces of one run"
                )
        if len(found) != len(expected):
            raise TraceError(f"rank {rank} has {len(found)} collectives {where}, rank {first} has {len(expected)}")


def messages_of(plan):
    """{(from, to, tag): (places of the sender's actions, places of the receiver's)}"""
    found = defaultdict(lambda: ([], []))
    for rank, actions in enumerate(plan.actions):
        for place, action in enumerate(actions):
            if action.kind in (SEND, RECEIVE) and not (action.peer < plan.ranks and action.peer != rank):
                raise TraceError(
                    f"rank {rank}: {quoted(action.name)} goes to or comes from rank {action.peer} of {plan.ranks}"
                )
            if action.kind == SEND:
                found[rank, action.peer, action.tag][0].append(place)
            elif action.kind == RECEIVE:
                found[action.peer, rank, action.tag][1].append(place)
    return found


def check_matches(plan, names, collectives, messages):
    """`collectives`: collectives_of() each rank; `messages`: messages_of()."""
    for group, name in enumerate(names):
        if len(plan.groups[group]) > 1:
            check_group(plan, collectives, group, name)
    for (source, target, tag), (sent, received) in messages.items():
        sizes = [plan.actions[source][place].bytes for place in sent]
        wanted = [plan.actions[target][place].bytes for place in received]
        if sizes != wanted:
            raise TraceError(
                f"rank {source} sends {len(sizes)} messages ({sum(sizes)} bytes) with tag {tag} to rank {target}, "
                f"which receives {len(wanted)} ({sum(wanted)} bytes)"
            )


@dataclass
class Meeting:
    """What ends once all of its parts have begun. Parts are (rank, place)."""

    missing: int
    ends: list


def meetings_of(plan, collectives, messages):
    """{part: its Meeting}. A collective's parts end together; a message ends where it is received: it is sent from a
    buffer."""
    found = {}
    for group, ranks in enumerate(plan.groups):
        orders = [collectives[rank][group] for rank in ranks]
        for places in zip(*orders):
            parts = list(zip(ranks, places))
            found.update(dict.fromkeys(parts, Meeting(len(parts), parts)))
    for (source, target, _), (sent, received) in messages.items():
        for mine, theirs in zip(sent, received):
            parts = [(source, mine), (target, theirs)]
            found.update(dict.fromkeys(parts, Meeting(2, parts[1:])))
    return found


def check_end(plan, meetings):
    """Plays all ranks with no time passing: a TraceError where some action can never begin."""
    missing, dependents = {}, defaultdict(list)
    for rank, actions in enumerate(plan.actions):
        for place, action in enumerate(actions):
            waits = [("ended", other) for other in action.after]
            if action.follows is not None:
                waits.append(("begun", action.follows))
            missing[rank, place] = len(waits)
            for what, other in waits:
                dependents[what, rank, other].append((rank, place))
    ready, begun = [part for part, count in missing.items() if count == 0], 0

    def settle(what, rank, place):
        for part in dependents[what, rank, place]:
            missing[part] -= 1
            if missing[part] == 0:
                ready.append(part)

    while ready:
        rank, place = part = ready.pop()
        begun += 1
        settle("begun", *part)
        ends, meeting = [], meetings.get(part)
        if meeting is None or plan.actions[rank][place].kind == SEND:
            ends.append(part)
        if meeting is not None:
            meeting.missing -= 1
            ends += meeting.ends if meeting.missing == 0 else []
        for each in ends:
            settle("ended", *each)
    if begun < len(missing):
        rank, place = min(part for part, count in missing.items() if count > 0)
        name = quoted(plan.actions[rank][place].name)
        raise TraceError(f"rank {rank}: {name} could never begin: what it waits for waits for it")
