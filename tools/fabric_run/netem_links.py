"""The emulated links where the kernel makes them instead of the fabric's switch: a bridge, and netem on each rank's way
to it.

    rank i                       a network namespace of the links' own
      interface  <== veth ==>  fab-i -> ifb-i (netem: the edges that begin at rank i) -> bridge `links` -> fab-j  <==
      veth ==>  rank j

Frames are emulated after they have left the rank, so that a full queue loses them and holds no sender back, and are
captured before that, as with the switch. The commands are those of `fabric --netem`. The namespace, and with it every
veth pair, goes with the enclosure.
"""

import json
import os
import re
import time
from pathlib import Path

from gloo_bypass_tools.common.processes import described, last_lines
from gloo_bypass_tools.fabric_run import network
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.fabric_run.kernel_capture import KernelCapture
from gloo_bypass_tools.fabric_run.timed_changes import TimedChanges, changes_of

BRIDGE = "links"
# tc's handles of netem and tbf of an edge, as tools/fabric/core/netem.cc numbers them: the bands from 2 on, in the
# order of the other hosts.
FIRST_NETEM, FIRST_TBF = 0x102, 0x202
END_S = 10.0


def emulating_interface(index):
    """Its qdiscs emulate the edges from this rank."""
    return f"ifb-{index}"


