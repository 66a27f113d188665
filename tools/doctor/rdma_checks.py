"""Checks of RDMA: libibverbs, devices, ports and GIDs, rights; and of SoftRoCE, which makes a device without an
adapter."""

import ipaddress
import socket
from dataclasses import dataclass

from gloo_bypass_tools.doctor import common_checks as common
from gloo_bypass_tools.doctor import udp_checks as udp
from gloo_bypass_tools.doctor.common_checks import locked_memory, tool
from gloo_bypass_tools.doctor.finding import Subject, install
from gloo_bypass_tools.doctor.machine import LIBRARY_FOLDERS, integer

DEVICES = "/sys/class/infiniband"
LEAST_LOCKED_BYTES = 64 << 20
SOFTROCE_UP = f"sudo {tool('softroce')} up"
GUEST = f"{tool('rdma-guest')} run -- COMMAND   # SoftRoCE in a guest, on any machine"

pinned_memory = locked_memory(LEAST_LOCKED_BYTES, "RDMA registers, and so locks, the buffers it sends from")


def verbs_library(machine):
    subject = Subject("libibverbs")
    if machine.library("libibverbs.so.1") is None:
        return subject.missing(
            "no libibverbs.so.1", "RDMA is reached through it", install("libibverbs1 ibverbs-providers")
        )
    providers = [n for f in LIBRARY_FOLDERS for n in machine.names(f"{f}/libibverbs") if n.endswith(".so")]
    if not providers:
        return subject.missing("no providers", "each kind of device has its own library", install("ibverbs-providers"))
    return subject.ok(f"{machine.packages().get('libibverbs1', 'there')}, {len(providers)} providers")


def is_softroce(machine, device):
    return device.startswith("rxe") or machine.exists(f"{DEVICES}/{device}/parent")


def interface_of(machine, device):
    base = f"{DEVICES}/{device}"
    return machine.text(f"{base}/parent") or next(iter(machine.names(f"{base}/device/net")), None)


def ports(machine, device):
    """(number, state, link layer) of a device's ports."""
    found = []
    for port in machine.names(f"{DEVICES}/{device}/ports"):
        state, layer = (
            machine.text(f"{DEVICES}/{device}/ports/{port}/{name}") or "?" for name in ("state", "link_layer")
        )
        found.append((port, state.split(":")[-1].strip(), layer))
    return found


def active_ports(machine, device):
    """(number, link layer) of those that the transport may use."""
    wanted = machine.environment.get("GLOO_BYPASS_RDMA_PORT") or "0"
    return [(p, layer) for p, state, layer in ports(machine, device) if state == "ACTIVE" and wanted in ("0", p)]


def active_devices(machine):
    return [device for device in machine.names(DEVICES) if active_ports(machine, device)]


@dataclass(frozen=True)
class Gid:
    """A place in a port's table that is not empty."""

    device: str
    port: str
    layer: str
    index: int
    address: object  # an IPv4 one where it maps one
    kind: str
    interface: str

    def can_be_listened_at(self):
        """The transport does so, too, and the kernel binds no socket to a link-local address alone."""
        return self.address.version == 4 or not self.address.is_link_local

    def is_chosen_unasked(self):
        """As preference() of device_selection.cc."""
        return "v2" in self.kind and self.can_be_listened_at()

    def in_words(self):
        if self.layer == "InfiniBand":
            return f"{self.device} port {self.port}: InfiniBand"
        return f"{self.device} index {self.index}" + (f": {self.address}" if self.address.version == 6 else "")


def gids(machine, device):
    """Of the device's active ports."""
    for port, layer in active_ports(machine, device):
        base = f"{DEVICES}/{device}/ports/{port}"
        for index in sorted(machine.names(f"{base}/gids"), key=int):
            value = machine.text(f"{base}/gids/{index}") or ""
            if value.strip("0:"):
                address = ipaddress.IPv6Address(value)
                kind, interface = (machine.text(f"{base}/gid_attrs/{n}/{index}") or "" for n in ("types", "ndevs"))
                yield Gid(device, port, layer, int(index), address.ipv4_mapped or address, kind, interface)


