"""Ranks that end while others continue: awaited data arrives, and no other rank is affected."""

import re

import pytest
from ranks import Ranks

TRANSPORTS = ["TCP", "DPDK", "UDP"]  # what Gloo's TCP does is the measure
STATUS = {"kill": -9}


# A size that neither memory nor sockets hold, and a small one.
@pytest.mark.parametrize(
    "count, length",
    [(200, 16_384), *(pytest.param(*sizes, marks=pytest.mark.transport_alone) for sizes in ((1, 1), (20, 200_000)))],
)
@pytest.mark.parametrize("how", ["_exit", "destroy", "exec", "kill", "exit"])
@pytest.mark.parametrize("transport", TRANSPORTS[1:])
def test_LastSend_SenderEnds_WhatItWaitedForArrives(transport, how, count, length):
    with Ranks("last_send.py", 2, transport=transport, arguments=[how, count, length]) as ranks:
        ranks.wait_for_line(1, "busy=yes")
        if length > 100_000:
            ranks.write_file("ended")  # a long message is complete once it is received
        assert ranks.wait([0]) == [STATUS.get(how, 0)], ranks.output(0)
        ranks.write_file("ended")
        assert ranks.wait([1]) == [0], ranks.output(1)
        assert ranks.value(1, "received") == "all"
        assert re.search(r"rank 0\b", ranks.value(1, "error"))


@pytest.mark.parametrize("how", ["_exit", "exec", "kill", "exit"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_OneRankEnds_TheTwoOthersGoOn(transport, how):
    with Ranks("early_leaver.py", 3, transport=transport, arguments=[how]) as ranks:
        assert ranks.wait([2]) == [STATUS.get(how, 0)], ranks.output(2)
        ranks.write_file("ended")
        assert ranks.wait([0, 1]) == [0, 0], ranks.output(0) + ranks.output(1)
        if transport != "TCP":
            for rank in (0, 1):
                assert re.search(r"rank 2\b", ranks.value(rank, "error")), ranks.output(rank)


@pytest.mark.parametrize("how", ["_exit", "kill"])
@pytest.mark.parametrize("transport", TRANSPORTS[1:])
def test_OneRankEndsInACollective_TheOthersFailInItAndGoOnWithEachOther(transport, how):
    with Ranks("failed_collective.py", 3, transport=transport, arguments=[how]) as ranks:
        assert ranks.wait([0, 1, 2]) == [0, 0, STATUS.get(how, 0)], ranks.output(0) + ranks.output(1)
        for rank in (0, 1):
            assert re.search(r"rank 2\b", ranks.value(rank, "error")), ranks.output(rank)
            assert ranks.value(rank, "went_on") == "yes"


# Some ranks finish before the others, which still exchange messages.
@pytest.mark.parametrize("last", ["barrier", "broadcast", "all_gather", "all_reduce"])
@pytest.mark.parametrize("transport", TRANSPORTS[1:])
def test_LastCollective_EveryRankEndsAtOnce_AllComplete(transport, last):
    with Ranks("collective_and_end.py", 4, transport=transport, arguments=["_exit", last]) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "done") for rank in range(4)] == ["yes"] * 4
