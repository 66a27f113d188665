"""The command line of scripts/compare-links."""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.common.argument_types import number_in, result_file
from gloo_bypass_tools.compare_links import links
from gloo_bypass_tools.compare_links.measurement import Measurement
from gloo_bypass_tools.fabric_run import enclosure, network
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.report import machine, memory_rates, results_chart, stored_run
from gloo_bypass_tools.report.command import size_of
from gloo_bypass_tools.report.memory_rates import RateSamples
from gloo_bypass_tools.report.records import RecordError

RUN_FILE = "run.json"
SIZES = "4,4K,64K,256K,1M,16M,64M"
MOST_BYTES = 1 << 30

DESCRIPTION = """\
Measures all-reduces of two ranks over every link against Gloo's TCP, on this machine, and prints a table: median, p99,
and how many times as fast as TCP. Each round goes over all links and sizes, TCP and the link in turn; figures are the
median of the rounds' medians and the worst p99. Inside a machine: memif, and UDP over the loopback. Between two network
namespaces over a veth pair, at an MTU of 1500 and of 9000: DPDK over the interface (netdev), UDP, and virtio-user with
vhost, which is held against TCP over the veth pair. far, if it is asked for, is 16 MiB of four ranks of which one sends
over an edge with 300 ms and 1 % loss (scripts/fabric-run); it takes long. What could not be measured is below the table
with the reason, and is not tried again: figures are then of the rounds before. How fast the machine copies and adds
64 MiB is measured before and after, and stored: where memory is slow, large vectors gain less. Namespaces and
interfaces go with the command, however it ends."""
EPILOG = """\
  scripts/compare-links
  scripts/compare-links --links memif,netdev-1500 --sizes 4,1M --repeats 3
  scripts/compare-links --json docs/results.json && scripts/draw-results

exit status: 0; 1 a link could not be measured; 2 bad input; 128 + N ended by signal N"""


def links_of(text):
    names = [name.strip() for name in text.split(",")]
    known = (*links.BY_NAME, links.FAR_NAME)
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"'{name}' is no link; there are {', '.join(known)}")
    if len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"'{text}' names a link twice")
    return [name for name in known if name in names]


def sizes_of(text):
    sizes = [size_of(part) for part in text.split(",")]
    if any(size < 4 or size % 4 or size > MOST_BYTES for size in sizes) or len(set(sizes)) != len(sizes):
        raise argparse.ArgumentTypeError(f"'{text}': sizes are different multiples of 4 bytes, at most 1G")
    return sorted(sizes)


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="compare-links",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--links",
        type=links_of,
        default=list(links.BY_NAME),
        metavar="A,B",
        help=f"of {', '.join(links.BY_NAME)} (default: these), and {links.FAR_NAME}",
    )
    parser.add_argument(
        "--sizes",
        type=sizes_of,
        default=sizes_of(SIZES),
        metavar="A,B",
        help=f"bytes of the all-reduces; not of far (default {SIZES})",
    )
    parser.add_argument("--repeats", type=number_in(int, 1, 1000), default=5, metavar="N", help="rounds (default 5)")
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write the stored run that draw-results reads")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="a new folder for logs (default results/links-<time>)"
    )
    parser.add_argument(
        "--build", type=Path, default=program_places.ROOT / "build", metavar="DIR", help="build folder (default build)"
    )
    options = parser.parse_args(arguments)
    options.build = options.build.absolute()
    options.perf, options.fabric = options.build / "tools/all_reduce_perf", options.build / "tools/fabric/fabric"
    if not os.access(options.perf, os.X_OK):
        parser.error(f"there is no program '{options.perf}': build it with scripts/build, or say --build DIR")
    return options


def run_of(measurement, described, rates, others_cores):
    """The stored run's record; None where nothing was measured."""
    if not measurement.rows:
        return None
    commits = {commit.partition("-")[0] for commit in measurement.commits}
    if len(commits) != 1:
        raise FabricRunError(f"the program was built anew meanwhile: commits {', '.join(sorted(commits))}")
    changed = any("-" in commit for commit in measurement.commits)
    return {
        "commit": commits.pop(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": f"{machine.in_words(described)}, "
        + machine.quiet_in_words(described["load_before"], others_cores)
        + (", uncommitted changes" if changed else ""),
        "rates": rates,
        "rows": measurement.rows,
    }


def show(run, missing):
    """The table on the terminal, and below it what has no figures."""
    lines = [*results_chart.cells(run)] if run else []
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    if missing:
        print("\nnot measured, or not in all rounds:")
    for one in missing:
        print(
            f"  {one.cell.where}, {one.cell.title}, {one.cell.transports[-1]}, "
            f"{results_chart.size_label(one.cell.bytes)}, round {one.round}: {one.why}"
        )
    sys.stdout.flush()


def compare(options, folder, no_namespaces=""):
    described = machine.describe_system()
    load = described["load_before"]
    print(f"{machine.in_words(described)}, {machine.quiet_in_words(load)}", flush=True)
    if load > machine.QUIET_LOAD:
        print("compare-links: other programs are running: figures would be of a busy machine", file=sys.stderr)
    measurement, rates = Measurement(options, folder, no_namespaces), RateSamples()

    def progress(text):
        print(f"  {text}", file=sys.stderr, flush=True)

    rates.take()
    others = machine.OtherWork()
    measurement.measure(progress)
    others_cores = others.cores()
    rates.take()
    print(memory_rates.in_words(rates) or f"copy and addition rates: not measured: {rates.why_not}", flush=True)
    record = run_of(measurement, described, rates, others_cores)
    run = None
    if record:
        path = options.output / RUN_FILE
        path.write_text(json.dumps(record, indent=1) + "\n")
        run = stored_run.read(path)
        if options.json:
            options.json.write_text(path.read_text())
    show(run, measurement.missing)
    return 1 if measurement.missing else 0


def run_within(options, folder):
    processes.interrupt_once()
    network.answer("mount", "-t", "tmpfs", "compare-links", folder)
    network.prepare_network(control=False)
    return compare(options, folder)


def run_outside(options, arguments):
    enclosure.make_output(options.output)
    with tempfile.TemporaryDirectory(prefix="compare-links-") as folder:
        try:
            enclosure.check_tools()
            enclosure.check_right()
        except FabricRunError as error:
            processes.interrupt_once()
            return compare(options, folder, str(error))
        return enclosure.run_inside(folder, arguments)


def main(arguments=None):
    return enclosure.run_command(
        "compare-links", "links", parse, run_within, run_outside, arguments, (OSError, RecordError)
    )
