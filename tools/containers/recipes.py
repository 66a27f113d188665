"""What a rank's container gets for each transport, and why. The one place for it: the launcher and the compose
files are made from it, and containers/README.md prints it.

A rank starts from nothing: an unprivileged user, no capability, no way to get one, a read-only root file system, a
network of its own. Each Grant takes one step back from there.
"""

from dataclasses import dataclass, field

# The user of the rank image (containers/Containerfile).
RANK_USER = 1000
# Where the ranks' common volume is mounted, and the folder in it that the first rank makes, for its user alone.
SHARED_DIRECTORY = "/run/gloo-bypass"
MEMIF_DIRECTORY = SHARED_DIRECTORY + "/memif"
RESULTS_DIRECTORY = "/results"
MASTER_PORT = 29500


@dataclass(frozen=True)
class Grant:
    """One thing that a rank gets. `kind` is capability, device, user, limit, network, syscall or volume."""

    kind: str
    value: str
    reason: str


@dataclass(frozen=True)
class Recipe:
    """How the ranks of one transport run."""

    transport: str
    summary: str
    environment: dict
    grants: tuple = field(default=())

    def granted(self, kind):
        return [grant.value for grant in self.grants if grant.kind == kind]

    @property
    def host_network(self):
        return "host" in self.granted("network")

    @property
    def user(self):
        users = self.granted("user")
        return int(users[0]) if users else RANK_USER

    @property
    def shares_memif(self):
        return "memif" in self.granted("volume")


RECIPES = {
    recipe.transport: recipe
    for recipe in (
        Recipe("TCP", "Gloo's own TCP over the container network", {"GLOO_DEVICE_TRANSPORT": "TCP"}),
        Recipe("UDP", "UDP sockets over the container network", {"GLOO_DEVICE_TRANSPORT": "UDP"}),
        Recipe(
            "DPDK",
            "DPDK over shared memory (memif): containers of one machine",
            {
                "GLOO_DEVICE_TRANSPORT": "DPDK",
                "GLOO_BYPASS_LINK": "memif",
                "GLOO_BYPASS_MEMIF_DIRECTORY": MEMIF_DIRECTORY,
            },
            (
                Grant(
                    "volume",
                    "memif",
                    "the ranks' sockets lie in it; memory and wake-up pages are handed over through them, so that no "
                    "IPC or process namespace is shared",
                ),
            ),
        ),
        # Each container's own /tmp: what it does not share keeps its memory links to itself.
        Recipe(
            "DPDK-auto",
            "DPDK over shared memory within a container, UDP between containers",
            {"GLOO_DEVICE_TRANSPORT": "DPDK", "GLOO_BYPASS_MEMIF_DIRECTORY": "/tmp/gloo-bypass"},
        ),
        Recipe(
            "DPDK-netdev",
            "DPDK over the container network (af_packet)",
            {"GLOO_DEVICE_TRANSPORT": "DPDK", "GLOO_BYPASS_LINK": "netdev"},
            (
                Grant(
                    "capability",
                    "NET_RAW",
                    "opens a packet socket on the container's interface; it sees this container's traffic only",
                ),
                Grant(
                    "capability",
                    "NET_ADMIN",
                    "DPDK sets the interface's flags when it starts its driver; of the container's own network only",
                ),
                Grant(
                    "capability",
                    "IPC_LOCK",
                    "the packet socket's rings, 8 MiB a device, are locked in memory; the usual limit is 8 MiB in all",
                ),
                Grant(
                    "user",
                    "0",
                    "docker and Kubernetes give capabilities to root alone; of root's powers it has these three only",
                ),
            ),
        ),
        Recipe(
            "RDMA",
            "RDMA verbs: an adapter, or SoftRoCE",
            {"GLOO_DEVICE_TRANSPORT": "RDMA"},
            (
                Grant(
                    "network",
                    "host",
                    "a RoCE device belongs to the network namespace that holds its interface (rdma system netns shows "
                    "the mode)",
                ),
                Grant("device", "/dev/infiniband", "the verbs' character devices"),
                Grant(
                    "limit",
                    "memlock=-1:-1",
                    "the adapter reads and writes registered memory, which may not be paged out",
                ),
                Grant(
                    "syscall",
                    "userfaultfd",
                    "registered memory is kept for its next use only if the kernel can tell when it is unmapped",
                ),
            ),
        ),
    )
}
