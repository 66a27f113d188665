"""Every algorithm of our own all-reduces, by size, ranks and link, beside Gloo's ring, the model and the choice.

Links: memory of one host; ranks on hosts of their own, which are network namespaces at one switch, over UDP; two hosts
that share the ranks; and links with a delay and a rate, which scripts/fabric-run emulates. What is compared on a link
runs in the same processes, round by round in turn. all_reduce_perf asserts by the transports' counters that the bytes
went over the transport that it names, and checks the results. The model's times are those of the schedules that ranks
execute, step by step in virtual time (tools/model/steps.py).

Prints tables in Markdown: which algorithm is the fastest where, and where the choice is another one. --json writes the
stored run, from which --draw makes the tables of a page (README.md) and its pictures, beside it in the same folder.
"""

import os
import sys
import tempfile
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.argument_types import names_of, result_file
from gloo_bypass_tools.common.failures import FAILED
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.fabric_run import enclosure, network
from gloo_bypass_tools.report import machine, results
from gloo_bypass_tools.report.lines import show_progress, show_start
from gloo_bypass_tools.report.memory_rates import RateSamples
from gloo_bypass_tools.study.collectives import links, measurement, predictions, stored, tables

TITLE = "Every algorithm of our own all-reduces, by size, ranks and link"
RUN_FILE, PAGE = "run.json", "README.md"
PROGRAMS = ("tools/all_reduce_perf", "tools/schedule/schedule", "tools/fabric/fabric")


def add_options(options):
    add = options.parser.add_argument
    about = f"of {', '.join(links.BY_NAME)} (default all)"
    add("--links", type=names_of(links.BY_NAME), default=tuple(links.BY_NAME), metavar="A,B", help=about)
    about = "short takes some minutes, full an hour; tiny only shows that it works (default short)"
    add("--effort", choices=links.EFFORTS, default="short", help=about)
    add("--json", type=result_file, metavar="FILE", help="write the stored run")
    add("--output", type=Path, metavar="DIR", help="a new folder for logs (default results/study-collectives-<time>)")
    add("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)")
    about = f"measure nothing: make the tables of DIR/{PAGE} and the pictures beside it from DIR/{RUN_FILE}"
    add("--draw", type=Path, metavar="DIR", help=about)


def problem_of(given):
    if given.draw:
        return ""
    return program_places.missing(given.build, PROGRAMS)


def measured(given, folder):
    """((commit, rows, left_out, parameters, choices), what ended it early or None)."""
    program = predictions.Program(given.build / PROGRAMS[1])
    output = given.output or results.study_path(ROOT, "collectives")
    enclosure.make_output(output)
    runs = measurement.Measurement(given.build, folder, output, program.algorithms())
    chosen, effort = [links.BY_NAME[name] for name in given.links], links.EFFORTS[given.effort]
    rows, left_out, ended = measurement.measure(runs, effort, chosen, show_progress)
    parameters, choices = predictions.add_predictions(program, rows, len(os.sched_getaffinity(0)))
    return (next(iter(runs.commits), ""), rows, left_out, parameters, choices), ended


def take_rates(given, rates):
    """Not where nothing is to be learned from the figures."""
    if given.effort != "tiny":
        rates.take()


def measure(given, folder):
    described = machine.describe_system()
    show_start("study", described)
    rates = RateSamples()
    take_rates(given, rates)
    others = machine.OtherWork()
    found, ended = measured(given, folder)
    others_cores = others.cores()
    if not ended:
        take_rates(given, rates)
    _, rows, left_out, *_ = found
    for what, why in left_out:
        print(f"not measured: {what}: {why}", file=sys.stderr)
    if not rows and not ended:
        return FAILED
    if not rows:
        raise ended
    record = stored.record_of(found, described, list(rates), others_cores, given.effort)
    path = given.json or Path(folder) / RUN_FILE
    write_whole(path, stored.text_of(record).encode())
    print(tables.whole(stored.read(path)))
    if ended:
        raise ended
    return FAILED if left_out else 0


def draw(folder):
    from gloo_bypass_tools.study.collectives import picture

    run = stored.read(folder / RUN_FILE)
    tables.renew(folder / PAGE, run)
    picture.write(run, folder)
    return 0


def run(given):
    given.build = given.build.absolute()
    if given.draw:
        return draw(given.draw)
    if given.inside:
        network.answer("mount", "-t", "tmpfs", "study", given.inside)
        network.prepare_network(control=False)
        return measure(given, given.inside)
    enclosure.check_tools()
    enclosure.check_right()
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        return enclosure.run_inside(folder, given.arguments)
