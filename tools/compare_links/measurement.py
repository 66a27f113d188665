"""The ranks of each comparison as processes, and what they measured.

Whatever slows the machine should slow all that is compared: TCP and the other transport of a link are measured by the
same two processes, one after the other, and every round goes over all links, so that a slow minute takes one round of a
few cells, not a cell.
"""

import json
import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.common.rank_processes import QuietRanks, StillRunning, clean_environment
from gloo_bypass_tools.compare_links import links
from gloo_bypass_tools.fabric_run import network
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.report import records

# Of one link and size in one round; of one all-reduce.
RUN_S, OPERATION_S = 300.0, 60
# TCP recovers slowly from a loss over 300 ms.
FAR_RUN_S, FAR_OPERATION_S, FAR_ITERATIONS = 3600.0, 1800, 2
RANKS = 2


class LinkError(Exception):
    """A link that cannot be measured; the text is one line."""


class NoNamespaces(LinkError):
    """None can be made here."""


@dataclass(frozen=True)
class Cell:
    """What one run measures. `run(round)`: (the program's commit, its figures by transport). `link`: where one of its
    cells cannot connect, the others cannot."""

    link: str
    title: str
    where: str
    bytes: int
    transports: tuple
    run: object


@dataclass(frozen=True)
class Missing:
    """A cell without figures in a round, and why."""

    cell: Cell
    round: int
    why: str


def said_in(log, program):
    """The reason of a failure, from its log: the program's own line, or the last one."""
    lines = Path(log).read_text(errors="replace").splitlines()
    own = [line for line in lines if line.startswith(f"{program}: ")]
    return (own[0].removeprefix(f"{program}: ") if own else processes.last_line(log)) or "it said nothing"


def row_of(cell, transport, rounds):
    """A row of a stored run, from that transport's figures of each round: the median of the medians, the worst p99."""
    return {
        "link": cell.title,
        "where": cell.where,
        "bytes": cell.bytes,
        "transport": transport,
        "median_us": statistics.median(one["p50_us"] for one in rounds),
        "p99_us": max(one["p99_us"] for one in rounds),
        "bus_GBps": statistics.median(one["busbw_gb_s"] for one in rounds),
    }


def figures_of(path):
    """(the program's commit, its figures by transport) of a report about one size. LinkError where results are
    wrong."""
    report = json.loads(path.read_text())
    (result,) = report["results"]
    for one in result["transports"]:
        if one["wrong"]:
            raise LinkError(f"{one['transport']}: {one['wrong']} elements of the result are wrong")
    return report["build"]["commit"], {one["transport"]: one for one in result["transports"]}