def processor():
    """The processor that runs links and ranks. The guest's name tells that it is emulated."""
    found = re.search(r"^model name\s*:(.*)", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def lost_by_processors():
    """Frames that the kernel has thrown away since it started because too many waited for a processor
    (netdev_max_backlog)."""
    return sum(int(line.split()[1], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines())


class NetemLinks:
    """Owned by one thread. make() before the ranks' interfaces exist, connect() once they do, start() when the ranks
    start, end() after them."""

    def __init__(self, options, description, folder, script):
        """`script()`: what `fabric --netem` says of all emulating interfaces."""
        self.options, self.hosts, self.script = options, description["hosts"], script
        self.namespace = network.NetworkNamespace(Path(folder) / "links.net")
        self.changes, self.changing, self.capture, self.counters = [], None, None, None
        self.began, self.lost_before = time.monotonic(), lost_by_processors()
        self.log = options.output / "fabric.log"

    def make(self, address=None):
        """`address`: the bridge's own, with its prefix, for what is sent to the links themselves; None: it has none."""
        self.namespace.create()
        commands = [
            f"link add {BRIDGE} type bridge mcast_snooping 0",
            f"link set {BRIDGE} up",
            *([f"addr add {address} dev {BRIDGE}"] if address else []),
        ]
        for index in range(len(self.hosts)):
            commands += [f"link add {emulating_interface(index)} type ifb", f"link set {emulating_interface(index)} up"]
        network.carry_out("ip", commands, self.namespace.prefix())

    def connect(self):
        """The ranks' outer ends are in the namespace; frames cross from here on, as the description says."""
        ports, prefix = [network.fabric_interface(index) for index in range(len(self.hosts))], self.namespace.prefix()
        network.carry_out("ip", [f"link set {port} master {BRIDGE} up" for port in ports], prefix)
        commands = []
        for index, port in enumerate(ports):
            network.receive_on_one_processor(prefix, port, index)
            redirect = f"action mirred egress redirect dev {emulating_interface(index)}"
            commands += [f"qdisc add dev {port} ingress", f"filter add dev {port} parent ffff: matchall {redirect}"]
        script = self.script()
        lines = script.partition("\nsleep ")[0].splitlines()
        commands += [line.removeprefix("tc ") for line in lines if line.startswith("tc ")]
        self.changes = changes_of(script)
        network.carry_out("tc", commands, prefix)
        if self.options.capture:
            senders = {port: network.mac_of(host, index) for index, (host, port) in enumerate(zip(self.hosts, ports))}
            self.capture = KernelCapture(prefix, senders, self.options.output, self.options.snap)

    def start(self):
        """The description's time begins."""
        self.began = time.monotonic()
        with open(self.log, "wb") as log:
            if self.changes:
                self.changing = TimedChanges(self.namespace.prefix(), self.changes, log)

    def why_ended(self):
        """What ended too early, in a line; '' while all is well."""
        if self.changing and (status := self.changing.failed()) is not None:
            said = last_lines(self.log, 2)
            return f"a timed change of the links failed: {said[0] if said else described(status)}"
        if self.capture and self.capture.ended():
            return f"the capture ended before the ranks: {self.capture.last_error()}"
        return ""

    def end(self, devices=None):
        """The counters, as the fabric's; `devices`: what the ranks' RDMA devices counted. Raises FabricRunError if
        something of the links had not worked."""
        why = self.why_ended()
        if self.changing:
            self.changing.stop()
            self.changing = None
        self.counters = {
            "schema": "gloo-bypass/fabric/1",
            "links": "netem",
            "kernel": os.uname().release,
            "processor": processor(),
            "seconds": round(time.monotonic() - self.began, 3),
            "edges": self.edges(),
            "missed": lost_by_processors() - self.lost_before,
            **({"devices": devices} if devices else {}),
        }
        if self.capture:
            try:
                self.counters["capture"] = self.capture.end(END_S)
            except FabricRunError as error:
                why = why or str(error)
        partial = self.options.output / "fabric.json.partial"
        partial.write_text(json.dumps(self.counters, indent=1) + "\n")
        partial.rename(partial.with_suffix(""))
        if why:
            raise FabricRunError(why)
        return self.counters

    def edges(self):
        """Of each edge that was used: frames and bytes as netem and tbf counted them."""
        found = []
        for index, host in enumerate(self.hosts):
            shown = self.namespace.inside("tc", "-s", "-j", "qdisc", "show", "dev", emulating_interface(index))
            by_handle = {one.get("handle"): one for one in json.loads(shown)}
            others = [other for other in self.hosts if other is not host]
            for band, other in enumerate(others):
                netem, tbf = by_handle.get(f"{FIRST_NETEM + band:x}:"), by_handle.get(f"{FIRST_TBF + band:x}:", {})
                edge = edge_of(host["name"], other["name"], netem, tbf) if netem else None
                if edge and edge["offered"]:
                    found.append(edge)
        return found

    def last_table(self):
        if not self.counters:
            return ""
        rows = [f"{'edge':<16}{'frames':>12}{'bytes':>16}{'lost':>10}{'in queue':>10}"]
        for edge in self.counters["edges"]:
            rows.append(
                f"{edge['from'] + '->' + edge['to']:<16}{edge['delivered']:>12}{edge['delivered_bytes']:>16}"
                f"{edge['lost_randomly']:>10}{edge['lost_in_queue']:>10}"
            )
        if self.counters["missed"]:
            rows.append(
                f"{self.counters['missed']} frames were lost beside the edges: the kernel had too many waiting "
                "for a processor (net.core.netdev_max_backlog)"
            )
        lost = self.counters.get("capture", {}).get("lost", 0)
        if lost:
            rows.append(f"the capture lost {lost} frames: it could not keep up; --snap keeps less of each")
        return "\n".join(rows) + "\n"


def edge_of(start, end, netem, tbf):
    """As the switch counts, and null for what the kernel does not. netem's losses are with those of its queue, and of a
    link that is down with those at random. Frames that are still under way are offered, and nothing more."""
    in_queue = tbf.get("drops", 0)
    return {
        "from": start,
        "to": end,
        "offered": netem["packets"] + netem["drops"] + netem.get("qlen", 0),
        "offered_bytes": None,
        "delivered": netem["packets"],
        "delivered_bytes": netem["bytes"],
        "lost_randomly": max(0, netem["drops"] - in_queue),
        "lost_in_burst": 0,
        "lost_in_queue": in_queue,
        "lost_while_down": 0,
        "mean_delay_ms": None,
        "max_queue_bytes": None,
    }
