"""The command line of scripts/compare-links."""

import argparse
import json
import os
import sys
import tempfile

from gloo_bypass_tools.common.argument_types import names_of, result_file
from gloo_bypass_tools.common.failures import kept_exception, why_ended
from gloo_bypass_tools.common.options import add_build, add_number, add_output, command_parser
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.compare_links import links
from gloo_bypass_tools.compare_links.measurement import Measurement
from gloo_bypass_tools.fabric_run import enclosure, network
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.report import machine, memory_rates, results_chart, stored_run
from gloo_bypass_tools.report.command import size_of
from gloo_bypass_tools.report.lines import show_progress, show_start
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
vhost, which is held against TCP over the veth pair. far takes long and is not among the defaults: 16 MiB over four
ranks, and one of them sends over an edge with 300 ms and 1 % loss (scripts/fabric-run). Below the table stands what
could not be measured, with the reason. It is not tried again, so its figures are of the rounds before. What was
measured until a signal ends the command is stored too. How fast the machine copies and adds 64 MiB is measured before
and after, and stored: where memory is slow, large vectors gain less.
Namespaces and interfaces go with the command, however it ends."""
EPILOG = """\
  scripts/compare-links
  scripts/compare-links --links memif,netdev-1500 --sizes 4,1M --repeats 3
  scripts/compare-links --json docs/results.json && scripts/draw-results

exit status: 0; 1 a link could not be measured; 2 bad input; 128 + N ended by signal N"""


LINKS = (*links.BY_NAME, links.FAR_NAME)


def links_of(text):
    names = names_of(LINKS)(text)
    return [name for name in LINKS if name in names]


def sizes_of(text):
    sizes = [size_of(part) for part in text.split(",")]
    if any(size < 4 or size % 4 or size > MOST_BYTES for size in sizes) or len(set(sizes)) != len(sizes):
        raise argparse.ArgumentTypeError(f"'{text}': sizes are different multiples of 4 bytes, at most 1G")
    return sorted(sizes)


def parse(arguments):
    parser = command_parser("compare-links", DESCRIPTION, EPILOG)
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
    add_number(parser, "--repeats", int, 1, 1000, "rounds", default=5)
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write the stored run that draw-results reads")
    add_output(parser, "logs", "links-<time>")
    add_build(parser)
    options = parser.parse_args(arguments)
    options.build = options.build.absolute()
    options.perf, options.fabric = options.build / "tools/all_reduce_perf", options.build / "tools/fabric/fabric"
    if not os.access(options.perf, os.X_OK):
        parser.error(f"there is no program '{options.perf}': build it with scripts/build, or say --build DIR")
    return options


def run_of(measurement, described, rates, others_cores):
    """The stored run's record; None where nothing was measured."""
    rows = measurement.rows()
    if not rows:
        return None
    changed = ", uncommitted changes" if any("-" in commit for commit in measurement.commits) else ""
    quiet = machine.quiet_in_words(described["load_before"], others_cores)
    return {
        "commit": next(iter(measurement.commits)).partition("-")[0],
        "date": machine.today(),
        "machine": f"{machine.in_words(described)}, {quiet}{changed}",
        "rates": rates,
        "rows": rows,
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
    show_start("compare-links", described)
    measurement, rates = Measurement(options, folder, no_namespaces), RateSamples()
    rates.take()
    others = machine.OtherWork()
    ended = kept_exception(lambda: measurement.measure(show_progress))
    if ended:
        measurement.leave_out_the_rest(why_ended(ended))
    others_cores = others.cores()
    if not ended:
        rates.take()
    print(memory_rates.in_words(rates) or f"copy and addition rates: not measured: {rates.why_not}", flush=True)
    record = run_of(measurement, described, rates, others_cores)
    run = None
    if record:
        path = options.output / RUN_FILE
        write_whole(path, f"{json.dumps(record, indent=1)}\n".encode())
        run = stored_run.read(path)
        if options.json:
            write_whole(options.json, path.read_bytes())
    show(run, measurement.missing)
    if ended:
        raise ended
    return 1 if measurement.missing else 0


def run_within(options, folder):
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
            return compare(options, folder, str(error))
        return enclosure.run_inside(folder, arguments)


def main(arguments=None):
    failures = (OSError, RecordError)
    return enclosure.run_command("compare-links", "links", parse, run_within, run_outside, arguments, failures)
