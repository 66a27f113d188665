"""What an emulated link carries, beside its rate: iperf3 over kernel TCP, with one stream and with four, and
all-reduces over each transport.

A link check for the other studies: where iperf3 stays below the rate, this machine or TCP is the limit, not the link.
Mbit/s are of payload in one direction; an all-reduce of two ranks uses both at once. Every run asserts by the switch's
counters that frames crossed the link, all_reduce_perf also by the transport's.

Says first how long it takes. Prints a table in Markdown; --json writes the stored run, from which --draw makes the
table of a page (README.md) beside it.
"""

import datetime
import shutil
import sys
from functools import partial
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.argument_types import names_of, number_in, result_file
from gloo_bypass_tools.common.failures import FAILED, Failure
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.report import machine, marked_tables, results, wording
from gloo_bypass_tools.report.lines import show_progress, show_start
from gloo_bypass_tools.study.measurement import kernel_tcp
from gloo_bypass_tools.study.throughput import cells, measurement, stored, tables

TITLE = "What emulated links carry: iperf3, and all-reduces over each transport"
RUN_FILE, PAGE = "run.json", "README.md"
INTERRUPTED = 130


def add_options(options):
    add = options.parser.add_argument
    about = f"of {', '.join(cells.LINKS)} (default all)"
    add("--links", type=names_of(cells.LINKS), default=list(cells.LINKS), metavar="A,B", help=about)
    add("--repeats", type=number_in(int, 1, 100), default=1, metavar="N", help="runs of each, in turn (default 1)")
    about = f"of a stream of iperf3, after {cells.BEGIN_S} that do not count (default {cells.STREAM_S})"
    add("--seconds", type=number_in(int, 1, 3600), default=cells.STREAM_S, metavar="N", help=about)
    add("--json", type=result_file, metavar="FILE", help="write the stored run")
    about = "a new folder for logs (default results/study-throughput-<time>)"
    add("--output", type=Path, metavar="DIR", help=about)
    add("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)")
    about = f"measure nothing: make the table of DIR/{PAGE} from DIR/{RUN_FILE}"
    add("--draw", type=Path, metavar="DIR", help=about)


def problem_of(given):
    if given.draw:
        return ""
    if problem := program_places.missing(given.build, (measurement.FABRIC, measurement.PERF)):
        return problem
    return "" if shutil.which("iperf3") else "there is no iperf3: run scripts/install-packages"


def without(found, failures):
    return {key: values for key, values in found.items() if key[0] not in failures}


def measure_all(given, output):
    """({(link, what): values}, {link: why it has none}, whether it was interrupted). Of a link that has failed nothing
    is kept, nor tried again."""
    runs, found, failures = measurement.Measurement(given.build, output, given.seconds), {}, {}
    for name in given.links * given.repeats:
        if name in failures:
            continue
        show_progress(cells.LINKS[name].title)
        try:
            made = runs.once(cells.LINKS[name])
        except (Failure, OSError) as error:
            failures[name] = str(error)
            continue
        except KeyboardInterrupt:
            there = {link for link, _ in found} | set(failures)
            failures |= {name: "interrupted" for name in given.links if name not in there}
            return without(found, failures), failures, True
        for what, values in made.items():
            found.setdefault((name, what), []).extend(values)
    return without(found, failures), failures, False


def run(given):
    if given.draw:
        made = stored.read(given.draw / RUN_FILE)
        marked_tables.renew(given.draw / PAGE, partial(tables.renewed, run=made, place=given.draw / PAGE))
        return 0
    enclosure.check_tools()
    enclosure.check_right()
    described, others = machine.describe(ROOT), machine.OtherWork()
    show_start("study", described)
    seconds = given.repeats * sum(cells.estimate_s(cells.LINKS[name], given.seconds) for name in given.links)
    output = (given.output or results.study_path(ROOT, "throughput")).absolute()
    enclosure.make_output(output)
    print(f"{len(given.links)} links: {wording.duration(seconds)} at the least; logs are in {output}", flush=True)
    found, failures, interrupted = measure_all(given, output)
    for name, why in failures.items():
        print(f"not measured: {cells.LINKS[name].title}: {why}", file=sys.stderr)
    if not found:
        return INTERRUPTED if interrupted else FAILED
    made = stored.Run(
        described["commit"],
        datetime.date.fromisoformat(machine.today()),
        machine.stored(described),
        kernel_tcp(),
        described["load_before"],
        others.cores(),
        tuple((cells.LINKS[name].title, why) for name, why in failures.items()),
        found,
    )
    write_whole(given.json or output / RUN_FILE, stored.text_of(made).encode())
    print(tables.table(made))
    return INTERRUPTED if interrupted else FAILED if failures else 0
