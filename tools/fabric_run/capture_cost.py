"""What a capture costs: the same all-reduce without it and with it, in turn, at a rank's own port and at the fabric's
ports."""

import json
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.common.argument_types import result_file
from gloo_bypass_tools.common.failures import FAILED, Failure, exit_status
from gloo_bypass_tools.common.options import REPEATED, add_build, add_number, command_parser
from gloo_bypass_tools.common.whole_file import write_whole

RUN_LIMIT_S = 300
MEGABYTE = 1e6

DESCRIPTION = """\
Runs all_reduce_perf on two ranks over DPDK without a capture and with one, in turn, and prints what the capture \
costs: own is
GLOO_BYPASS_CAPTURE at each rank's own port (memif), fabric is scripts/fabric-run --capture at the ports of a switch \
without emulation.
Bandwidth is that of the mean time of an all-reduce (algbw); cost is 1 - with / without, the median over the rounds, \
whose order alternates.
CPU is that of a rank, its capture's thread included, which other programs on the machine disturb less; at the fabric \
the switch makes the
capture, and its time is not in it. Files go to a folder that is removed."""
EPILOG = "exit status: 0; 1 a run failed, or frames were lost to a capture; 2 bad command line"


class CostError(Failure):
    """A run that failed."""


@dataclass
class Sample:
    """One run."""

    bandwidth: float  # bytes a second
    cpu_s: float  # of a rank, for one all-reduce
    frames: int = 0  # in the capture
    lost: int = 0
    file_bytes: int = 0


def perf_arguments(options, report):
    size = ["-b", options.bytes, "-e", options.bytes, "-n", options.iterations, "-w", 2, "-c", 0]
    return [options.build / "tools" / "all_reduce_perf", "--transports", "DPDK", *size, "--json", report]


def run(words, folder, more=None):
    """One that captures nothing unless `more` of the environment says so; its log goes with the folder."""
    log = folder / "log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLOO_BYPASS_")}
    try:
        outcome = processes.run(words, log, RUN_LIMIT_S, kept | (more or {}))
    except processes.StageError as error:
        raise CostError(f"{error}: build it first (scripts/build), or name the folder with --build") from error
    if outcome.status is None:
        raise CostError(f"{words[0]} has not ended within {RUN_LIMIT_S} s")
    if outcome.status != 0:
        raise CostError(f"{words[0]} {processes.describe_status(outcome.status)}: {processes.last_line(log)}")


def sample_of(report, iterations):
    (result,) = json.loads(report.read_text())["results"]
    (figures,) = result["transports"]
    cpu = figures["cpu_seconds_of_rank"]
    return Sample(result["size"] / (figures["time_us"] * 1e-6), sum(cpu) / len(cpu) / iterations)


def own_port(options, folder, capturing):
    link = {"GLOO_BYPASS_LINK": "memif"}
    capture = {
        "GLOO_BYPASS_CAPTURE": f"{folder}/rank%r.pcapng",
        "GLOO_BYPASS_CAPTURE_SNAPLEN": str(options.snap),
        "GLOO_BYPASS_STATS": f"{folder}/rank%r.json",
    }
    run([*perf_arguments(options, folder / "perf.json"), "--ranks", 2], folder, link | (capture if capturing else {}))
    sample = sample_of(folder / "perf.json", options.iterations)
    for rank in (0, 1) if capturing else ():
        port = json.loads((folder / f"rank{rank}.json").read_text())["port"]
        sample.frames += port["capture_frames"]
        sample.lost += port["capture_lost"]
        sample.file_bytes += (folder / f"rank{rank}.pcapng").stat().st_size
    return sample


def at_fabric(options, folder, capturing):
    output, fabric = folder / "run", options.build / "tools" / "fabric" / "fabric"
    words = [program_places.script("fabric-run"), "--fabric", fabric, "--ranks", 2, "--mtu", options.mtu]
    words += ["--transport", "DPDK", "--output", output, *(["--capture", "--snap", options.snap] if capturing else [])]
    run([*words, "--", *perf_arguments(options, folder / "perf.json")], folder)
    sample = sample_of(folder / "perf.json", options.iterations)
    if capturing:
        counted = json.loads((output / "fabric.json").read_text())["capture"]
        sample.frames, sample.lost, sample.file_bytes = counted["frames"], counted["lost"], counted["file_bytes"]
    return sample


