"""Unmodified PyTorch programs on two hosts that two networks join: large messages are striped over both interfaces."""

import time

import pytest
from hosts import INTERFACE, SECOND, SECOND_PREFIX, Hosts, why_not
from test_failures import LONG, wait_for_failures

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

BOTH = f"{INTERFACE},{SECOND}"
BY_GLOO, BY_US = "GLOO_SOCKET_IFNAME", "GLOO_BYPASS_INTERFACE"
SUMS = 5
SUMS_MIB = 16 * SUMS


def all_reduce(hosts, settings, transport="UDP"):
    with hosts.ranks("large_sums.py", 1, settings, transport=transport, arguments=[SUMS]) as ranks:
        ranks.succeed()


def sent_mib(hosts, interface):
    return hosts.sent_bytes(0, interface) / (1 << 20)


@pytest.fixture(name="hosts")
def two_networks():
    with Hosts(2) as made:
        made.add_second_network()
        yield made


@pytest.mark.parametrize("variable", [BY_GLOO, BY_US])
@pytest.mark.parametrize("transport", ["UDP", "DPDK"])
def test_EqualInterfaces_EachCarriesItsShare(hosts, transport, variable):
    for interface in (INTERFACE, SECOND):
        hosts.limit_rate(interface, "200mbit")
    before = {name: sent_mib(hosts, name) for name in (INTERFACE, SECOND)}
    all_reduce(hosts, {variable: BOTH}, transport)
    for name, mib in before.items():
        assert sent_mib(hosts, name) - mib > 0.3 * SUMS_MIB, name


def test_UnequalInterfaces_EachCarriesItsShare(hosts):
    hosts.limit_rate(INTERFACE, "50mbit")
    hosts.limit_rate(SECOND, "150mbit")
    all_reduce(hosts, {BY_GLOO: BOTH})
    assert sent_mib(hosts, SECOND) > 1.5 * sent_mib(hosts, INTERFACE) > 0.1 * SUMS_MIB


@pytest.mark.parametrize("interface", [INTERFACE, SECOND])
def test_OneInterfaceDeleted_ErrorNamesItWithinSeconds(hosts, interface):
    with hosts.ranks("until_failure.py", 1, {BY_GLOO: BOTH}, transport="UDP", arguments=[LONG]) as ranks:
        for rank in range(2):
            ranks.wait_for_line(rank, "going=yes")
        deleted_at = time.time()
        hosts.delete_interface(1, interface)
        # The second network is one veth pair: both its ends are gone, and the rank that notices first notifies the
        # other.
        concerned = [0, 1] if interface == SECOND else [1]
        wait_for_failures(ranks, concerned)
        errors = [ranks.value(rank, "error") for rank in concerned]
        assert any(f"interface '{interface}' was deleted" in error for error in errors), errors
        for rank in concerned:
            assert float(ranks.value(rank, "failed_at")) - deleted_at < LONG / 3, ranks.output(rank)


@pytest.mark.parametrize("impatient", [0, 1])
def test_SecondNetworkCarriesNothing_ConnectFailsAndBothNameTheWay(hosts, impatient):
    """The first one to give up notifies the other, which knows the path as well."""
    hosts.drop_arriving_udp(1, SECOND)
    patience = {rank: {"GLOO_BYPASS_CONNECT_TIMEOUT_MS": "3000" if rank == impatient else "60000"} for rank in range(2)}
    with hosts.ranks("add.py", 1, {BY_GLOO: BOTH}, patience, transport="UDP") as ranks:
        assert 0 not in ranks.wait()
        for rank, other in ((0, 1), (1, 0)):
            way = f"of {SECOND_PREFIX}.{rank + 1} on {SECOND} to {SECOND_PREFIX}.{other + 1}:"
            assert way in ranks.output(rank), ranks.output(rank)


@pytest.mark.parametrize(
    "value,words",
    [
        (f"{INTERFACE},nonesuch", "there is no interface 'nonesuch'"),
        (f"{INTERFACE},{INTERFACE}", "leads to 10.78.0.1 twice: name each once"),
        (f"{INTERFACE},", f"GLOO_BYPASS_INTERFACE='{INTERFACE},' is not allowed"),
        (",".join(f"if{i}" for i in range(9)), "has 9 names, more than 8"),
    ],
)
def test_BadList_OneLineSaysSo(hosts, value, words):
    with hosts.ranks("add.py", 1, {BY_US: value}, transport="UDP") as ranks:
        ranks.wait()
        assert words in ranks.output(0), ranks.output(0)
