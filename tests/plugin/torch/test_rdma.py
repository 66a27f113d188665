"""Unmodified PyTorch programs over RDMA, where there is a device: on a machine with an adapter, or in the guest (suite
"guest")."""

import json
import os

import pytest
from ranks import Ranks

DEVICES = "/sys/class/infiniband"
pytestmark = [
    pytest.mark.rdma,
    pytest.mark.without_dpdk,
    pytest.mark.skipif(not (os.path.isdir(DEVICES) and os.listdir(DEVICES)), reason="this machine has no RDMA device"),
]


def test_Training_TcpAndRdma_EndWithTheSameParameters():
    digests = set()
    for transport in ("TCP", "RDMA"):
        with Ranks("train.py", 2, transport=transport, environment={"GLOO_BYPASS_STATS": "./stats-%r.json"}) as ranks:
            ranks.succeed()
            digests |= {ranks.value(rank, "parameters") for rank in range(2)}
            for rank in range(2) if transport == "RDMA" else ():
                with open(os.path.join(ranks.folder.name, f"stats-{rank}.json")) as file:
                    assert json.load(file)["bytes_sent"] > 4000
    assert len(digests) == 1


def test_Collectives_AllKinds_ResultsAreRight():
    with Ranks("collectives.py", 2, transport="RDMA") as ranks:
        ranks.succeed()
