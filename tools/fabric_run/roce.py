"""Interfaces and SoftRoCE devices of ranks over RDMA, all in the network namespace that fabric-run was started in.

rdma_rxe (Linux 6.1) works in the machine's initial network namespace only, so the ranks cannot have one each. Between
two addresses of one machine the kernel would not use the wire: its table `local` comes before all others. Here a rule
stands before that, for each interface, for those alone who ask for a route through it, as SoftRoCE does. Sockets do not
ask so: what a rank sends over them to another (the channel that opens queue pairs) stays off the links, as the meeting
of the ranks does over other transports.

    rules before                 during
      0  lookup local              0  oif fabric-0 lookup 7700 (the network, through fabric-0); oif fabric-1 ...
      32766 lookup main ...        1  lookup local
                                   32766 lookup main ...

The other end of each interface lies in the links' namespace: with that the interface, its device, addresses and table
go. The rules are taken away, and the first one put back.
"""

import ipaddress
import time
from pathlib import Path

from gloo_bypass_tools.fabric_run import network
from gloo_bypass_tools.fabric_run.failures import FabricRunError

FIRST_TABLE = 7700
LOCAL_MOVED_TO = 1
READY_S = 20.0
POLL_S = 0.05
DEVICES = Path("/sys/class/infiniband")
TIMEOUT, READ_BYTES = "GLOO_BYPASS_RDMA_TIMEOUT", "GLOO_BYPASS_RDMA_READ_BYTES"
# 4.096 us times 2 to the power of a queue pair's timeout.
TIMEOUT_UNIT_S = 4.096e-6
MOST_TIMEOUT = 31
# A second: ranks may wait for a processor of the guest, and SoftRoCE's timer strikes early.
LEAST_TIMEOUT = 18
# Gloo's ring has two segments of 1 MiB under way from one peer.
LEAST_READ_BYTES, MOST_READ_BYTES = 2**16, 2**22
# Bytes of frames for each byte that a READ brings, headers included: at the smallest path MTU that fabric-run has, 256
# bytes.
FRAMES_PER_PAYLOAD = 1.25
# Frames that may wait for a processor at the other end of a veth pair. SoftRoCE sends the answer to a READ of 1 MiB at
# once, in up to 4,096 of them, takes a lost one for a device without resources, and may fail the connection for it; the
# kernel's default is 1,000.
BACKLOG, BACKLOG_FRAMES = Path("/proc/sys/net/core/netdev_max_backlog"), 65536
# SoftRoCE does not set its timer anew for what it sends while the timer runs, so that it may strike one trip after a
# READ was sent late in another.
PATIENCE = 3.0


def interface_of(index):
    return f"fabric-{index}"


def device_of(index):
    return f"rxe-fabric-{index}"


