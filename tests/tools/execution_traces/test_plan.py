"""What is checked before a trace is played."""

import pytest
from conftest import compute, message, reduce
from gloo_bypass_tools.execution_traces import plan
from gloo_bypass_tools.execution_traces.trace import COMPUTE, RECEIVE, SEND, Node, Trace, TraceError


def planned(*ranks, **more):
    return plan.make([Trace(list(nodes)) for nodes in ranks], **more)


def refused(*ranks, **more):
    with pytest.raises(TraceError) as error:
        planned(*ranks, **more)
    return str(error.value)


def test_Order_IsByTimeThenId_AndPlacesFollowIt():
    found = planned([reduce(1, start_us=20), compute(9, start_us=10, waits_for=[7]), compute(7, start_us=10)])
    assert [action.name for action in found.actions[0]] == ["compute 7", "compute 9", "reduce 1"]
    assert found.actions[0][1].after == [0]


def test_Groups_AreTheRanksThatNameThem():
    found = planned(
        [reduce(1, group="a"), reduce(2)], [reduce(1, group="b"), reduce(2)], [reduce(1, group="a"), reduce(2)]
    )
    assert found.groups == [[0, 1, 2], [0, 2], [1]]
    assert found.actions[1][0].group == 2 and found.actions[2][1].group == 0


def test_Collectives_ThatDifferBetweenRanks_AreRefused():
    said = refused([reduce(1), reduce(2, 16)], [reduce(1), reduce(2, 24)])
    assert "collective 2 of all ranks is ALL_REDUCE of 24 bytes ('reduce 2') on rank 1" in said
    assert "ALL_REDUCE of 16 bytes" in said
    assert "rank 1 has 1 collectives of all ranks, rank 0 has 2" in refused([reduce(1), reduce(2)], [reduce(1)])
    assert "rank 1 has 0 collectives" in refused([reduce(1)], [compute(1)])


def test_Messages_NeedTheirOtherEnd():
    planned([message(SEND, 1, 1, 9)], [message(RECEIVE, 1, 0, 9)])
    assert "which receives 0" in refused([message(SEND, 1, 1)], [compute(1)])
    assert "sends 0 messages" in refused([message(RECEIVE, 1, 1)], [compute(1)])
    assert "9 bytes" in refused([message(SEND, 1, 1, 9)], [message(RECEIVE, 1, 0, 8)])
    assert "with tag 3" in refused([message(SEND, 1, 1, tag=3)], [message(RECEIVE, 1, 0)])
    assert "rank 5 of 2" in refused([message(SEND, 1, 5)], [compute(1)])
    assert "rank 0 of 2" in refused([message(SEND, 1, 0)], [compute(1)])


@pytest.mark.parametrize(
    "ranks, name",
    [
        (([compute(1, waits_for=[2]), compute(2, waits_for=[1])],), "compute 1"),
        # Each receives before it sends.
        (
            (
                [message(RECEIVE, 1, 1), message(SEND, 2, 1, waits_for=[1])],
                [message(RECEIVE, 1, 0), message(SEND, 2, 0, waits_for=[1])],
            ),
            "send 2",
        ),
        # Two groups, begun in opposite orders, each after the end of the other.
        (
            (
                [reduce(1, group="a"), reduce(2, group="b", waits_for=[1])],
                [reduce(2, group="b"), reduce(3, group="a", waits_for=[2], start_us=1)],
            ),
            "reduce 2",
        ),
        # The second one of a group cannot begin before the first one has.
        (([reduce(1, waits_for=[2]), reduce(2, start_us=1)],), "reduce 1"),
    ],
)
def test_Ranks_ThatWouldWaitForEver_AreRefused(ranks, name):
    said = refused(*ranks)
    assert f"rank 0: '{name}' could never begin" in said


def test_TwoGroups_BegunInOppositeOrdersButNotAwaited_AreFine():
    planned([reduce(1, group="a"), reduce(2, group="b")], [reduce(1, group="b"), reduce(2, group="a")])


def test_BothSendFirst_IsFine():
    """A message is sent from a buffer, as simulators take it."""
    ranks = [[message(SEND, 1, other), message(RECEIVE, 2, other, waits_for=[1])] for other in (1, 0)]
    planned(*ranks)


def test_Operations_NeedARate():
    gemm = Node(1, "gemm", COMPUTE, operations=5 * 10**9)
    assert "give --flops" in refused([gemm])
    assert planned([gemm], flops=1e12).actions[0][0].duration_us == 5000
    assert "more than a day" in refused([gemm], flops=1.0)


def test_Repeated_OneRanksTrace_IsEveryRanks():
    one = [Trace([compute(1), reduce(2, waits_for=[1])])]
    assert plan.make(plan.repeated(one, 5)).groups == [[0, 1, 2, 3, 4]]
    assert plan.repeated(one, None) == one
    with pytest.raises(TraceError, match="of 2 ranks, not of 3"):
        plan.repeated(one * 2, 3)
    with pytest.raises(TraceError, match="only with collectives"):
        plan.repeated([Trace([message(SEND, 1, 1)])], 2)


def test_Steps_AreThoseOfTheSlowestRank():
    found = plan.make([Trace([compute(1)], {1: 10, 2: 30}), Trace([compute(1)], {1: 20, 2: 25})])
    assert found.steps_us == {1: 20, 2: 30}