class Measurement:
    """`folder`: for sockets, namespaces and results, taken away by its owner. `no_namespaces`: why none can be made,
    or ''."""

    def __init__(self, options, folder, no_namespaces=""):
        self.options, self.folder, self.no_namespaces = options, Path(folder), no_namespaces
        self.found, self.missing, self.commits = {}, [], set()
        self.namespaces = {}
        self.count = 0

    def prefixes_of(self, link):
        """Words that lead each rank into its network namespace."""
        if not link.mtu:
            return [[] for _ in range(RANKS)]
        if self.no_namespaces:
            raise NoNamespaces(self.no_namespaces)
        if link.mtu not in self.namespaces:
            self.namespaces[link.mtu] = self.make_namespaces(link.mtu)
        return [namespace.prefix() for namespace in self.namespaces[link.mtu]]

    def make_namespaces(self, mtu):
        pair = [network.NetworkNamespace(self.folder / f"{mtu}-{rank}.net") for rank in range(RANKS)]
        for namespace in pair:
            namespace.create()
        name = links.INTERFACE
        veth = f"link add {name} mtu {mtu} type veth peer name {name} mtu {mtu} netns {pair[1].path}"
        network.carry_out("ip", [veth], pair[0].prefix())
        for rank, namespace in enumerate(pair):
            commands = ["link set lo up", f"addr add 10.77.0.{rank + 1}/24 dev {name}", f"link set {name} up"]
            network.carry_out("ip", commands, namespace.prefix())
        return pair

    def all_reduce(self, link, count, number):
        """Both transports' figures at one size, in that round."""
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        logs = self.options.output / f"{link.name}-{count}-{number}"
        logs.mkdir()
        timed = links.iterations(count)
        # Who goes first has colder caches: they take turns at it.
        transports = ",".join(("TCP", link.transport)[:: 1 if number % 2 else -1])
        words = [self.options.perf, "--transports", transports, "-b", count, "-e", count]
        words += ["-n", timed, "-w", max(2, timed // 5), "--rounds", 1, "--timeout", OPERATION_S]
        words += ["--store-dir", place / "store", "--json", place / "results.json"]
        words += ["--interface", links.INTERFACE] if link.mtu else ["--hostname", "127.0.0.1"]
        prefixes, ranks = self.prefixes_of(link), QuietRanks(logs)
        try:
            for rank, prefix in enumerate(prefixes):
                settings = link.settings(rank, place) if link.settings else {}
                own = {"RANK": rank, "WORLD_SIZE": RANKS, **settings}
                ranks.start([*prefix, *words], clean_environment() | own, processes.end_with_starter)
            failed = ranks.wait(RUN_S)
        except StillRunning:
            raise LinkError(f"not done within {RUN_S:g} s") from None
        finally:
            ranks.end()
        if failed is not None:
            why = said_in(failed.log, self.options.perf.name)
            raise LinkError(f"rank {failed.number} {processes.describe_status(failed.status)}: {why}")
        return figures_of(place / "results.json")

    def far_run(self, transport, number):
        output = self.options.output / f"far-{transport}-{number}"
        report, log = self.folder / f"far-{transport}-{number}.json", self.options.output / f"{output.name}.log"
        run = [program_places.script("fabric-run"), "--fabric", self.options.fabric, "--transport", transport]
        run += ["--config", program_places.data("examples/fabric/edge-300ms.toml"), "--edge", links.FAR_EDGE]
        run += ["--timeout", FAR_RUN_S, "--output", output]
        perf = [self.options.perf, "--transports", transport, "-b", links.FAR_BYTES, "-e", links.FAR_BYTES]
        perf += ["-n", FAR_ITERATIONS, "-w", 0, "-c", 0, "--timeout", FAR_OPERATION_S, "--json", report]
        perf += [] if transport == "DPDK" else ["--interface", network.INTERFACE]
        try:
            outcome = processes.run([*run, "--", *perf], log, FAR_RUN_S + 60, clean_environment())
        except processes.StageError as error:
            raise LinkError(str(error)) from None
        if outcome.status is None:
            raise LinkError(f"not done within {FAR_RUN_S:g} s")
        if outcome.status != 0:
            raise LinkError(said_in(log, "fabric-run"))
        return figures_of(report)

    def cells(self):
        for name in self.options.links:
            if name == links.FAR_NAME:
                for transport in links.FAR_TRANSPORTS:
                    run, each = partial(self.far_run, transport), f"{name}-{transport}"
                    yield Cell(each, links.FAR_TITLE, links.FAR, links.FAR_BYTES, (transport,), run)
                continue
            link = links.BY_NAME[name]
            for count in self.options.sizes:
                run, transports = partial(self.all_reduce, link, count), ("TCP", link.transport)
                yield Cell(name, link.title, link.where, count, transports, run)

    def measure(self, progress):
        """All cells, as often as there are repeats; what has failed is not tried again. Where an exception ends it,
        what was measured is there. RecordError where the program was built anew meanwhile."""
        cells = list(self.cells())
        self.found, failed, cut_off = {cell: [] for cell in cells}, set(), set()
        for number in range(1, self.options.repeats + 1):
            for cell in cells:
                if cell in failed or cell.link in cut_off:
                    continue
                progress(f"round {number}: {cell.where}, {cell.title}, {cell.transports[-1]}: {cell.bytes} bytes")
                try:
                    commit, figures = cell.run(number)
                except (LinkError, FabricRunError) as error:
                    self.missing.append(Missing(cell, number, str(error)))
                    failed.add(cell)
                    connected = any(self.found[one] for one in cells if one.link == cell.link)
                    if isinstance(error, NoNamespaces) or "connecting:" in str(error) and not connected:
                        cut_off.add(cell.link)
                    continue
                records.add_commit(self.commits, commit)
                self.found[cell].append(figures)

    def leave_out_the_rest(self, why):
        """Of a measurement that was ended early: cells without a round."""
        known = {one.cell for one in self.missing}
        self.missing += [
            Missing(cell, 1, why) for cell, rounds in self.found.items() if not rounds and cell not in known
        ]

    def rows(self):
        """Of the stored run."""
        return [
            row_of(cell, transport, [figures[transport] for figures in rounds])
            for cell, rounds in self.found.items()
            if rounds
            for transport in cell.transports
        ]