PLACES = {"own": own_port, "fabric": at_fabric}


def measure(place, options):
    """The samples without and with a capture."""
    pairs = []
    for number in range(options.rounds):
        pair = {}
        for capturing in (False, True) if number % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory(prefix="capture-cost-", dir=options.folder) as folder:
                pair[capturing] = PLACES[place](options, Path(folder), capturing)
        pairs.append((pair[False], pair[True]))
    return pairs


def summary(place, pairs):
    bandwidths = [1 - on.bandwidth / off.bandwidth for off, on in pairs]
    return {
        "place": place,
        "rounds": len(pairs),
        "without_gb_s": statistics.median(off.bandwidth for off, _ in pairs) / 1e9,
        "with_gb_s": statistics.median(on.bandwidth for _, on in pairs) / 1e9,
        "bandwidth_cost": statistics.median(bandwidths),
        "bandwidth_costs": bandwidths,
        "cpu_cost": statistics.median(on.cpu_s / off.cpu_s - 1 for off, on in pairs),
        "frames": sum(on.frames for _, on in pairs),
        "lost": sum(on.lost for _, on in pairs),
        "file_bytes": sum(on.file_bytes for _, on in pairs),
    }


def line(figures):
    costs = figures["bandwidth_costs"]
    return (
        f"{figures['place']:<7} {figures['without_gb_s']:>9.3f} {figures['with_gb_s']:>9.3f} "
        f"{100 * figures['bandwidth_cost']:>+7.1f}% "
        f"{f'{100 * min(costs):+.1f} to {100 * max(costs):+.1f}':>16} "
        f"{100 * figures['cpu_cost']:>+7.1f}% {figures['frames']:>10} "
        f"{figures['lost']:>6} {figures['file_bytes'] / MEGABYTE:>9.1f}"
    )


def parser_of():
    parser = command_parser("capture-cost", DESCRIPTION, EPILOG)
    parser.add_argument("--place", choices=tuple(PLACES), help="only this one; may be repeated", **REPEATED)
    add_number(parser, "--rounds", int, 1, 1000, "of a run without and one with", default=5)
    add_number(parser, "--bytes", int, 4, 1 << 34, "of the vector", default=16 << 20)
    add_number(parser, "--iterations", int, 1, 100_000, "all-reduces of a run", default=30)
    add_number(parser, "--snap", int, 64, 65535, "snap length", default=256)
    add_number(parser, "--mtu", int, 1500, 9216, "fabric: longest IP packet", default=9000)
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="for the captures (default that for temporary files)"
    )
    add_build(parser)
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write the figures to this file too")
    return parser


def compare(options):
    options.build = options.build.absolute()
    found = []
    print(
        f"{'capture':<7} {'without':>9} {'with':>9} {'cost':>8} {'of the rounds':>16} {'CPU':>8} "
        f"{'frames':>10} {'lost':>6} {'files':>9}"
    )
    print(f"{'':<7} {'GB/s':>9} {'GB/s':>9} {'':>8} {'%':>16} {'':>8} {'':>10} {'':>6} {'MB':>9}", flush=True)
    for place in options.place or PLACES:
        found.append(summary(place, measure(place, options)))
        print(line(found[-1]), flush=True)
    if options.json:
        record = {"schema": "gloo-bypass/capture-cost/1", "bytes": options.bytes, "snap_length": options.snap}
        write_whole(options.json, (json.dumps(record | {"places": found}, indent=1) + "\n").encode())
    return FAILED if any(figures["lost"] for figures in found) else 0


def main(arguments=None):
    options = parser_of().parse_args(arguments)
    processes.interrupt_once()
    return exit_status("capture-cost", lambda: compare(options))
