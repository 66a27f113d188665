"""Network namespaces as hosts at one switch, a bridge of the kernel, within the enclosure. MTU 1500; the kernel hands
frames on in one piece, as between machines whose adapters segment."""

from pathlib import Path

from gloo_bypass_tools.fabric_run import network

INTERFACE, BRIDGE = "host0", "hosts"


class Hosts:
    """Made when first asked for; `folder` is the enclosure's own. They go with the enclosure."""

    def __init__(self, folder):
        self.folder, self.namespaces = Path(folder), []

    def prefix(self, host):
        """Words that lead into its namespace."""
        while len(self.namespaces) <= host:
            self.add()
        return self.namespaces[host].prefix()

    def add(self):
        number = len(self.namespaces)
        namespace = network.NetworkNamespace(self.folder / f"host{number}.net")
        namespace.create()
        bridge = [] if number else [f"link add {BRIDGE} type bridge mcast_snooping 0", f"link set {BRIDGE} up"]
        port = f"port{number}"
        veth = f"link add {port} type veth peer name {INTERFACE} netns {namespace.path}"
        network.carry_out("ip", [*bridge, veth, f"link set {port} master {BRIDGE} up"])
        own = ["link set lo up", f"addr add 10.78.0.{number + 1}/24 dev {INTERFACE}", f"link set {INTERFACE} up"]
        network.carry_out("ip", own, namespace.prefix())
        self.namespaces.append(namespace)
