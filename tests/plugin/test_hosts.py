"""Unmodified PyTorch programs on several hosts with several ranks each: memory within a host, the network between."""
import os
import re
import signal
import time

import pytest
from hosts import Hosts, why_not
from ranks import Ranks
from test_failures import LONG, wait_for_failures

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

# Gloo's own transport takes the host name's address, which is none of the namespace's.
TCP = {"GLOO_SOCKET_IFNAME": "host0"}
NETDEV = {"GLOO_BYPASS_NETWORK": "netdev", "GLOO_SOCKET_IFNAME": "host0"}


@pytest.mark.parametrize("count, per_host", [
    (2, 2),
    pytest.param(3, 3, marks=pytest.mark.transport_alone),
    pytest.param(2, 4, marks=pytest.mark.transport_alone)])
def test_Training_TcpAndOurs_EndWithTheSameParameters(count, per_host):
    digests = {}
    with Hosts(count) as hosts:
        for name, transport, environment in [("TCP", "TCP", TCP), ("auto", "DPDK", None), ("UDP", "UDP", None),
                                             ("auto, netdev", "DPDK", NETDEV)]:
            if name not in ("TCP", "auto") and (count, per_host) != (2, 2):
                continue
            with hosts.ranks("train.py", per_host, environment, transport=transport) as ranks:
                ranks.succeed()
                for rank in range(count * per_host):
                    digests[name, rank] = ranks.value(rank, "parameters")
    assert len(set(digests.values())) == 1, digests


def test_Collectives_TwoHostsOfTwo_ResultsAreRight():
    with Hosts(2) as hosts, hosts.ranks("collectives.py", 2) as ranks:
        ranks.succeed()


@pytest.mark.transport_alone
@pytest.mark.parametrize("environment", [None, NETDEV])
def test_RanksOfOneHost_SendNothingOverTheNetwork(environment):
    elements = 1_000_000
    sent = {}
    with Hosts(2) as hosts:
        for ways in ("pairs", "ring"):
            before = [hosts.sent_bytes(host) for host in range(2)]
            arguments = [elements, "pairs"] if ways == "pairs" else [elements]
            with hosts.ranks("neighbours.py", 2, environment, arguments=arguments) as ranks:
                ranks.succeed()
            sent[ways] = [hosts.sent_bytes(host) - before[host] for host in range(2)]
    payload = 8 * 4 * elements
    assert max(sent["pairs"]) < payload / 100, sent
    for bytes_of_host in sent["ring"]:  # of two ranks one sends to the other host
        assert payload < bytes_of_host < 1.2 * payload, sent


@pytest.mark.transport_alone
@pytest.mark.parametrize("killed", [1, 3])
def test_Kill_OneOfTwoHostsOfTwo_OthersNameItLongBeforeTheTimeout(killed):
    with Hosts(2) as hosts, hosts.ranks("until_failure.py", 2, arguments=[LONG, 10**9]) as ranks:
        for rank in range(4):
            ranks.wait_for_line(rank, "going=yes")
        killed_at = time.time()
        ranks.signal(killed, signal.SIGKILL)
        others = [rank for rank in range(4) if rank != killed]
        wait_for_failures(ranks, others)
        errors = [ranks.value(rank, "error") for rank in others]
        for rank in others:
            assert float(ranks.value(rank, "failed_at")) - killed_at < LONG / 3
        # Who exchanges nothing with it learns of its neighbour's end, which has left the group.
        assert any(re.search(rf"rank {killed}\b", error) for error in errors), errors


@pytest.mark.transport_alone
def test_OneMemifDirectoryForAllHosts_SharesMemoryOnly():
    """Hosts that are namespaces of one machine and one directory: as containers that mount one volume."""
    directory = f"/tmp/gbh{os.getpid()}-all"
    with Hosts(2) as hosts:
        before = hosts.sent_bytes(0)
        with hosts.ranks("neighbours.py", 1, arguments=[100_000]) as ranks:
            ranks.succeed()
        between = hosts.sent_bytes(0) - before
        prefixes = [["ip", "netns", "exec", hosts.name(host)] for host in range(2)]
        before = hosts.sent_bytes(0)
        with Ranks("neighbours.py", 2, prefixes=prefixes, arguments=[100_000],
                   environment={"MASTER_ADDR": hosts.address(0), "GLOO_BYPASS_MEMIF_DIRECTORY": directory}) as ranks:
            ranks.succeed()
        within = hosts.sent_bytes(0) - before
    os.rmdir(directory)
    assert within < between / 10, (within, between)
