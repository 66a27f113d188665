"""One link, once: {column: [Mbit/s of payload, each direction]}. fabric-run asserts that frames crossed the link, and
all_reduce_perf, by counters, that bytes went over the transport."""

from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.rank_processes import clean_environment
from gloo_bypass_tools.report import records
from gloo_bypass_tools.study.commands import flags
from gloo_bypass_tools.study.throughput import cells

PATIENCE, LEAST_LIMIT_S, GRACE_S = 20.0, 120.0, 60.0
FABRIC, PERF = "tools/fabric/fabric", "tools/all_reduce_perf"


class Measurement:
    """`build`: the build folder; `output`: for logs, a folder a run; `stream_s`: of iperf3. Single-threaded."""

    def __init__(self, build, output, stream_s):
        self.build, self.output, self.stream_s, self.count = Path(build).absolute(), Path(output), stream_s, 0

    def run(self, link, transport, program, *more):
        """Through the switch. Failure where the program failed, or nothing crossed it."""
        self.count += 1
        limit_s, folder = (
            LEAST_LIMIT_S + PATIENCE * cells.estimate_s(link, self.stream_s),
            self.output / str(self.count),
        )
        folder.mkdir(parents=True)
        words = [
            *(ROOT / "scripts/fabric-run", *flags(transport=transport, ranks=cells.RANKS), *more),
            *flags(defaults=",".join(link.settings), output=folder / "ranks", timeout=round(limit_s)),
            *flags(fabric=self.build / FABRIC),
            *("--", *program),
        ]
        log = folder / "log"
        outcome = processes.run([str(word) for word in words], log, limit_s + GRACE_S, clean_environment())
        processes.require_success(Path(program[0]).name, outcome, log)

    def streams(self, link):
        path = self.output / f"{self.count + 1}.json"
        signed = [-one.streams if one.reverse else one.streams for one in cells.STREAMS]
        rank = Path(__file__).with_name("iperf_rank.py")
        self.run(
            link,
            "TCP",
            ["/usr/bin/python3", rank, self.stream_s, cells.BEGIN_S, path, *signed],
            *flags(rendezvous="fabric"),
        )
        found = records.value_at(path, records.json_object(path), "mbit_s", list)
        each = dict(enumerate(found))
        return {one.title: [records.positive_at(path, each, at)] for at, one in enumerate(cells.STREAMS)}

    def reduced(self, link, reducer):
        path = self.output / f"{self.count + 1}.json"
        words = [self.build / PERF, "--transports", reducer, "--json", path]
        words += ["-b", link.reduced_bytes, "-e", link.reduced_bytes, "-n", 1, "-w", cells.WARM_UP, "-c", 1]
        self.run(link, reducer.removesuffix(cells.OWN), [*words, "--rounds", cells.ROUNDS])
        (result,) = records.value_at(path, records.benchmark_report(path), "results", list)
        (one,) = records.value_at(path, result, "transports", list)
        bits, rounds = 8 * records.whole_at(path, result, "size", 1), records.value_at(path, one, "round_time_us", list)
        return {cells.reduced(reducer): [bits / us for us in rounds]}

    def once(self, link):
        found = self.streams(link)
        for reducer in cells.REDUCERS:
            found |= self.reduced(link, reducer)
        return found
