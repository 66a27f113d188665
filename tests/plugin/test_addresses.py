"""Unmodified PyTorch programs on hosts with two interfaces, of which the first leads to no other host: which addresses
the ranks take."""
import pytest
from hosts import APART_PREFIX, INTERFACE, Hosts, run, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

UDP = ("UDP", {})
AUTO = ("DPDK", {})
AUTO_NETDEV = ("DPDK", {"GLOO_BYPASS_NETWORK": "netdev"})
NETDEV = ("DPDK", {"GLOO_BYPASS_LINK": "netdev"})
DEBIANS_OWN_NAME = "127.0.1.1"


def train(hosts, per_host, way, master, **environment):
    transport, settings = way
    variables = {**settings, **environment, **({"MASTER_ADDR": master} if master else {})}
    with hosts.ranks("neighbours.py", per_host, variables, transport=transport, arguments=[1000]) as ranks:
        ranks.succeed()


@pytest.mark.parametrize("way", [UDP, AUTO, AUTO_NETDEV, NETDEV], ids=["udp", "auto", "auto-netdev", "netdev"])
def test_HostsNameLeadsToTheWrongInterface_RouteToMasterIsTaken(way):
    """gloo#335: each host's own name is an address of the interface that others cannot reach."""
    with Hosts(2, own_name=f"{APART_PREFIX}.1") as hosts:
        train(hosts, 1 if way is NETDEV else 2, way, hosts.address(0))


@pytest.mark.parametrize("way", [UDP, AUTO, NETDEV], ids=["udp", "auto", "netdev"])
def test_MasterOverIpv6_ItsRoutesInterfaceIsTaken(way):
    with Hosts(2, own_name=DEBIANS_OWN_NAME) as hosts:
        train(hosts, 1, way, hosts.address6(0))


@pytest.mark.parametrize("way", [UDP, NETDEV], ids=["udp", "netdev"])
def test_MasterIsRank0sOwnNameOnTheLoopback_DefaultRouteIsTaken(way):
    with Hosts(2, own_name=DEBIANS_OWN_NAME) as hosts:
        for host in range(2):
            run("ip", "-n", hosts.name(host), "route", "add", "default", "via", "10.78.0.254")
        train(hosts, 1, way, "node0")


def test_MasterIsOwnNameAndNothingTellsTheInterface_OneLineNamesThem():
    with Hosts(1, own_name=DEBIANS_OWN_NAME) as hosts:
        with hosts.ranks("neighbours.py", 1, {"MASTER_ADDR": "node0"}, transport="UDP", arguments=[1]) as ranks:
            assert ranks.wait() == [1]
            line = ("MASTER_ADDR='node0' leads to this host's loopback, and no default route says which interface "
                    "leads to other hosts: set GLOO_SOCKET_IFNAME (or GLOO_BYPASS_INTERFACE) to one of: apart0 host0")
            assert line in ranks.output(0), ranks.output(0)


@pytest.mark.parametrize("master", ["localhost", "127.0.0.1", "::1", None])
@pytest.mark.parametrize("way", [
    pytest.param(UDP, id="udp", marks=pytest.mark.transport_alone), pytest.param(AUTO, id="auto"),
    pytest.param(AUTO_NETDEV, id="auto-netdev", marks=pytest.mark.transport_alone)])
def test_AllRanksOnOneHost_AnyMasterWorks(way, master):
    with Hosts(1, own_name=DEBIANS_OWN_NAME) as hosts:
        run("ip", "-n", hosts.name(0), "route", "add", "default", "via", "10.78.0.254")
        train(hosts, 2, way, master)


def test_NamedInterface_IsTakenWhateverTheRouteSays():
    with Hosts(1, own_name=DEBIANS_OWN_NAME) as hosts:
        for name in ("GLOO_SOCKET_IFNAME", "GLOO_BYPASS_INTERFACE"):
            settings = {name: "apart0", "GLOO_BYPASS_STATS": "stderr", "MASTER_ADDR": hosts.address(0)}
            with hosts.ranks("add.py", 1, settings, transport="UDP") as ranks:
                ranks.succeed()
                assert f"UDP socket {APART_PREFIX}.1:" in ranks.output(0)


