"""One run, from its interfaces to its counters, inside the enclosure."""

import json
import os
import subprocess
from pathlib import Path

from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.common.rank_processes import free_port
from gloo_bypass_tools.common.transports import BY_NAME
from gloo_bypass_tools.fabric_run import network, roce
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.fabric_run.netem_links import NetemLinks, emulating_interface
from gloo_bypass_tools.fabric_run.processes import Fabric, FabricRanks

SECTIONS = ("ranks", "network", "seed", "defaults", "ring", "host", "edge", "event")
MASTER_PORT = 29500
# A memif ring: 2^10 slots of 2 KiB, or fewer of jumbo frames.
LOG2_SLOTS, LOG2_JUMBO_SLOTS = 10, 9
CHECK_S = 30.0
ETHERNET_HEADER = 14
LOOPBACK = "127.0.0.1"


def description_flags(options):
    return [word for section in SECTIONS for value in getattr(options, section) for word in (f"--{section}", value)]


def config_flag(options):
    return ["--config", options.config] if options.config else []


def said_by_fabric(options, words):
    """What the program prints about the description. The program refuses bad input."""
    if not os.access(options.fabric, os.X_OK):
        raise FabricRunError(
            f"there is no program '{options.fabric}': build it with scripts/build, or say --fabric PATH", 2
        )
    try:
        done = ask([options.fabric, *words, *description_flags(options)], CHECK_S)
    except subprocess.TimeoutExpired:
        raise FabricRunError(
            f"the fabric's check of the description took more than {CHECK_S:g} s: describe fewer hosts or events", 2
        ) from None
    if done.returncode != 0:
        raise FabricRunError(errors_of(done)[-1].removeprefix("fabric: "), 2)
    return done.stdout


def read_description(options):
    """The description as the fabric reads it: hosts with their addresses."""
    description = [options.config] if options.config else []
    return json.loads(said_by_fabric(options, ["--check", *description, "--json"]))


def netem_script(options, hosts):
    """What `tc` is to do so that each host's edges begin at its emulating interface."""
    words = config_flag(options)
    for index, host in enumerate(hosts):
        words += ["--netem", f"{host['name']}={emulating_interface(index)}"]
    return said_by_fabric(options, words)


