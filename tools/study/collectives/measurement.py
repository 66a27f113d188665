"""The runs of the study: all_reduce_perf over each link with each number of ranks.

What is compared on a link runs in the same processes, round by round in turn, so that a slow second of the machine hits
all alike; only what needs other settings has processes of its own. all_reduce_perf asserts by the transports' counters
that the bytes of each round went over the transport that it names, and over no other one.
"""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.common.failures import kept_exception, why_ended
from gloo_bypass_tools.common.rank_processes import QuietRanks, StillRunning, clean_environment
from gloo_bypass_tools.fabric_run import network
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.report import records
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.results_chart import size_label
from gloo_bypass_tools.study.collectives import links
from gloo_bypass_tools.study.collectives.hosts import INTERFACE, Hosts

RUN_S, OPERATION_S = 300.0, 60
WARM_UP, CHECKED = 2, 1
# What a rank says of an executor that no algorithm can be chosen for.
DESCRIBED = {links.FLAT: "of one host: flat shared memory", links.HIERARCHICAL: "flat shared memory within each"}


class CellError(Exception):
    """A run that cannot be measured; the text is one line."""


@dataclass(frozen=True)
class Cell:
    """One run of all_reduce_perf."""

    link: links.Link
    ranks: int
    setup: links.Setup
    band: links.Band

    @property
    def about(self):
        sizes = f"from {size_label(self.band.least)} to {size_label(self.band.most)}"
        return f"{self.link.title} ({self.setup.name}), {self.ranks} ranks, {sizes}"


def cells_of(effort, chosen):
    """In the order of measuring: what is compared stands together."""
    return [
        Cell(link, ranks, setup, band)
        for link in chosen
        for ranks in link.ranks(effort)
        for band in link.bands(effort)
        for setup in link.setups
    ]


def said_in(log):
    """The program's own line of a failure, or the last one."""
    lines = Path(log).read_text(errors="replace").splitlines()
    own = [line for line in lines if line.startswith(("all_reduce_perf: ", "fabric-run: "))]
    return own[0] if own else processes.last_line(log) or "it said nothing"


def check_executor(contender, transport, described):
    """CellError unless each rank ran what the contender is called."""
    wanted = DESCRIBED.get(contender)
    for rank, devices in enumerate(described):
        is_memory = "flat shared memory" in devices[transport]
        if wanted and wanted not in devices[transport] or not wanted and is_memory:
            raise CellError(f"{contender}: rank {rank} has another executor: {devices[transport]}")


def figures_of(path, transports):
    """(the program's commit, its rows by contender) of a report; CellError where results are wrong."""
    report = records.benchmark_report(path)
    described = [rank["devices"] for rank in report["ranks"]]
    rows = []
    for contender, transport in transports.items():
        check_executor(contender, transport, described)
        for result in report["results"]:
            (one,) = [one for one in result["transports"] if one["transport"] == transport]
            if one["wrong"]:
                raise CellError(f"{contender}: {one['wrong']} elements of the result are wrong")
            rows.append(
                {
                    "bytes": result["size"],
                    "contender": contender,
                    "p50_us": one["p50_us"],
                    "p99_us": one["p99_us"],
                    "rounds_us": one["round_time_us"],
                }
            )
    return report["build"]["commit"], rows


