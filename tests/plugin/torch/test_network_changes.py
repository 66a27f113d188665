"""Unmodified PyTorch programs on two hosts, with changes to the network in mid-run, over UDP and over netdev."""

import time

import pytest
from hosts import INTERFACE, Hosts, why_not
from test_failures import LONG, expect_noticed_at_once, wait_for_failures

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

UDP = ("UDP", None)
NETDEV = ("DPDK", {"GLOO_BYPASS_NETWORK": "netdev", "GLOO_SOCKET_IFNAME": INTERFACE})


def running(hosts, network, environment=None, child=False):
    transport, settings = network
    return hosts.ranks(
        "until_failure.py",
        1,
        {**(settings or {}), **(environment or {})},
        transport=transport,
        arguments=[LONG, *(["child"] if child else [])],
    )


def wait_until_going(ranks):
    for rank in range(2):
        ranks.wait_for_line(rank, "going=yes")


@pytest.mark.parametrize(
    "network, mtu, carried",
    [
        pytest.param(UDP, 9000, 1500, id="UDP"),
        pytest.param(NETDEV, 9000, 1500, id="netdev"),
        pytest.param(UDP, 1500, 1000, id="UDP, narrow"),
        pytest.param(NETDEV, 1500, 1000, id="netdev, narrow"),
        pytest.param(UDP, 9000, 576, id="UDP, as narrow as can be"),
    ],
)
def test_PathMtuShrinks_OnTheWayOnly_TheRunGoesOn(network, mtu, carried):
    with Hosts(2, mtu=mtu) as hosts, running(hosts, network) as ranks:
        hosts.send_single_frames()
        wait_until_going(ranks)
        hosts.set_trunk("mtu", str(carried))  # both hosts keep theirs, and no ICMP tells them
        ranks.write_file("end")
        ranks.succeed()


@pytest.mark.parametrize("mtu, then", [(9000, 1500), (1500, 800)])
def test_MtuOfTheInterfaceItselfShrinks_TheRunGoesOn(mtu, then):
    with Hosts(2, mtu=mtu) as hosts, running(hosts, UDP) as ranks:
        wait_until_going(ranks)
        hosts.set_link(0, "mtu", str(then))
        ranks.write_file("end")
        ranks.succeed()


def test_Kill_AForkedChildLivesOn_IsNoticedAtOnce():
    with Hosts(2) as hosts, running(hosts, NETDEV, child=True) as ranks:
        expect_noticed_at_once(ranks)


@pytest.mark.parametrize("network", [UDP, NETDEV], ids=["UDP", "netdev"])
def test_InterfaceDeleted_ErrorNamesItWithinSeconds(network):
    with Hosts(2) as hosts, running(hosts, network) as ranks:
        wait_until_going(ranks)
        deleted_at = time.time()
        hosts.delete_interface(1)
        wait_for_failures(ranks, [1])
        assert float(ranks.value(1, "failed_at")) - deleted_at < LONG / 3, ranks.output(1)
        assert f"interface '{INTERFACE}' was deleted" in ranks.value(1, "error"), ranks.value(1, "error")


@pytest.mark.parametrize("network", [UDP, NETDEV], ids=["UDP", "netdev"])
def test_CarrierLostForSomeSeconds_TheRunGoesOn(network):
    with Hosts(2) as hosts, running(hosts, network) as ranks:
        wait_until_going(ranks)
        hosts.set_switch_port(1, "down")
        time.sleep(5)  # the length of the outage is the test, not a wait for something
        hosts.set_switch_port(1, "up")
        ranks.write_file("end")
        ranks.succeed()


@pytest.mark.parametrize("network", [UDP, NETDEV], ids=["UDP", "netdev"])
def test_CarrierLostForGood_ErrorSaysSoAtThePeerTimeout(network):
    with Hosts(2) as hosts, running(hosts, network, {"GLOO_BYPASS_PEER_TIMEOUT_MS": "8000"}) as ranks:
        wait_until_going(ranks)
        hosts.set_switch_port(1, "down")
        wait_for_failures(ranks, [0, 1])
        assert f"interface '{INTERFACE}' has no carrier" in ranks.value(1, "error"), ranks.value(1, "error")