class Run:
    """One run, inside the enclosure."""

    def __init__(self, options, description, folder):
        self.options, self.description, self.folder = options, description, Path(folder)
        self.hosts = description["hosts"]
        self.transport = BY_NAME[options.transport]
        self.own_namespaces = self.transport.own_namespaces
        self.control = self.own_namespaces and options.rendezvous == "control"
        self.namespaces = [
            network.RankNamespace(index, host, options.mtu, options.sysctl, folder)
            for index, host in enumerate(self.hosts)
        ]
        self.roce = roce.RoceHosts(self.hosts, options.mtu) if self.transport.needs_device else None
        self.master_port = free_port() if self.roce else MASTER_PORT
        self.netem = None
        if options.links == "netem":
            self.netem = NetemLinks(options, description, folder, lambda: netem_script(options, self.hosts))

    def make_links(self):
        """The ranks' interfaces and what joins them, ready for frames."""
        network.prepare(self.hosts, self.folder, not self.roce, self.control)
        if self.netem:
            markers = self.markers_address() if self.roce else LOOPBACK
            self.netem.make(f"{markers}/{self.hosts[0]['prefix_length']}" if markers != LOOPBACK else None)
        if self.own_namespaces:
            for namespace in self.namespaces:
                namespace.make(self.control, self.netem and self.netem.namespace.path)
        if self.roce:
            self.roce.make(self.netem.namespace.path)
        if not self.netem:
            links = Fabric(self.fabric_words(), self.options.output / "fabric.log", self.options.output / "fabric.json")
            links.wait_until_ready()
            return links
        self.netem.connect()
        if self.roce:
            self.roce.add_devices()
        return self.netem

    def fabric_words(self):
        options = self.options
        words = [options.fabric, *config_flag(options), *description_flags(options)]
        words += ["--mtu", options.mtu, "--memory", options.memory]
        for index, host in enumerate(self.hosts):
            interface, socket = f"interface={network.fabric_interface(index)}", f"memif={self.socket(index)}"
            words += ["--host", f"name={host['name']},{interface if self.own_namespaces else socket}"]
        if options.capture:
            words += ["--capture", options.output / "capture.pcapng", "--snap", options.snap]
            if not self.own_namespaces:
                words += ["--markers", LOOPBACK]
        if options.samples:
            words += ["--samples", options.output / "samples.jsonl"]
        return [str(word) for word in words]

    def socket(self, index):
        return self.folder / f"rank{index}.sock"

    def memif_device(self, index):
        buffer_bytes = max(2048, (self.options.mtu + ETHERNET_HEADER + 255) // 256 * 256)
        slots = LOG2_SLOTS if buffer_bytes == 2048 else LOG2_JUMBO_SLOTS
        mac = network.mac_of(self.hosts[index], index)
        return (
            f"net_memif0,role=client,id=0,socket={self.socket(index)},socket-abstract=no,"
            f"bsize={buffer_bytes},rsize={slots},mac={mac}"
        )

    def environment_of(self, index):
        host = self.hosts[index]
        values = {
            "RANK": index,
            "WORLD_SIZE": len(self.hosts),
            "LOCAL_RANK": index,
            "MASTER_PORT": self.master_port,
            "GLOO_DEVICE_TRANSPORT": self.transport.device,
        }
        if self.own_namespaces:
            values["MASTER_ADDR"] = network.control_address(0) if self.control else self.hosts[0]["ipv4"]
            values["GLOO_SOCKET_IFNAME"] = network.INTERFACE
            if self.transport.paths:  # TCP has no settings of ours
                values |= {**dict(self.transport.settings), "GLOO_BYPASS_INTERFACE": network.INTERFACE}
        elif self.roce:
            values |= {
                "MASTER_ADDR": LOOPBACK,
                "GLOO_SOCKET_IFNAME": roce.interface_of(index),
                "GLOO_BYPASS_RDMA_DEVICES": roce.device_of(index),
                **roce.settings_for(self.description, os.environ | dict(self.options.env)),
            }
        else:
            values |= {
                "MASTER_ADDR": LOOPBACK,
                "GLOO_BYPASS_LINK": "pci",
                "GLOO_BYPASS_PCI_ADDRESS": self.memif_device(index),
                "GLOO_BYPASS_IPV4": f"{host['ipv4']}/{host['prefix_length']}",
                "GLOO_BYPASS_MTU": self.options.mtu,
            }
        # As any launcher: else OpenBLAS takes all cores for each rank, and its threads spin for one another.
        threads = {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // len(self.hosts)))}
        own = {name: str(value) for name, value in values.items()}
        return {**threads, **os.environ, **own, **dict(self.options.env)}

    def markers_address(self):
        """Where rank 0 sends step markers: over the fabric to another rank, or to the links themselves where it reaches
        no rank over them."""
        if self.roce:
            return roce.spare_address(self.hosts) or LOOPBACK
        return self.hosts[1]["ipv4"] if self.own_namespaces else LOOPBACK

    def words_of(self, index):
        values = {"{transport}": self.transport.device, "{markers}": self.markers_address()}
        program = self.options.program
        for name, value in values.items():
            program = [word.replace(name, value) for word in program]
        if not self.own_namespaces:
            return program
        # A host name of its own, that of its interface on the fabric: by it Gloo finds the interface where nothing else
        # says.
        script = 'hostname "$1" && shift && exec "$@"'
        named = ["unshare", "--uts", "sh", "-c", script, "rank", self.hosts[index]["name"]]
        return [*self.namespaces[index].prefix(), *named, *program]

    def run(self):
        try:
            self.run_ranks(self.make_links())
        finally:
            if self.roce:
                self.roce.remove()

    def run_ranks(self, links):
        with FabricRanks(self.options.output) as ranks:
            try:
                links.start()
                for index in range(len(self.hosts)):
                    ranks.start(self.words_of(index), self.environment_of(index))
                ranks.wait_beside(links, self.options.timeout)
            finally:
                ranks.end()
                if self.roce:
                    self.roce.remove_rules()  # before a capture is put in order, which takes long
                counters = links.end(self.roce.counters() if self.roce else None)
        print(links.last_table(), end="")
        if not any(edge["delivered"] for edge in counters["edges"]):
            raise FabricRunError(
                "nothing crossed the fabric: does the program take its transport from GLOO_DEVICE_TRANSPORT? "
                "all_reduce_perf wants --transports {transport}"
            )
