"""Checks of UDP through the kernel's sockets. On this machine a socket is opened and closed again, which sends nothing;
of a made-up one, files tell."""
import socket
from pathlib import Path

from gloo_bypass_tools.doctor.finding import missing, ok, warning
from gloo_bypass_tools.doctor.machine import integer

SOL_UDP, UDP_SEGMENT = 17, 103
SEGMENTATION_SINCE = (4, 18)


def is_this(machine):
    return machine.root.samefile(Path("/"))


def sockets(machine):
    name = "UDP socket"
    try:
        if is_this(machine):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.bind(("", 0))
        elif not machine.exists("/proc/net/udp"):
            raise OSError(0, "the kernel has no UDP over IPv4")
    except OSError as error:
        return missing(name, error.strerror, "the transport is made of sockets that are bound to a port",
                       "# allow it: a seccomp filter or a security module forbids it, or the kernel has no IPv4")
    return ok(name, "it can be bound")


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
    name = "segmentation offload"
    if knows_segmentation(machine):
        return ok(name, "the kernel knows UDP_SEGMENT")
    return warning(name, "the kernel does not know UDP_SEGMENT", "each datagram is sent by itself, which is slower",
                   "# use Linux 4.18 or newer")
