"""The transports by the names that commands have for them: the one table that doctor, report, study and fabric_run
iterate over. Pure.
"""

from __future__ import annotations  # ranks run under Python 3.9 too

from dataclasses import dataclass

SWITCH, NETEM, NOWHERE = "switch", "netem", ""


@dataclass(frozen=True)
class Transport:
    """`name`: its name in commands. `device`: its name in GLOO_DEVICE_TRANSPORT, '' if only all_reduce_perf can use it.
    `settings`: further ones of a rank. `links`: what emulates its links, the fabric's switch or the kernel's netem.
    `variant_of`: the transport that this is over other links; only studies tell the two apart. `own_namespaces`: over
    the switch each rank is in a network namespace of its own. `needs_device`: it needs an RDMA device. `paths`:
    gloo-bypass-doctor's names for the ways that its packets can go. `look`: its place among the colours, markers and
    dashes of every plot; None: its order there decides. `heading`: a short name for tables. `by_default`: comparisons
    include it unless the user chooses transports."""

    name: str
    device: str
    links: str = SWITCH
    variant_of: str = ""
    own_namespaces: bool = False
    needs_device: bool = False
    settings: tuple = ()
    paths: tuple = ()
    look: int | None = None
    heading: str = ""
    by_default: bool = True


TABLE = (
    Transport("TCP", "TCP", own_namespaces=True, look=0),
    Transport("DPDK", "DPDK", paths=("memif", "udp", "pci"), look=1),
    Transport(
        "DPDK-netdev", "DPDK", own_namespaces=True, settings=(("GLOO_BYPASS_LINK", "netdev"),), paths=("netdev",)
    ),
    Transport("UDP", "UDP", own_namespaces=True, paths=("udp",), look=4, by_default=False),
    Transport("RDMA", "RDMA", links=NETEM, needs_device=True, paths=("rdma",), look=2),
    Transport("TCP-netem", "TCP", links=NETEM, variant_of="TCP", own_namespaces=True, look=3),
    Transport("GLOO_IBVERBS", "", links=NOWHERE, needs_device=True, look=3, heading="ibverbs"),
)
BY_NAME = {one.name: one for one in TABLE}
# What GLOO_DEVICE_TRANSPORT can be.
DEVICES = tuple(dict.fromkeys(one.device for one in TABLE if one.device))
# With gloo-bypass's own collectives, over each of its transports.
OWN_SUFFIX = "/own"
OWN = tuple(name + OWN_SUFFIX for name in DEVICES if name != "TCP")
# What keeps others from reading along between two ranks of one host: Gloo's TLS, and our sealed datagrams.
TLS, SEALED_SUFFIX = "TCP_TLS", "/sealed"
ENCRYPTED = (TLS,) + tuple(name + SEALED_SUFFIX for name in ("UDP", "UDP" + OWN_SUFFIX))
COMPARED = tuple(one.name for one in TABLE if one.name == one.device and one.by_default)
# What all_reduce_perf and ddp_train know: the devices, and Gloo's own.
BENCHMARKED = tuple(one.name for one in TABLE if one.name == one.device or not one.device)


def names(condition):
    return tuple(one.name for one in TABLE if condition(one))


def device_of(name):
    """What GLOO_DEVICE_TRANSPORT is to be, and whether our own collectives run."""
    name = name.removesuffix(SEALED_SUFFIX)
    return name.removesuffix(OWN_SUFFIX), name.endswith(OWN_SUFFIX)


def is_sealed(name):
    return name.endswith(SEALED_SUFFIX)


def is_gloos(name):
    """Whether it is one that PyTorch has without us."""
    return name in ("TCP", TLS)


def settings_of(name):
    """Of a rank over this transport."""
    device, own = device_of(name)
    settings = {"GLOO_DEVICE_TRANSPORT": device, "GLOO_BYPASS_COLLECTIVES": "own" if own else "gloo"}
    return settings | ({"GLOO_BYPASS_SECURITY": "encrypt"} if is_sealed(name) else {})


def name_by(settings):
    """The transport's name, by the settings of a rank."""
    own = settings.get("GLOO_BYPASS_COLLECTIVES") == "own"
    device = settings.get("GLOO_DEVICE_TRANSPORT", "TCP")
    sealed = settings.get("GLOO_BYPASS_SECURITY") == "encrypt" and not is_gloos(device)
    return device + (OWN_SUFFIX if own else "") + (SEALED_SUFFIX if sealed else "")
