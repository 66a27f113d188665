"""The ports of this machine's RDMA devices, as the kernel shows them below /sys/class/infiniband. Pure but for reading
there."""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/class/infiniband")
IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"


@dataclass(frozen=True)
class Port:
    """An active port and the GID that RDMA traffic uses there. `interface` is '' on InfiniBand."""

    device: str
    number: int
    gid_index: int
    interface: str
    in_software: bool

    def in_words(self):
        return f"{self.device} port {self.number}" + (f" on {self.interface}" if self.interface else "")


def line_of(path):
    """The first line, or '' where it cannot be read: an unused entry of a GID table cannot."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0].strip()
    except OSError:
        return ""


def numbered(folder):
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


def usable_gid(folder):
    """(index, interface) of the port's RoCEv2 GID for an IPv4 address; of InfiniBand, index 0; None where neither is
    there."""
    if line_of(folder / "link_layer") == "InfiniBand":
        return 0, ""
    for index in numbered(folder / "gids"):
        if (
            line_of(folder / "gids" / str(index)).startswith(IPV4_MAPPED)
            and line_of(folder / "gid_attrs" / "types" / str(index)) == "RoCE v2"
        ):
            return index, line_of(folder / "gid_attrs" / "ndevs" / str(index))
    return None


def active(root=ROOT):
    """The active ports that have a usable GID, by device and number."""
    found = []
    try:
        devices = sorted(os.listdir(root))
    except OSError:
        return []
    for device in devices:
        for number in numbered(root / device / "ports"):
            folder = root / device / "ports" / str(number)
            gid = usable_gid(folder)
            if gid and line_of(folder / "state").endswith("ACTIVE"):
                found.append(Port(device, number, *gid, "/virtual/" in os.path.realpath(root / device)))
    return found


def chosen(ports, environment):
    """The port that the transport would take: the device and port that the environment names, else the first; None if
    none fits."""
    device = environment.get("GLOO_BYPASS_RDMA_DEVICES", "").split(",")[0]
    interface = environment.get("GLOO_BYPASS_INTERFACE", "")
    number = environment.get("GLOO_BYPASS_RDMA_PORT", "")
    number = number if number.isdecimal() else "0"  # tcp://... is Kubernetes', of a Service "gloo-bypass-rdma"
    for port in ports:
        if (
            device in ("", port.device)
            and number in ("0", str(port.number))
            and (device or not interface or interface == port.interface)
        ):
            return port
    return None
