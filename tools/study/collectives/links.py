"""The links of the study, and what is compared on each. Pure.

A contender is a column of the tables: an algorithm of ours by its name, `flat` and `hierarchical`, which are executors
without a choice, and Gloo's ring over the same link. `transports` are the names by which all_reduce_perf measures them.
"""

from dataclasses import dataclass

from gloo_bypass_tools.study.plan import SETTINGS

GLOO, FLAT, HIERARCHICAL = "Gloo's ring", "flat", "hierarchical"
EXECUTORS = (FLAT, HIERARCHICAL)
OWN = "/own"
# Memory within a host, and the network.
LOCAL = "DPDK"
NETWORK = "UDP"
# Two-level algorithms are others where hosts have several ranks; elsewhere they are those that they are made of.
TWO_LEVELS = "two-level-"
RANKS = (2, 4, 8)
# Of an emulated link: slow enough that it, and not the switch on two cores, bounds most of what is measured.
RATE_MBIT, DELAY_MS, QUEUE = 20.0, 10.0, "4MiB"
KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Band:
    """Sizes from `least` to `most`, each `factor` times the one before; `iterations` in each of `rounds`."""

    least: int
    most: int
    factor: int
    iterations: int
    rounds: int

    def sizes(self):
        size, found = self.least, []
        while size <= self.most:
            found.append(size)
            size *= self.factor
        return found


@dataclass(frozen=True)
class Effort:
    """`bands` of links without delay, `far_bands` of emulated ones; every run `repeats` times, in turn."""

    ranks: tuple
    bands: tuple
    far_bands: tuple
    repeats: int = 1


# The first iterations of a round are slower than later ones, since another contender had the caches: many short ones.
EFFORTS = {
    "full": Effort(
        RANKS,
        (Band(64, 64 * KIB, 4, 60, 5), Band(256 * KIB, MIB, 4, 20, 5), Band(4 * MIB, 16 * MIB, 4, 5, 5)),
        (Band(KIB, 4 * MIB, 4, 3, 3),),
        repeats=3,
    ),
    "short": Effort(
        RANKS,
        (Band(64, 16 * KIB, 16, 40, 5), Band(256 * KIB, 256 * KIB, 16, 20, 5), Band(4 * MIB, 4 * MIB, 16, 5, 5)),
        (Band(KIB, MIB, 32, 2, 2),),
    ),
    "tiny": Effort((2,), (Band(64, 16 * KIB, 256, 3, 1),), (Band(KIB, 16 * KIB, 16, 1, 1),)),
}


@dataclass(frozen=True)
class Setup:
    """One set of processes. `name`: in messages. `transports(algorithms)`: what they compare, by name of a contender.
    `host_of(rank, ranks)`: the namespace of each rank; None: all are in this one. `settings(host, folder)`: of a
    rank."""

    name: str
    transports: object
    host_of: object = None
    settings: object = None


@dataclass(frozen=True)
class Link:
    """`shared`: its hosts have several ranks. `far`: it is emulated, with RATE_MBIT and DELAY_MS of each edge.
    `default`: what runs there unless the user says otherwise; None: what the table chooses."""

    name: str
    title: str
    setups: tuple
    least_ranks: int = 2
    shared: bool = False
    far: bool = False
    default: str | None = None

    def bands(self, effort):
        return effort.far_bands if self.far else effort.bands

    def ranks(self, effort):
        return [ranks for ranks in effort.ranks if ranks >= self.least_ranks]

    def has(self, algorithm):
        return self.shared or not algorithm.startswith(TWO_LEVELS)

    def hosts(self, ranks):
        """The host of each rank, for the table and for two levels; none where each has its own."""
        return tuple(two_hosts(rank, ranks) for rank in range(ranks)) if self.shared else ()


def two_hosts(rank, ranks):
    return rank // (ranks // 2)


def own_host(rank, _ranks):
    return rank


def by_name(transport, algorithms):
    return {name: f"{transport}{OWN}:{name}" for name in algorithms}


def memif(_host, folder):
    """Channels in memory between namespaces, which would be other hosts to a group of ranks."""
    return {"GLOO_BYPASS_LINK": "memif", "GLOO_BYPASS_MEMIF_DIRECTORY": f"{folder}/memif"}


def of_host(host, folder):
    return {"GLOO_BYPASS_MEMIF_DIRECTORY": f"{folder}/memif-{host}"}


LINKS = (
    Link(
        "memory",
        "Memory of one host",
        (
            Setup("one namespace", lambda algorithms: {GLOO: LOCAL, FLAT: f"{LOCAL}{OWN}"}),
            Setup("channels", lambda algorithms: by_name(LOCAL, algorithms), own_host, memif),
        ),
        default=FLAT,
    ),
    Link(
        "hosts",
        "Each rank on a host of its own, UDP",
        (Setup("hosts", lambda algorithms: {GLOO: NETWORK, **by_name(NETWORK, algorithms)}, own_host),),
    ),
    Link(
        "two-hosts",
        "Two hosts with half of the ranks each",
        (
            Setup(
                "two hosts",
                lambda algorithms: {GLOO: NETWORK, **by_name(NETWORK, algorithms), HIERARCHICAL: f"{LOCAL}{OWN}"},
                two_hosts,
                of_host,
            ),
        ),
        least_ranks=4,
        shared=True,
        default=HIERARCHICAL,
    ),
    Link(
        "far",
        f"Emulated links of {DELAY_MS:g} ms and {RATE_MBIT:g} Mbit/s, UDP",
        (
            Setup(
                "emulated",
                lambda algorithms: {GLOO: NETWORK, **by_name(NETWORK, algorithms)},
                settings=lambda host, folder: SETTINGS,
            ),
        ),
        far=True,
    ),
)
BY_NAME = {link.name: link for link in LINKS}
