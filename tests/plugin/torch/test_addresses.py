"""Unmodified PyTorch programs on hosts with two interfaces, the first one without a way to other hosts: which addresses
the ranks choose."""

from pathlib import Path

import pytest
from hosts import APART_PREFIX, INTERFACE, Hosts, run, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

UDP = ("UDP", {})
AUTO = ("DPDK", {})
AUTO_NETDEV = ("DPDK", {"GLOO_BYPASS_NETWORK": "netdev"})
NETDEV = ("DPDK", {"GLOO_BYPASS_LINK": "netdev"})
DEBIANS_OWN_NAME = "127.0.1.1"
DOCTOR = Path(__file__).resolve().parents[3] / "scripts" / "gloo-bypass-doctor"


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


def add_default_routes(hosts):
    for host in range(hosts.count):
        run("ip", "-n", hosts.name(host), "route", "add", "default", "via", "10.78.0.254")
        run("ip", "-n", hosts.name(host), "-6", "route", "add", "default", "via", "fd78::254")


def train_from_loopback(hosts, per_host, way, own, others):
    """Starts host 0's ranks with a MASTER_ADDR that leads no other host to it."""
    transport, settings = way
    per_rank = {rank: {"MASTER_ADDR": own} for rank in range(per_host)}
    with hosts.ranks(
        "neighbours.py", per_host, {**settings, "MASTER_ADDR": others}, per_rank, transport=transport, arguments=[1000]
    ) as ranks:
        ranks.succeed()


@pytest.mark.parametrize("way", [UDP, AUTO, AUTO_NETDEV, NETDEV], ids=["udp", "auto", "auto-netdev", "netdev"])
def test_MasterIsLocalhostOnHost0Alone_DefaultRouteIsTaken(way):
    """pytorch#76367, pytorch#73656: many recipes do so, and over TCP it works."""
    with Hosts(2, own_name=DEBIANS_OWN_NAME) as hosts:
        add_default_routes(hosts)
        for own in ["localhost", "127.0.0.1", "node0"] if way is UDP else ["localhost"]:
            train_from_loopback(hosts, 1 if way is NETDEV else 2, way, own, hosts.address(0))
        if way is not AUTO_NETDEV:
            train_from_loopback(hosts, 1, way, "::1", hosts.address6(0))


@pytest.mark.parametrize("way", [UDP, NETDEV], ids=["udp", "netdev"])
def test_MasterIsLocalhostOnHost0Alone_NoDefaultRoute_HostNamesInterfaceIsTaken(way):
    with Hosts(2) as hosts:  # one interface each
        train_from_loopback(hosts, 1, way, "localhost", hosts.address(0))
    with Hosts(2, own_name="10.78.0.1") as hosts:  # host 0's own address, beside an interface that leads to no other
        train_from_loopback(hosts, 1, way, "localhost", hosts.address(0))


@pytest.mark.parametrize("way", [UDP, AUTO], ids=["udp", "auto"])
def test_MasterIsLocalhostOnHost0Alone_NothingTellsTheInterface_OneLineSaysWhatToSet(way):
    with Hosts(2, own_name=DEBIANS_OWN_NAME) as hosts:
        with hosts.ranks(
            "neighbours.py", 1, per_rank={0: {"MASTER_ADDR": "localhost"}}, transport=way[0], arguments=[1]
        ) as ranks:
            assert ranks.wait() == [1, 1]
            for rank in range(2):
                assert "a loopback address leads to no other host: set GLOO_SOCKET_IFNAME" in ranks.output(rank)


def test_NetdevAndNothingTellsTheInterface_OneLineNamesThem():
    with Hosts(1, own_name=DEBIANS_OWN_NAME) as hosts:
        with hosts.ranks(
            "neighbours.py", 1, {**NETDEV[1], "MASTER_ADDR": "node0"}, transport=NETDEV[0], arguments=[1]
        ) as ranks:
            assert ranks.wait() == [1]
            line = (
                "neither MASTER_ADDR='node0' nor a default route nor the host's name says which interface leads to "
                "other hosts: set GLOO_SOCKET_IFNAME (or GLOO_BYPASS_INTERFACE) to one of: apart0 host0"
            )
            assert line in ranks.output(0), ranks.output(0)


@pytest.mark.parametrize("way", [UDP, AUTO], ids=["udp", "auto"])
def test_NoMasterAddress_HostsThatMeetByTheirOwnStoreReachEachOther(way):
    """init_method="tcp://..." needs no MASTER_ADDR, and one that leads nowhere does no harm."""
    with Hosts(2) as hosts:
        for master in "", "no-such-host.invalid":
            with hosts.ranks(
                "meet.py", 1, {"MASTER_ADDR": master}, transport=way[0], arguments=[f"tcp://{hosts.address(0)}:29400"]
            ) as ranks:
                ranks.succeed()


