"""Unmodified PyTorch programs over DPDK: the same results as over TCP."""

import json
import os

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


@pytest.mark.parametrize("asked", [True, False])
def test_LazyInit_OfThreeRanksTwoTalk_ThirdConnectsOnlyWhenNotLazy(asked):
    """Lazy if PyTorch and Gloo support it, as the build found out; else the request changes nothing."""
    lazy = asked and os.environ["PLUGIN_LAZY_INIT"] == "yes"
    environment = {"TORCH_GLOO_LAZY_INIT": "1" if asked else "0", "GLOO_BYPASS_STATS": "./stats-%r.json"}
    with Ranks("pair.py", 3, environment=environment) as ranks:
        ranks.succeed()
        connected = []
        for rank in range(3):
            with open(os.path.join(ranks.folder.name, f"stats-{rank}.json")) as file:
                connected.append(json.load(file)["latencies"]["connect"]["count"])
    assert connected[0] > 0 and connected[1] > 0, connected
    assert (connected[2] == 0) == lazy, connected