def wanted_index(machine):
    """-1: none is named."""
    return integer(machine.environment.get("GLOO_BYPASS_RDMA_GID_INDEX"), -1)


def chosen_gid(machine, device):
    """As chooseGid() of device_selection.cc; None: there is none to use."""
    index = wanted_index(machine)

    def is_usable(one):
        if one.layer == "InfiniBand":
            return one.index == max(index, 0)
        return one.is_chosen_unasked() if index < 0 else one.index == index and one.can_be_listened_at()

    return min(filter(is_usable, gids(machine, device)), key=lambda one: one.address.version, default=None)


def named_devices(machine):
    names = machine.environment.get("GLOO_BYPASS_RDMA_DEVICES")
    return names.split(",") if names else []


def own_addresses(machine):
    """Of this host, from the one that the transport prefers on: the route's to MASTER_ADDR, the host name's."""
    if not udp.is_this(machine):
        return []
    master = machine.environment.get("MASTER_ADDR")
    route = [udp.chosen_address(machine, master)[0]] if master else []
    return route + [one for one in udp.addresses_of(socket.gethostname()) if one.version == 4]


def chosen_devices(machine):
    """As selectRails() of device_selection.cc; none where it refuses to choose."""
    if named_devices(machine):
        return named_devices(machine)
    active, (interface, _) = active_devices(machine), common.named_interface(machine)
    found = [one for device in active for one in gids(machine, device) if one.is_chosen_unasked()]
    if interface:
        return [one.device for one in found if one.interface == interface][:1]
    for own in own_addresses(machine):
        on = [one.device for one in found if one.address == own and not own.is_loopback]
        if on:
            return on[:1]
    return active if len(active) == 1 else []


def proposed_device(machine):
    """One to name where the transport refuses to choose; None: none is active."""
    active = active_devices(machine)
    return next((device for device in active if chosen_gid(machine, device)), next(iter(active), None))


def devices(machine):
    subject, there, named = Subject("RDMA devices"), machine.names(DEVICES), named_devices(machine)
    why, (interface, variable) = "RDMA needs a device with an active port", common.named_interface(machine)
    name_one = f"export GLOO_BYPASS_RDMA_DEVICES={proposed_device(machine) or next(iter(there), 'NAME')}"
    if not there:
        return subject.missing("none", why, f"{SOFTROCE_UP}   # makes one in software, where the kernel can", GUEST)
    absent = [f"'{device}'" for device in named if device not in there]
    if absent:
        return subject.missing(f"no {', '.join(absent)}; there are: {', '.join(there)}", why, name_one)
    if interface and not common.has_interface(machine, interface):
        return common.no_interface(machine, subject, interface, variable, "the transport chooses the device by it")
    every = {device: ports(machine, device) for device in named or there}
    in_words = {d: ", ".join(f"port {p} {state}, {layer}" for p, state, layer in of) for d, of in every.items()}
    described = "; ".join(f"{device}: {said or 'no port'}" for device, said in in_words.items())
    down = [device for device in every if not active_ports(machine, device)]
    if down and (named or down == there):
        below = interface_of(machine, down[0])
        advice = "# plug the cable in; on InfiniBand start a subnet manager (opensm)"
        if below:
            advice = f"sudo ip link set {below} up"
        return subject.missing(described, why, advice, "ibv_devinfo   # of ibverbs-utils: says more")
    if chosen_devices(machine):
        return subject.ok(described)
    if interface:
        return subject.missing(f"none is on {interface}, which {variable} names: {described}", why, name_one)
    return subject.missing(
        f"several are active: {described}",
        "the transport takes the one on the route to MASTER_ADDR, or at the host name's address: none is there",
        name_one,
    )


