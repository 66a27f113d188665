"""The links that are compared, and the settings of their ranks. Pure."""

from dataclasses import dataclass

INSIDE, BETWEEN, FAR = "inside a machine", "between two namespaces", "300 ms, 1 % loss"
INTERFACE = "link0"


@dataclass(frozen=True)
class Link:
    """`name` is what --links takes, `title` what tables say; `mtu`: of the veth pair between the two ranks' namespaces,
    or 0: both are in one. `settings(rank, folder)`: of a rank, where `folder` is for sockets."""

    name: str
    title: str
    where: str
    transport: str
    mtu: int = 0
    settings: object = None


def memif(_rank, folder):
    return {"GLOO_BYPASS_LINK": "memif", "GLOO_BYPASS_MEMIF_DIRECTORY": f"{folder}/memif"}


def netdev(_rank, _folder):
    return {"GLOO_BYPASS_LINK": "netdev", "GLOO_BYPASS_INTERFACE": INTERFACE}


def vhost(mtu):
    # virtio-user waits for vhost, which tries again until it is there: so neither has to be started first.
    def settings(rank, folder):
        vhost, virtio = ("net_vhost0,iface={},client=1", "net_virtio_user0,path={},server=1")
        device = (virtio if rank else vhost).format(f"{folder}/vhost.sock")
        return {
            "GLOO_BYPASS_LINK": "pci",
            "GLOO_BYPASS_PCI_ADDRESS": device,
            "GLOO_BYPASS_MTU": mtu,
            "GLOO_BYPASS_IPV4": f"10.78.0.{rank + 1}/24",
        }

    return settings


TABLE = (
    Link("memif", "memif", INSIDE, "DPDK", settings=memif),
    Link("udp", "UDP", INSIDE, "UDP"),
    *(
        link
        for mtu in (1500, 9000)
        for link in (
            Link(f"netdev-{mtu}", f"netdev {mtu}", BETWEEN, "DPDK", mtu, netdev),
            Link(f"udp-{mtu}", f"UDP {mtu}", BETWEEN, "UDP", mtu),
            Link(f"vhost-{mtu}", f"vhost {mtu}", BETWEEN, "DPDK", mtu, vhost(mtu)),
        )
    ),
)
BY_NAME = {link.name: link for link in TABLE}
# Four ranks and one slow edge, over scripts/fabric-run.
FAR_NAME, FAR_TITLE, FAR_TRANSPORTS, FAR_BYTES = "far", "one far edge", ("TCP", "DPDK", "UDP"), 16 << 20
FAR_EDGE = "from=r3,to=r2,delay=300ms,loss=1%,queue=64MiB"


def iterations(count):
    """Timed ones of a round for this size: many short ones, a few long ones."""
    return max(4, min(500, (128 << 20) // count))