def test_TwoInterfacesAreNamedForNetdev_TheFirstCarriesAllAndALineSaysSo():
    with Hosts(2, own_name=DEBIANS_OWN_NAME) as hosts:
        settings = {**NETDEV[1], "GLOO_SOCKET_IFNAME": "host0,apart0"}
        with hosts.ranks("add.py", 1, settings, transport=NETDEV[0]) as ranks:
            ranks.succeed()
            assert "several interfaces are named, and 'host0' carries all; 'apart0' is not used" in ranks.output(0)


@pytest.mark.transport_alone
@pytest.mark.parametrize("way", [UDP, AUTO], ids=["udp", "auto"])
def test_PortRange_RanksMeetThroughAFirewallThatLetsOnlyItThrough(way):
    with Hosts(2) as hosts:
        for host in range(2):
            for rule in (["--dport", "47777:47778", "-j", "ACCEPT"], ["-j", "DROP"]):
                run("ip", "netns", "exec", hosts.name(host), "iptables", "-A", "INPUT", "-p", "udp", *rule)
        train(hosts, 2, way, hosts.address(0), GLOO_BYPASS_UDP_PORT="47777-47778")


@pytest.mark.transport_alone
def test_PortRange_ShorterThanTheRanksOfAHost_OneLineSaysSo():
    with Hosts(1) as hosts:
        settings = {"GLOO_BYPASS_UDP_PORT": "47777"}
        with hosts.ranks("add.py", 2, settings, transport="UDP") as ranks:
            # The other one may wait for it at the store, or miss the store that went with it.
            refused = ranks.whoever_prints(
                "no UDP port of GLOO_BYPASS_UDP_PORT='47777' is free at 10.78.0.1 on host0: each rank of a host takes "
                "one: set a longer range, or 0 for any free port")
            assert ranks.wait([refused]) == [1]


def drop_arriving_udp(hosts, host, way):
    """Over netdev no rule of the host's own firewall counts: the switch drops it."""
    if way is NETDEV:
        run("ip", "netns", "exec", hosts.name("switch"), "ebtables", "-A", "FORWARD", "-p", "IPv4", "--ip-proto", "udp",
            "-o", f"port{host}", "-j", "DROP")
    else:
        hosts.drop_arriving_udp(host, INTERFACE)


@pytest.mark.transport_alone
@pytest.mark.parametrize("way", [UDP, NETDEV], ids=["udp", "netdev"])
def test_OneDirectionIsBlocked_EachRankNamesItWithTheWay(way):
    with Hosts(2) as hosts:
        drop_arriving_udp(hosts, 1, way)
        settings = {**way[1], "GLOO_BYPASS_CONNECT_TIMEOUT_MS": "3000"}
        with hosts.ranks("add.py", 1, settings, transport=way[0]) as ranks:
            assert ranks.wait() == [1, 1]
            for rank, what in enumerate(["its packets arrive here, but there is no answer to ours",
                                         "nothing has arrived from it"]):
                output = ranks.output(rank)
                assert "did not answer within 3" in output and what in output, output
                assert f" of 10.78.0.{rank + 1}" in output and f" to 10.78.0.{2 - rank}:" in output, output
                assert "host0" in output and "gloo-bypass-doctor --probe" in output, output


@pytest.mark.transport_alone
def test_NothingArrivesForLong_ALineSaysSoBeforeTheTimeout():
    with Hosts(2) as hosts:
        drop_arriving_udp(hosts, 1, UDP)
        with hosts.ranks("add.py", 1, transport="UDP") as ranks:
            ranks.wait_for_line(1, "rank 1 waits for rank 0")
            assert "10 s so far" in ranks.output(1) and "nothing has arrived from it (UDP from port" in ranks.output(1)
