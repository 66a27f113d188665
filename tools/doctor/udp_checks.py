"""Checks of UDP through the kernel's sockets. On this machine a socket is opened and closed again, which sends nothing;
of a made-up one, files tell."""

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from gloo_bypass_tools.doctor import common_checks as common
from gloo_bypass_tools.doctor.finding import Subject
from gloo_bypass_tools.doctor.machine import integer

SOL_UDP, UDP_SEGMENT = 17, 103
SEGMENTATION_SINCE = (4, 18)
SIOCGIFADDR = 0x8915
DISCARD_PORT = 9  # a route is the same for all ports
BUFFER_BYTES = 4 << 20  # kSocketBufferBytes of transport/udp/udp_socket.cc
ELSEWHERE = ("192.0.2.1", "2001:db8::1")  # of no host: reserved for documents


def is_this(machine):
    return machine.root.samefile(Path("/"))


def sockets(machine):
    subject = Subject("UDP socket")
    try:
        if is_this(machine):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.bind(("", 0))
        elif not machine.exists("/proc/net/udp"):
            raise OSError(0, "the kernel has no UDP over IPv4")
    except OSError as error:
        return subject.missing(
            error.strerror,
            "the transport is made of sockets that are bound to a port",
            "# allow it: a seccomp filter or a security module forbids it, or the kernel has no IPv4",
        )
    return subject.ok("it can be bound")


def knows_segmentation(machine):
    if not is_this(machine):
        version = (machine.text("/proc/sys/kernel/osrelease") or "").split(".")
        return tuple(integer(part, 0) for part in version[:2]) >= SEGMENTATION_SINCE
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
    except OSError:
        return False
    return True


def segmentation(machine):
    subject = Subject("segmentation offload")
    if knows_segmentation(machine):
        return subject.ok("the kernel knows UDP_SEGMENT")
    return subject.warning(
        "the kernel does not know UDP_SEGMENT",
        "each datagram is sent by itself, which is slower",
        "# use Linux 4.18 or newer",
    )


def buffers(machine):
    """The kernel grants less than is asked for, without a word, unless one may exceed its limits."""
    subject = Subject("socket buffers")
    limits = {name: machine.text(f"/proc/sys/net/core/{name}") for name in ("rmem_max", "wmem_max")}
    small = {name: integer(text, 0) for name, text in limits.items() if text and integer(text, 0) < BUFFER_BYTES}
    if machine.may("net_admin") or (not small and all(limits.values())):
        return subject.ok(f"{BUFFER_BYTES >> 20} MiB each way")
    if not small:
        return subject.ok("what the kernel grants is not shown here")
    return subject.warning(
        ", ".join(f"{name} is {value >> 10} KiB" for name, value in small.items()),
        f"a rank asks for {BUFFER_BYTES >> 20} MiB; of what does not fit while it waits for a core, datagrams are lost",
        "sudo sysctl -w " + " ".join(f"net.core.{name}={BUFFER_BYTES}" for name in small),
    )


def addresses_of(host):
    """The loopback last, IPv4 first; none of an unknown name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM) if host else []
    except OSError:
        return []
    return sorted(
        (ipaddress.ip_address(row[4][0].partition("%")[0]) for row in found),
        key=lambda one: (one.is_loopback, one.version),
    )


def route_source(peer):
    """The address from which the kernel's route leads to `peer`; None: there is no route."""
    try:
        with socket.socket(socket.AF_INET if peer.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as one:
            one.connect((str(peer), DISCARD_PORT))
            return ipaddress.ip_address(one.getsockname()[0].partition("%")[0])
    except OSError:
        return None


def others_can_send_to(own):
    return own is not None and not own.is_loopback and not (own.version == 6 and own.is_link_local)


def addresses_of_interface(machine, name):
    """Those that other hosts can send to; IPv4 first."""
    rows = [line.split() for line in (machine.text("/proc/net/if_inet6") or "").splitlines()]
    own = [ipaddress.IPv6Address(int(row[0], 16)) for row in rows if row[5] == name]
    own = [one for one in own if others_can_send_to(one)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()))
            own.insert(0, ipaddress.IPv4Address(answer[20:24]))
        except OSError:
            pass  # it has no IPv4 address
    return own


def addresses_by_interface(machine):
    """The addresses of each interface that leads to other hosts; IPv4 first."""
    up = (name for name in machine.interfaces() if machine.number(f"/sys/class/net/{name}/carrier") == 1)
    found = {name: addresses_of_interface(machine, name) for name in up}
    return {name: own for name, own in found.items() if own}


def chosen_address(machine, master):
    """(address, why) as transport/network/local_address.h has it; the loopback's and "" where nothing leads out."""
    towards = addresses_of(master)
    for peer in towards:
        own = route_source(peer)
        if others_can_send_to(own):
            return own, f"the route to MASTER_ADDR={master} begins there"
    where = "leads to the loopback" if any(one.is_loopback for one in towards) else "leads nowhere"
    hint = f"MASTER_ADDR={master} {where}" if master else "MASTER_ADDR is not set"
    v6_first = bool(towards) and towards[0].version == 6
    for elsewhere in sorted(map(ipaddress.ip_address, ELSEWHERE), key=lambda one: (one.version == 6) != v6_first):
        own = route_source(elsewhere)
        if others_can_send_to(own):
            return own, f"the default route begins there ({hint})"
    outward = addresses_by_interface(machine)
    for own in addresses_of(socket.gethostname()):
        if any(own in each for each in outward.values()):
            return own, f"the host's own name leads there ({hint}, and there is no default route)"
    if len(outward) == 1:
        ((name, own),) = outward.items()
        return own[-1 if v6_first else 0], f"{name} is the only interface ({hint}, and there is no default route)"
    return ipaddress.ip_address("127.0.0.1"), ""


def is_address(text):
    try:
        return ipaddress.ip_address(text) is not None
    except ValueError:
        return False


def named_address(machine, subject, names, variable):
    """As addressOfInterface() of transport/network/local_address.cc; addresses may stand among the names."""
    why = "the transport binds its sockets to the address"
    for name in names.split(","):
        if is_address(name):
            continue
        if not common.has_interface(machine, name):
            return common.no_interface(machine, subject, name, variable, why)
        if not common.is_up(machine, name):
            return subject.missing(f"{name}: down", why, f"sudo ip link set {name} up")
        if name != "lo" and is_this(machine) and not addresses_of_interface(machine, name):
            return subject.missing(
                f"{name} has no address that other hosts can send to",
                why,
                f"sudo ip address add 10.77.0.1/24 dev {name}",
            )
    return subject.ok(f"that of {names}, which {variable} names")


def address(machine):
    """By which address other ranks would send to one on this machine."""
    subject = Subject("address")
    names, variable = common.named_interfaces(machine)
    if names:
        return named_address(machine, subject, names, variable)
    if not is_this(machine):
        return subject.ok("as the machine's routes have it, which its files do not tell")
    own, why = chosen_address(machine, machine.environment.get("MASTER_ADDR", ""))
    if why:
        return subject.ok(f"{own}: {why}")
    there, here = sorted(addresses_by_interface(machine)), "ranks of this machine alone reach each other"
    if not there:
        return subject.warning(
            str(own),
            f"no interface leads to other hosts: {here}",
            "# connect it to a network, if ranks are to run elsewhere",
        )
    return subject.warning(
        str(own),
        f"no route and no name says which interface leads to other hosts: {here}",
        f"export GLOO_SOCKET_IFNAME={there[0]}   # one of: {' '.join(there)}",
    )