def read_bytes_for(description):
    """GLOO_BYPASS_RDMA_READ_BYTES: half of the smallest queue, since SoftRoCE sends all that was asked for at once;
    with their headers, and beside the frames of other queue pairs, the answers then fit."""
    queue = description["smallest_queue_bytes"]
    return min(MOST_READ_BYTES, max(LEAST_READ_BYTES, queue // 2)) if queue else MOST_READ_BYTES


def longest_wait_s(description, read_bytes):
    """Of a request for its answer: behind full queues, or, where these have no limit, behind all that was asked for of
    one peer."""
    rate = description["lowest_rate_bit_s"]
    return description["longest_round_trip_s"] + (8 * FRAMES_PER_PAYLOAD * read_bytes / rate if rate else 0.0)


def timeout_for(round_trip_s):
    """GLOO_BYPASS_RDMA_TIMEOUT: the least that outlasts this round trip."""
    return next(
        (power for power in range(LEAST_TIMEOUT, MOST_TIMEOUT) if TIMEOUT_UNIT_S * 2**power >= PATIENCE * round_trip_s),
        MOST_TIMEOUT,
    )


def settings_for(description, environment):
    """Settings of queue pairs for these links; `environment` overrides them."""
    own = {READ_BYTES: read_bytes_for(description)}
    given = environment.get(READ_BYTES, "")
    own[TIMEOUT] = timeout_for(longest_wait_s(description, int(given) if given.isdecimal() else own[READ_BYTES]))
    return own | {name: environment[name] for name in own if name in environment}


def network_of(host):
    return ipaddress.ip_interface(f"{host['ipv4']}/{host['prefix_length']}").network


def spare_address(hosts):
    """The network's highest that no host has: the links' own, to which rank 0 sends step markers. None where there is
    none."""
    taken = {host["ipv4"] for host in hosts}
    subnet = network_of(hosts[0])
    highest = (str(subnet.broadcast_address - back) for back in range(1, min(len(hosts) + 2, subnet.num_addresses - 1)))
    return next((address for address in highest if address not in taken), None)


class RoceHosts:
    """Owned by one thread. remove() takes away what make() made, however far it came."""

    def __init__(self, hosts, mtu):
        self.hosts, self.mtu, self.made, self.rules, self.backlog = hosts, mtu, 0, [], None

    def rule(self, index):
        return ["pref", 0, "oif", interface_of(index), "lookup", FIRST_TABLE + index]

    def make(self, links):
        """`links`: the path of the network namespace of the other ends."""
        if Path("/proc/sys/net/ipv4/conf/all/rp_filter").read_text().strip() == "1":
            raise FabricRunError(
                "net.ipv4.conf.all.rp_filter = 1 drops what comes from an address of this machine: set it to 0 or 2"
            )
        if int(BACKLOG.read_text()) < BACKLOG_FRAMES:
            self.backlog = BACKLOG.read_text()
            BACKLOG.write_text(str(BACKLOG_FRAMES))
        for index, host in enumerate(self.hosts):
            name = interface_of(index)
            outer = f"name {network.fabric_interface(index)} netns {links} mtu {self.mtu}"
            address = network.mac_of(host, index)
            network.carry_out("ip", [f"link add {name} mtu {self.mtu} address {address} type veth peer {outer}"])
            self.made += 1
            for setting, value in (
                ("ipv6/conf/{}/disable_ipv6", "1"),
                ("ipv4/conf/{}/rp_filter", "0"),
                ("ipv4/conf/{}/accept_local", "1"),
            ):
                path = Path("/proc/sys/net", setting.format(name))
                if path.exists():
                    path.write_text(value)
            network.receive_on_one_processor([], name, index)
            # Fixed neighbours, since each interface would answer for the addresses of all.
            commands = [
                f"addr add {host['ipv4']}/{host['prefix_length']} dev {name}",
                f"link set {name} up",
                f"route add table {FIRST_TABLE + index} {network_of(host)} dev {name} src {host['ipv4']}",
            ]
            commands += [
                f"neigh add {other['ipv4']} lladdr {network.mac_of(other, at)} dev {name} nud permanent"
                for at, other in enumerate(self.hosts)
                if at != index
            ]
            if index == 0 and (markers := spare_address(self.hosts)):
                # Another interface may be in the same network, as SoftRoCE's own by default is.
                commands.append(f"route add {markers}/32 dev {name} src {host['ipv4']}")
            network.carry_out("ip", commands)
        self.make_rules()

    def make_rules(self):
        self.repair_rules()
        network.answer("ip", "rule", "add", "pref", LOCAL_MOVED_TO, "lookup", "local")
        self.rules.append(["pref", LOCAL_MOVED_TO, "lookup", "local"])
        network.answer("ip", "rule", "del", "pref", 0, "lookup", "local")
        for index in range(len(self.hosts)):
            network.answer("ip", "rule", "add", *self.rule(index))
            self.rules.append(self.rule(index))

    def repair_rules(self):
        """What a run has left behind that was killed while it cleaned up."""
        network.attempt("ip", "rule", "add", "pref", 0, "lookup", "local")  # fails where it is there
        network.attempt("ip", "rule", "del", "pref", LOCAL_MOVED_TO, "lookup", "local")
        for index in range(len(self.hosts)):
            network.attempt("ip", "rule", "del", *self.rule(index))

    def add_devices(self):
        """Once the links are up."""
        for index in range(len(self.hosts)):
            network.answer("rdma", "link", "add", device_of(index), "type", "rxe", "netdev", interface_of(index))
        deadline = time.monotonic() + READY_S
        for index, host in enumerate(self.hosts):
            while not self.ready(index):
                if time.monotonic() > deadline:
                    raise FabricRunError(
                        f"{device_of(index)} on {interface_of(index)} has no active port with the address "
                        f"{host['ipv4']} after {READY_S:g} s"
                    )
                time.sleep(POLL_S)

    def ready(self, index):
        port = DEVICES / device_of(index) / "ports" / "1"
        wanted = ipaddress.IPv6Address(f"::ffff:{self.hosts[index]['ipv4']}").exploded
        try:
            return "ACTIVE" in (port / "state").read_text() and any(
                wanted == gid.read_text().strip() for gid in (port / "gids").iterdir()
            )
        except OSError:
            return False

    def remove_rules(self):
        """The host's own rules back, which matter most: as soon as no rank needs them."""
        # The last one is the table `local`'s in its other place: first it gets its own back.
        for rule in reversed(self.rules):
            if rule[1] == LOCAL_MOVED_TO:
                network.attempt("ip", "rule", "add", "pref", 0, "lookup", "local")
            network.attempt("ip", "rule", "del", *rule)
        self.rules = []

    def remove(self):
        self.remove_rules()
        for index in range(self.made):
            if (DEVICES / device_of(index)).exists():
                network.attempt("rdma", "link", "delete", device_of(index))
            network.attempt("ip", "link", "delete", interface_of(index))
        if self.backlog:
            BACKLOG.write_text(self.backlog)
        self.made, self.backlog = 0, None

    def counters(self):
        """What each device counted: sent again, out of order, given up. Nothing of one that has gone."""
        found = []
        for index, host in enumerate(self.hosts):
            folder = DEVICES / device_of(index) / "ports" / "1" / "hw_counters"
            try:
                counts = {file.name: int(file.read_text()) for file in sorted(folder.iterdir())}
            except OSError:
                counts = {}
            counts.pop("lifespan", None)
            found.append({"host": host["name"], **counts})
        return found
