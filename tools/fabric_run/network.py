"""The interfaces of ranks over kernel TCP, made inside the enclosure.

    namespace of rank i                      the enclosure's own
      fab0  10.77.0.x/24  <== veth ==>  fab-i     fabric (af_packet)
      ctl0  169.254.0.x   <== veth ==>  ctl-i --- bridge `control`

Ranks meet (MASTER_ADDR) over the control network, so that nothing but their collectives crosses the emulated edges.
"""

import os
import subprocess
from pathlib import Path

from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.fabric_run.failures import FabricRunError

INTERFACE = "fab0"
CONTROL_BRIDGE = "control"
COMMAND_S = 60.0


def answer(*words, text=""):
    """What a command says; a failure ends the run with its last line."""
    why = ""
    try:
        done = ask(words, COMMAND_S, text)
        if done.returncode != 0:
            why = errors_of(done)[0]
    except subprocess.TimeoutExpired:
        why = f"no end within {COMMAND_S:g} s"
    if why:
        raise FabricRunError(f"{' '.join(str(word) for word in words[:6])} failed: {why}")
    return done.stdout


def carry_out(program, commands, prefix=()):
    """Commands of `ip` or `tc`, a string each. `prefix`: words that lead into a namespace."""
    answer(*prefix, program, "-batch", "-", text="\n".join(commands) + "\n")


def attempt(*words):
    """Runs a command of the clean-up: whether it worked. What it removes may have gone already."""
    try:
        return ask(words, COMMAND_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def mac_of(host, index):
    """The description's, or a local, unicast one."""
    return host["mac"] or f"02:67:62:00:{index // 256:02x}:{index % 256:02x}"


def control_address(index):
    return f"169.254.{(index + 1) // 256}.{(index + 1) % 256}"


# sysfs shows the interfaces of the network namespace that it was mounted in. A kernel without RPS has no such file.
ON_ONE_PROCESSOR = '''[ -e "/sys/class/net/$1" ] || mount -t sysfs sysfs /sys || exit
file=/sys/class/net/$1/queues/rx-0/rps_cpus
[ ! -e "$file" ] || echo "$2" > "$file"'''


def receive_on_one_processor(prefix, interface, index):
    """A veth pair hands a frame on where its sender runs, so that frames of a sender that moves from one processor to
    another overtake each other; SoftRoCE takes that for loss. `prefix`: words that lead into the interface's
    namespace."""
    mask = f"{1 << index % min(os.cpu_count() or 1, 32):x}"
    answer(*prefix, "unshare", "--mount", "sh", "-c", ON_ONE_PROCESSOR, "sh", interface, mask)


def fabric_interface(index):
    return f"fab-{index}"


class NetworkNamespace:
    """One that a file holds, and that goes with the file's mount."""

    def __init__(self, path):
        self.path = Path(path)

    def create(self):
        """It begins without addresses; those that IPv6 makes by itself would be traffic."""
        self.path.touch()
        answer("unshare", f"--net={self.path}", "true")
        self.inside(
            "sh", "-c", "for each in all default; do echo 1 > /proc/sys/net/ipv6/conf/$each/disable_ipv6; done; exit 0"
        )

    def inside(self, *words):
        return answer(*self.prefix(), *words)

    def prefix(self):
        return ["nsenter", f"--net={self.path}", "--"]


class RankNamespace(NetworkNamespace):
    """The network namespace of one rank, with an interface on the fabric and, if wanted, one on the control network."""

    def __init__(self, index, host, mtu, sysctls, folder):
        super().__init__(Path(folder) / f"rank{index}.net")
        self.index, self.host, self.mtu, self.sysctls = index, host, mtu, sysctls

    def make(self, control, links=None):
        """`links`: where the other end of its interface belongs; None: into the enclosure's own namespace."""
        inner = fabric_interface(self.index)
        self.create()
        outside = [
            f"link add {inner} mtu {self.mtu} type veth peer name {INTERFACE} netns {self.path} mtu {self.mtu}",
            f"link set {inner} netns {links}" if links else f"link set {inner} up",
        ]
        rank = [
            f"link set {INTERFACE} address {mac_of(self.host, self.index)}",
            f"addr add {self.host['ipv4']}/{self.host['prefix_length']} dev {INTERFACE}",
            "link set lo up",
            f"link set {INTERFACE} up",
        ]
        if control:
            outside += [
                f"link add ctl-{self.index} type veth peer name ctl0 netns {self.path}",
                f"link set ctl-{self.index} master {CONTROL_BRIDGE} up",
            ]
            rank += [f"addr add {control_address(self.index)}/16 dev ctl0", "link set ctl0 up"]
        carry_out("ip", outside)
        # Frames must leave whole: a switch between veths does not finish segments and checksums.
        self.inside("ethtool", "-K", INTERFACE, "tx", "off", "tso", "off", "gso", "off", "gro", "off")
        carry_out("ip", rank, self.prefix())
        for name, value in self.sysctls:
            self.set_sysctl(name, value)

    def set_sysctl(self, name, value):
        path = "/proc/sys/" + name.replace(".", "/")
        try:
            self.inside("sh", "-c", 'printf %s "$1" > "$2"', "sysctl", value, path)
        except FabricRunError as error:
            raise FabricRunError(f"--sysctl {name}={value}: {error}", 2) from error


def prepare(hosts, folder, own_network, control):
    """The enclosure itself: `folder` for sockets and namespaces, names of hosts; if the network is its own, the
    loopback and the control network."""
    answer("mount", "-t", "tmpfs", "fabric-run", folder)
    if own_network:
        prepare_network(control)
    names = Path(folder) / "hosts"
    lines = ["127.0.0.1 localhost", f"127.0.1.1 {os.uname().nodename}"]
    lines += [f"{host['ipv4']} {host['name']}" for host in hosts]
    names.write_text("\n".join(lines) + "\n")
    answer("mount", "--bind", names, "/etc/hosts")


def prepare_network(control):
    for kind in ("all", "default"):
        path = Path(f"/proc/sys/net/ipv6/conf/{kind}/disable_ipv6")
        if path.exists():
            path.write_text("1")
    commands = ["link set lo up"]
    if control:
        # A bridge that looks into groups reports its own (224.0.0.106): a packet socket of the fabric may get such
        # frames before it is bound.
        commands += [f"link add {CONTROL_BRIDGE} type bridge mcast_snooping 0", f"link set {CONTROL_BRIDGE} up"]
    carry_out("ip", commands)
