"""Unmodified PyTorch programs on several hosts with several ranks each: memory within a host, the network between."""

import json
import os
import re
import signal
import time

import pytest
from hosts import INTERFACE, Hosts, why_not
from ranks import Ranks
from test_failures import LONG, wait_for_failures

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

# Gloo's own transport takes the host name's address, which the namespace does not have.
TCP = {"GLOO_SOCKET_IFNAME": "host0"}
NETDEV = {"GLOO_BYPASS_NETWORK": "netdev", "GLOO_SOCKET_IFNAME": "host0"}


@pytest.mark.parametrize(
    "count, per_host",
    [
        (2, 2),
        pytest.param(3, 3, marks=pytest.mark.transport_alone),
        pytest.param(2, 4, marks=pytest.mark.transport_alone),
    ],
)
def test_Training_TcpAndOurs_EndWithTheSameParameters(count, per_host):
    digests = {}
    with Hosts(count) as hosts:
        for name, transport, environment in [
            ("TCP", "TCP", TCP),
            ("auto", "DPDK", None),
            ("UDP", "UDP", None),
            ("auto, netdev", "DPDK", NETDEV),
        ]:
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


@pytest.mark.parametrize("repairs, counter", [("off", "retransmits"), ("10", "frames_recovered")])
def test_Loss_SumsAreRight(tmp_path, repairs, counter):
    """Recovery is the arithmetic of a library of its own, which a wheel brings along."""
    settings = {"GLOO_BYPASS_FEC": repairs, "GLOO_BYPASS_STATS": f"{tmp_path}/%r"}
    with Hosts(2) as hosts:
        for host in range(2):
            hosts.drop_arriving_udp(host, INTERFACE, share=0.03)
        with hosts.ranks("large_sums.py", 1, settings, transport="UDP", arguments=[2]) as ranks:
            ranks.succeed()
    for rank in range(2):
        assert json.loads((tmp_path / str(rank)).read_text())[counter] > 0


NARROW_UDP, NARROW_NETDEV = ("UDP", {}), ("DPDK", NETDEV)


@pytest.mark.transport_alone
@pytest.mark.parametrize(
    "way, mtu",
    [
        pytest.param(NARROW_UDP, 1220, id="UDP, 1220"),
        pytest.param(NARROW_UDP, 576, id="UDP, 576"),
        pytest.param(("DPDK", {}), 1000, id="auto, 1000"),
        pytest.param(NARROW_NETDEV, 1000, id="netdev, 1000"),
        pytest.param(NARROW_NETDEV, 576, id="netdev, 576"),
    ],
)
def test_NarrowNetwork_Works(way, mtu):
    """mqvpn#123, quic-go#5021: a tunnel that carries less than 1,228 bytes, and TCP."""
    transport, settings = way
    with Hosts(2, mtu=mtu) as hosts:
        with hosts.ranks("collectives.py", 1, settings, transport=transport) as ranks:
            ranks.succeed()


@pytest.mark.transport_alone
def test_NarrowNetworkOverIpv6_Works():
    with Hosts(2, mtu=1280) as hosts:
        with hosts.ranks("collectives.py", 1, {"MASTER_ADDR": hosts.address6(0)}, transport="UDP") as ranks:
            ranks.succeed()


@pytest.mark.transport_alone
def test_NarrowOnTheWayOnly_IsFoundFromTheBeginning(tmp_path):
    """No ICMP tells of it: TCP would hang, so the ranks meet at a file."""
    with Hosts(2) as hosts:
        hosts.send_single_frames()
        hosts.set_trunk("mtu", "900")
        with hosts.ranks("meet.py", 1, transport="UDP", arguments=[f"file://{tmp_path}/store"]) as ranks:
            ranks.succeed()


@pytest.mark.transport_alone
@pytest.mark.parametrize(
    "way, part",
    [
        pytest.param(
            NARROW_UDP,
            "carries packets of 570 bytes, fewer than the 576 that every network carries: raise the",
            id="UDP",
        ),
        pytest.param(NARROW_NETDEV, "an MTU of 570 is less than 576: raise the interface's", id="netdev"),
    ],
)
def test_NetworkBelowWhatIpv4Promises_OneLineSaysWhatToRaise(way, part):
    transport, settings = way
    with Hosts(2, mtu=570) as hosts:
        with hosts.ranks("add.py", 1, settings, transport=transport) as ranks:
            assert ranks.wait() == [1, 1]
            for rank in range(2):
                assert part in ranks.output(rank).splitlines()[-1], ranks.output(rank)


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
        assert payload < bytes_of_host < 1.8 * payload, sent  # some of it perhaps twice; of two that send, 2


@pytest.mark.transport_alone
@pytest.mark.parametrize("killed", [1, 3])
def test_Kill_OneOfTwoHostsOfTwo_OthersNameItLongBeforeTheTimeout(killed):
    with Hosts(2) as hosts, hosts.ranks("until_failure.py", 2, arguments=[LONG]) as ranks:
        for rank in range(4):
            ranks.wait_for_line(rank, "going=yes")
        killed_at = time.time()
        ranks.signal(killed, signal.SIGKILL)
        others = [rank for rank in range(4) if rank != killed]
        wait_for_failures(ranks, others)
        errors = [ranks.value(rank, "error") for rank in others]
        for rank in others:
            assert float(ranks.value(rank, "failed_at")) - killed_at < LONG / 3
        # Ranks that exchange nothing with it learn of their neighbour's end, since the neighbour has left the group.
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
        with Ranks(
            "neighbours.py",
            2,
            prefixes=prefixes,
            arguments=[100_000],
            environment={"MASTER_ADDR": hosts.address(0), "GLOO_BYPASS_MEMIF_DIRECTORY": directory},
        ) as ranks:
            ranks.succeed()
        within = hosts.sent_bytes(0) - before
    os.rmdir(directory)
    assert within < between / 10, (within, between)
