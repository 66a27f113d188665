"""Where to measure: all transports that are compared run on the same machine, and RDMA needs one that has a device.
Pure."""

from dataclasses import asdict, dataclass

from gloo_bypass_tools.common.failures import BAD_INPUT, Failure
from gloo_bypass_tools.common.transports import BY_NAME

HOST, GUEST = "host", "guest"


class PlaceError(Failure):
    """There is no place for this comparison."""

    status = BAD_INPUT


@dataclass(frozen=True)
class Place:
    """`kind` is HOST or GUEST; `device` names the RDMA port that is there, '' if none; `why` says why the guest was
    taken."""

    kind: str
    device: str = ""
    in_software: bool = False
    why: str = ""

    @property
    def emulated(self):
        return self.kind == GUEST

    def as_record(self):
        return asdict(self)

    def in_words(self):
        """A phrase for the table and the page."""
        if self.kind == GUEST:
            return "in a guest under software emulation (QEMU), with RDMA in software (SoftRoCE)"
        if not self.device:
            return "on this machine"
        kind = "in software (SoftRoCE)" if self.in_software else "of its adapter"
        return f"on this machine, with RDMA {kind}: {self.device}"


def from_record(record):
    """The place of a results folder; folders of earlier versions were measured on the host."""
    known = record.get("place") or {}
    return Place(
        **{key: known[key] for key in ("kind", "device", "in_software", "why") if key in known} or {"kind": HOST}
    )


def choose(asked, transports, ports, guest_problem):
    """The Place for these transports. `asked` is 'auto', HOST or GUEST; `ports` are the host's active RDMA ports;
    `guest_problem()` says in a line why the guest is not available, or nothing.
    """
    needs_device = any(transport in BY_NAME and BY_NAME[transport].needs_device for transport in transports)
    here = Place(HOST, ports[0].in_words(), ports[0].in_software) if ports else Place(HOST)
    if asked == HOST or asked == "auto" and (ports or not needs_device):
        if needs_device and not ports:
            raise PlaceError(
                "this machine has no RDMA device with an active port and an IPv4 address: scripts/softroce up makes "
                "one in software where the kernel has rdma_rxe, --where guest measures in a guest"
            )
        return here
    problem = guest_problem()
    if problem:
        lacking = "" if asked == GUEST else "this machine has no RDMA device with an active port, and "
        raise PlaceError(f"{lacking}the guest is not available: {problem}")
    why = "it was asked for" if asked == GUEST else "this machine has no RDMA device with an active port"
    return Place(GUEST, "", True, why)


def remark(where):
    """Why RDMA in software may lose to TCP, and what an adapter changes; '' if RDMA is in hardware."""
    if not where.in_software:
        return ""
    slower = " and the processor itself is emulated" if where.emulated else ""
    return (
        "RDMA is in software here: the kernel's SoftRoCE makes and checks each packet of at most 4 KiB on the "
        f"processor{slower}, while TCP over the loopback moves segments of 64 KiB and makes no packet at all: TCP "
        "can win on bandwidth. With a real adapter the bytes of RDMA cost no processor time and those of TCP do."
    )