@pytest.mark.parametrize(
    "way, place",
    [
        pytest.param(UDP, place, id=f"udp, {place}", marks=pytest.mark.transport_alone)
        for place in ("no default route", "default route", "down", "loopback")
    ]
    + [
        pytest.param(AUTO, "default route", id="auto, default route"),
        pytest.param(AUTO, "loopback", id="auto, loopback"),
        pytest.param(AUTO_NETDEV, "default route", id="auto-netdev", marks=pytest.mark.transport_alone),
    ],
)
def test_AllRanksOnOneHost_AnyMasterWorksOverAnyNetworkAndNone(way, place):
    with Hosts(1, own_name=DEBIANS_OWN_NAME) as hosts:
        if place == "default route":
            add_default_routes(hosts)
        elif place == "down":
            hosts.set_link(0, "down")
            run("ip", "-n", hosts.name(0), "link", "set", "apart0", "down")
        elif place == "loopback":
            for interface in INTERFACE, "apart0":
                hosts.delete_interface(0, interface)
        for master in "localhost", "127.0.0.1", "::1":
            train(hosts, 2, way, master)


@pytest.mark.transport_alone
@pytest.mark.parametrize(
    "own_name, routes, master, address, why",
    [
        (
            DEBIANS_OWN_NAME,
            True,
            "localhost",
            "10.78.0.1",
            "the default route begins there (MASTER_ADDR=localhost leads",
        ),
        (DEBIANS_OWN_NAME, True, "::1", "fd78::1", "the default route begins there (MASTER_ADDR=::1 leads"),
        (DEBIANS_OWN_NAME, True, "10.79.0.9", "10.79.0.1", "the route to MASTER_ADDR=10.79.0.9 begins there"),
        ("10.78.0.1", False, "localhost", "10.78.0.1", "the host's own name leads there"),
        (None, False, "localhost", "10.78.0.1", "host0 is the only interface"),
        (DEBIANS_OWN_NAME, False, "localhost", "127.0.0.1", "no route and no name says which interface"),
    ],
)
def test_Doctor_NamesTheAddressThatARankTakesAndWhy(tmp_path, own_name, routes, master, address, why):
    with Hosts(1, own_name=own_name) as hosts:
        if routes:
            add_default_routes(hosts)
        said = run(*hosts.inside(0), "env", f"MASTER_ADDR={master}", str(DOCTOR), "--path", "udp")
        assert f" address: {address}" in said and why in said, said
        settings = {"GLOO_BYPASS_STATS": "stderr", "MASTER_ADDR": master}
        with hosts.ranks("meet.py", 1, settings, transport="UDP", arguments=[f"file://{tmp_path}/store"]) as ranks:
            ranks.succeed()
            taken = f"[{address}]" if ":" in address else address
            assert f"UDP socket {taken}:" in ranks.output(0), ranks.output(0)


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
            # The other one may wait for it at the store, or find the store gone.
            refused = ranks.whoever_prints(
                "no UDP port of GLOO_BYPASS_UDP_PORT='47777' is free at 10.78.0.1 on host0: each rank of a host takes "
                "one: set a longer range, or 0 for any free port"
            )
            assert ranks.wait([refused]) == [1]


def drop_arriving_udp(hosts, host, way):
    """Over netdev no rule of the host's own firewall counts: the switch drops it."""
    if way is NETDEV:
        run(
            "ip",
            "netns",
            "exec",
            hosts.name("switch"),
            "ebtables",
            "-A",
            "FORWARD",
            "-p",
            "IPv4",
            "--ip-proto",
            "udp",
            "-o",
            f"port{host}",
            "-j",
            "DROP",
        )
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
            for rank, what in enumerate(
                ["its packets arrive here, but there is no answer to ours", "nothing has arrived from it"]
            ):
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


@pytest.mark.transport_alone
def test_NothingCanBeSent_TheLineNamesTheCauseOnThisHost():
    with Hosts(2) as hosts:
        run("ip", "netns", "exec", hosts.name(1), "iptables", "-A", "OUTPUT", "-p", "udp", "-j", "DROP")
        with hosts.ranks("add.py", 1, transport="UDP") as ranks:
            ranks.wait_for_line(1, "rank 1 waits for rank 0")
            output = ranks.output(1)
            assert "nothing can be sent from 10.78.0.2" in output and "Operation not permitted" in output, output