class Measurement:
    """`folder`: the enclosure's own; `output`: for logs; `build`: the build folder. Single-threaded."""

    def __init__(self, build, folder, output, algorithms):
        self.build, self.folder, self.output, self.algorithms = Path(build), Path(folder), Path(output), algorithms
        self.hosts, self.count, self.commits = Hosts(folder), 0, set()

    def contenders(self, cell):
        return cell.setup.transports([name for name in self.algorithms if cell.link.has(name)])

    def rows(self, cell):
        """(commit, rows) of one run; CellError, FabricRunError, RecordError where it failed."""
        self.count += 1
        place, logs = self.folder / str(self.count), self.output / f"{self.count}-{cell.link.name}-{cell.ranks}"
        place.mkdir()
        logs.mkdir(parents=True)
        (self.run_far if cell.link.far else self.run_near)(cell, place, logs)
        return figures_of(place / "results.json", self.contenders(cell))

    def words(self, cell, place):
        band = cell.band
        words = [self.build / "tools/all_reduce_perf", "--transports", ",".join(self.contenders(cell).values())]
        words += ["-b", band.least, "-e", band.most, "-f", band.factor, "-n", band.iterations, "--rounds", band.rounds]
        words += ["-w", WARM_UP, "-c", CHECKED, "--timeout", OPERATION_S, "--json", place / "results.json"]
        return words

    def run_near(self, cell, place, logs):
        """Ranks as processes here, or in the namespaces of hosts."""
        words = [*self.words(cell, place), "--store-dir", place / "store"]
        words += ["--interface", INTERFACE] if cell.setup.host_of else ["--hostname", "127.0.0.1"]
        ranks = QuietRanks(logs)
        try:
            for rank in range(cell.ranks):
                host = cell.setup.host_of(rank, cell.ranks) if cell.setup.host_of else 0
                settings = self.settings(cell, host, place)
                prefix = self.hosts.prefix(host) if cell.setup.host_of else []
                environment = clean_environment() | {"RANK": rank, "WORLD_SIZE": cell.ranks} | settings
                ranks.start([*prefix, *words], environment, processes.end_with_starter)
            failed = ranks.wait(RUN_S)
        except StillRunning:
            raise CellError(f"not done within {RUN_S:g} s") from None
        finally:
            ranks.end()
        if failed is not None:
            status = processes.describe_status(failed.status)
            raise CellError(f"rank {failed.number} {status}: {said_in(failed.log)}")

    def settings(self, cell, host, place):
        """The folders of sockets that they name are made."""
        settings = cell.setup.settings(host, place) if cell.setup.settings else {}
        for name, value in settings.items():
            if name.endswith("_DIRECTORY"):
                Path(value).mkdir(mode=0o700, exist_ok=True)
        return settings

    def run_far(self, cell, place, logs):
        """Through the switch that emulates links."""
        edges = f"rate={links.RATE_MBIT:g}Mbit/s,delay={links.DELAY_MS:g}ms,queue={links.QUEUE}"
        words = [program_places.script("fabric-run"), "--fabric", self.build / "tools/fabric/fabric"]
        words += ["--transport", links.NETWORK, "--ranks", cell.ranks, "--defaults", edges]
        words += ["--timeout", RUN_S, "--output", logs / "ranks"]
        for name, value in self.settings(cell, 0, place).items():
            words += ["--env", f"{name}={value}"]
        log = logs / "fabric-run.log"
        words += ["--", *self.words(cell, place), "--interface", network.INTERFACE]
        try:
            outcome = processes.run(words, log, RUN_S + 60, clean_environment())
        except processes.StageError as error:
            raise CellError(str(error)) from None
        if outcome.status is None:
            raise CellError(f"not done within {RUN_S:g} s")
        if outcome.status != 0:
            raise CellError(said_in(log))
        if not any(edge["delivered"] for edge in json.loads((logs / "ranks/fabric.json").read_text())["edges"]):
            raise CellError("nothing crossed the emulated links")


def measure(measurement, effort, chosen, progress):
    """(rows, [(what, why) of what failed], what ended it early or None): all cells, as often as the effort repeats
    them. Of a cell that has failed nothing is tried again."""
    found, failures, measured = {}, {}, set()
    cells = cells_of(effort, chosen)
    ended = kept_exception(lambda: measure_into(found, failures, measured, measurement, effort, cells, progress))
    rows = [row_of(key, rows) for key, rows in found.items()]
    if ended:
        failures |= {cell: why_ended(ended) for cell in cells if cell not in measured and cell not in failures}
    return rows, [(cell.about, why) for cell, why in failures.items()], ended


def measure_into(found, failures, measured, measurement, effort, cells, progress):
    for repeat in range(1, effort.repeats + 1):
        for cell in cells:
            if cell in failures:
                continue
            progress(f"repeat {repeat}: {cell.about}")
            try:
                commit, rows = measurement.rows(cell)
            except (CellError, FabricRunError, RecordError) as error:
                failures[cell] = str(error)
                continue
            records.add_commit(measurement.commits, commit)
            measured.add(cell)
            for row in rows:
                key = cell.link.name, cell.ranks, row["bytes"], row["contender"]
                found.setdefault(key, []).append(row)


def row_of(key, rows):
    """A row of the stored run: the median of the repeats' medians, the worst p99, all rounds."""
    link, ranks, size, contender = key
    return {
        "link": link,
        "ranks": ranks,
        "bytes": size,
        "contender": contender,
        "p50_us": statistics.median(row["p50_us"] for row in rows),
        "p99_us": max(row["p99_us"] for row in rows),
        "rounds_us": [one for row in rows for one in row["rounds_us"]],
    }
