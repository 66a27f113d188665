"""Ranks that are killed or stopped: what the others see, and when."""

import re
import signal
import time

import pytest
from ranks import Ranks

LONG = 60  # a timeout that no test waits for


def wait_for_failures(ranks, failing):
    """Until each of these ranks has said how it failed, and has ended."""
    for rank in failing:
        ranks.wait_for_line(rank, "error=")
    ranks.write_file("leave")
    assert ranks.wait(failing) == [3] * len(failing), "".join(ranks.output(rank) for rank in failing)


def test_Kill_OneOfThree_OthersNameItLongBeforeTheTimeout():
    with Ranks("until_failure.py", 3, arguments=[LONG]) as ranks:
        for rank in range(3):
            ranks.wait_for_line(rank, "going=yes")
        killed_at = time.time()
        ranks.signal(2, signal.SIGKILL)
        wait_for_failures(ranks, [0, 1])
        for rank in (0, 1):
            assert float(ranks.value(rank, "failed_at")) - killed_at < LONG / 3
            assert re.search(r"rank 2\b", ranks.value(rank, "error")), ranks.value(rank, "error")


@pytest.mark.parametrize("transport", ["DPDK", "UDP"])
def test_Kill_AForkedChildLivesOn_IsNoticedAtOnce(transport):
    with Ranks("until_failure.py", 2, transport=transport, arguments=[LONG, "child"]) as ranks:
        expect_noticed_at_once(ranks)


def expect_noticed_at_once(ranks):
    for rank in range(2):
        ranks.wait_for_line(rank, "going=yes")
    killed_at = time.time()
    ranks.signal(1, signal.SIGKILL)
    wait_for_failures(ranks, [0])
    assert float(ranks.value(0, "failed_at")) - killed_at < LONG / 3, ranks.output(0)


def test_Stop_LongerThanTheTimeout_TimeoutErrorAtTheConfiguredTime():
    timeout = 6
    with Ranks("until_failure.py", 2, arguments=[timeout]) as ranks:
        for rank in range(2):
            ranks.wait_for_line(rank, "going=yes")
        ranks.signal(1, signal.SIGSTOP)
        wait_for_failures(ranks, [0])
        seconds = float(ranks.value(0, "seconds"))
        assert timeout * 0.9 <= seconds < timeout + 10, ranks.output(0)
        assert "imed out" in ranks.value(0, "error"), ranks.value(0, "error")


def test_Stop_RankResumesInTime_NothingIsLost():
    with Ranks("until_failure.py", 2, arguments=[LONG]) as ranks:
        for rank in range(2):
            ranks.wait_for_line(rank, "going=yes")
        ranks.signal(1, signal.SIGSTOP)
        time.sleep(2)  # the length of the stop is the test, not a wait for something
        ranks.signal(1, signal.SIGCONT)
        ranks.write_file("end")
        ranks.succeed()
