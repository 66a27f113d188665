"""Unmodified PyTorch programs over DPDK: the same results as over TCP."""
import pytest
from ranks import Ranks


@pytest.mark.parametrize("size", [2, 3])
def test_Training_TcpAndDpdk_EndWithTheSameParameters(size):
    digests = set()
    for transport in ("TCP", "DPDK"):
        with Ranks("train.py", size, transport=transport) as ranks:
            ranks.succeed()
            digests |= {ranks.value(rank, "parameters") for rank in range(size)}
    assert len(digests) == 1


@pytest.mark.parametrize("size", [2, 4])
def test_Collectives_AllKinds_ResultsAreRight(size):
    with Ranks("collectives.py", size) as ranks:
        ranks.succeed()


@pytest.mark.parametrize("case, printed", [("before", "child"), ("beside", "parent_after")])
def test_Fork_AroundFirstDevice_Works(case, printed):
    with Ranks("fork.py", 2, arguments=[case]) as ranks:
        ranks.succeed()
        assert ranks.value(0, printed) == "right"


def test_Fork_DeviceInChildOfStartedParent_ClearError():
    with Ranks("fork.py", 2, arguments=["after"]) as ranks:
        ranks.succeed()
        assert "fork" in ranks.value(0, "child_error")