def gid(machine):
    """RoCE carries packets from a GID that is an IP address; InfiniBand has one by itself."""
    subject = Subject("GID")
    wanted = chosen_devices(machine) or [proposed_device(machine)]
    if not all(active_ports(machine, device) for device in wanted):
        return subject.missing("no active port", "its address is where packets come from")
    chosen = {device: chosen_gid(machine, device) for device in wanted}
    lacking = [device for device in wanted if chosen[device] is None]
    add = f"sudo ip address add 10.77.0.1/24 dev {interface_of(machine, (lacking or wanted)[0]) or 'INTERFACE'}"
    if lacking:
        others = [f"index {one.index}: {one.address} {one.kind}" for one in gids(machine, lacking[0])]
        return subject.missing(
            f"{lacking[0]}: none of RoCE v2 with an IPv4 address"
            + (f"; there are {'; '.join(others[:4])}" if others else ""),
            "ranks find each other by IPv4 addresses",
            "unset GLOO_BYPASS_RDMA_GID_INDEX" if wanted_index(machine) >= 0 else add,
        )
    found = "; ".join(one.in_words() for one in chosen.values())
    if any(one.layer != "InfiniBand" and one.address.version == 6 for one in chosen.values()):
        return subject.warning(found, "the transport takes it, but IPv6 is supported over UDP only", add)
    return subject.ok(found)


def device_files(machine):
    subject = Subject("/dev/infiniband")
    files = [n for n in machine.names("/dev/infiniband") if n.startswith("uverbs")]
    why = "programs reach a device through it"
    if not files and machine.names(DEVICES):
        advice = "sudo modprobe ib_uverbs"
        if machine.container():
            advice = "# start the container with: --device /dev/infiniband"
        return subject.missing("no uverbs files", why, advice)
    closed = [n for n in files if not machine.writable(f"/dev/infiniband/{n}")]
    if closed:
        return subject.missing(
            f"{closed[0]} is not writable for this user", why, f"sudo chmod 666 /dev/infiniband/{closed[0]}"
        )
    return subject.ok(", ".join(files) or "no device, so no file")


def registration_cache(machine):
    subject = Subject("registration cache")
    if machine.process("Seccomp") == "2" and not machine.may("sys_admin"):
        return subject.warning(
            "a seccomp filter is on",
            "if it forbids userfaultfd, no registration is kept: slower, never wrong",
            "# podman: --security-opt seccomp=FILE, a profile that allows userfaultfd (as run-containers does)",
        )
    return subject.ok("nothing forbids userfaultfd, as far as can be seen")


def softroce_module(machine):
    subject = Subject("module rdma_rxe")
    if machine.exists("/sys/module/rdma_rxe"):
        return subject.ok("loaded")
    kernel = machine.kernel()
    if "/rdma_rxe.ko" in (machine.text(f"/lib/modules/{kernel}/modules.dep") or ""):
        return subject.ok(f"there for Linux {kernel}; {tool('softroce')} loads it")
    if "/rdma_rxe.ko" in (machine.text(f"/lib/modules/{kernel}/modules.builtin") or ""):
        return subject.ok("built in")
    return subject.missing(
        f"not there for Linux {kernel}",
        "it is SoftRoCE",
        "sudo apt-get install linux-image-amd64   # and start it",
        GUEST,
    )


def softroce_device(machine):
    subject = Subject("SoftRoCE device")
    soft = [d for d in machine.names(DEVICES) if is_softroce(machine, d)]
    if soft:
        return subject.ok(", ".join(soft))
    return subject.missing("none", f"{tool('softroce')} makes one on an interface of its own", SOFTROCE_UP)


def softroce_tools(machine):
    subject = Subject("tools")
    folders = ("usr/bin", "usr/sbin", "bin", "sbin")
    absent = [t for t in ("ip", "rdma", "modprobe") if not any(machine.exists(f"{f}/{t}") for f in folders)]
    if absent:
        return subject.missing(f"no {', '.join(absent)}", f"{tool('softroce')} calls them", install("iproute2 kmod"))
    return subject.ok("ip, rdma, modprobe")
