"""The command line of scripts/study."""

import argparse
import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

from gloo_bypass_tools.fabric_run import enclosure, place
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.argument_types import split_at_dashes
from gloo_bypass_tools.report.command import shown
from gloo_bypass_tools.report.records import RecordError, json_object
from gloo_bypass_tools.report.results import ResultsError, ResultsFolder, study_path
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.study import (
    catalogue,
    commands,
    continuation,
    definition,
    estimates,
    guest_part,
    options,
    transports,
)
from gloo_bypass_tools.study.measurement import SCHEMA, StudyMeasurement
from gloo_bypass_tools.study.printed import (
    collectives,
    failures,
    published,
    scaling,
    summation,
    techniques,
    throughput,
    utilisation,
)
from gloo_bypass_tools.study.plan import plan_from
from gloo_bypass_tools.study.summaries import keeping

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
PRINTED = {
    "techniques": techniques,
    "scaling": scaling,
    "failures": failures,
    "summation": summation,
    "collectives": collectives,
    "utilisation": utilisation,
    "throughput": throughput,
    "published": published,
}
TAKE_FLAGS = ("techniques", "scaling", "failures")  # of ddp_train, after "--"
DESCRIPTION = """Runs a study over kernel TCP and over DPDK (--transports: also UDP, RDMA and others), in turn, \
through the same emulated links, and prints
its tables with what was published, what was measured and what the model says. Those up to edge-bandwidth-training \
are the published studies; the
others sweep one parameter. RDMA runs over SoftRoCE, here or in a guest whose processor is emulated: its times there \
compare with those of TCP-netem,
TCP beside it, alone.
Writes a folder with JSON, CSV, plots and a page."""
EPILOG = """\
  scripts/study edge-latency --repeats 1                      small, some minutes
  scripts/study edge-latency --variants base,300ms --segments two
  scripts/study edge-bandwidth --scale published              as many bytes as DistilGPT2's gradient has: an hour and \
more
  scripts/study world-size                                    DistilGPT2 over two and four ranks, captured
  scripts/study loss --variants 0,random-1,burst-1            a sweep's points
  scripts/study stragglers --transports DPDK
  scripts/study world-size --transports TCP,DPDK,TCP-netem,RDMA   the last two in the guest: a smaller model
  scripts/study draw results/study-...                        tables, plots and page once more
  scripts/study keep results/study-...                        its summary and machine into docs/studies/runs
  scripts/study --continue results/study-...                  what is missing of a study that was cut off

exit status: 0; 1 a run failed; 2 bad input, or no right to make namespaces; 130 interrupted: results so far are kept"""


def parser_of():
    parser = argparse.ArgumentParser(
        prog="study", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--continue",
        dest="continued",
        type=Path,
        metavar="RESULTS",
        help="go on with the study of this folder where it was cut off: what it has is kept, what "
        "failed or is missing is measured, as its command said, with the same build and on the same "
        "machine",
    )
    parsers = parser.add_subparsers(dest="name", metavar="NAME")
    for study in catalogue.STUDIES.values():
        model = f" Model: {study.model_about}" if study.model_about else ""
        about = f"{study.title}. {study.about}{model}"
        one = parsers.add_parser(study.name, help=study.title, description=about)
        options.add_options(one, study)
        one.set_defaults(study=study)
    for name, study in PRINTED.items():
        one = parsers.add_parser(
            name, help=study.TITLE, description=study.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        study.add_options(options.Options(one))
        one.set_defaults(printed=study)
    about = "the tables, plots and page of a folder once more"
    again = parsers.add_parser("draw", help=about, description="Draws a study's folder again.")
    there = parsers.add_parser("in-guest")  # the guest's part, which guest_part starts
    for one, run_folder in ((again, draw), (there, in_guest)):
        one.add_argument("folder", type=Path)
        one.set_defaults(run_folder=run_folder)
    kept = parsers.add_parser("keep", help=keeping.ABOUT, description=keeping.DESCRIPTION)
    keeping.add_options(kept)
    kept.set_defaults(keeping=True)
    return parser


def programs_of(given):
    build = given.build.absolute()
    return commands.Programs(
        fabric_run=ROOT / "scripts" / "fabric-run",
        fabric=build / "tools" / "fabric" / "fabric",
        all_reduce_perf=build / "tools" / "all_reduce_perf",
        python="/usr/bin/python3",
        probe=Path(__file__).with_name("rank_probe.py"),
        trainer=build / "trainer" / "ddp_train",
        analyser=build / "tools" / "capture" / "capture_analyser",
        guest=ROOT / "scripts" / "rdma-guest",
        study=ROOT / "scripts" / "study",
    )


def placed(plan, study, asked):
    """(the plan, which knows what is measured in the guest; transports that are left out, and why). FabricRunError
    where that leaves none."""
    listed = [one for one in plan.transports if one in transports.KERNEL_LINKS]
    if not listed:
        return plan, {}
    left_out = {}
    try:
        where, _ = place.choose(asked, True, "RDMA" in listed, place.guest_problem)
        plan = replace(plan, guest=tuple(listed) if where == place.IN_GUEST else ())
        if plan.guest and (problem := study.guest_problem(plan)):
            left_out = dict.fromkeys(plan.guest, problem)
    except FabricRunError as error:
        left_out = dict.fromkeys(listed, str(error))
    if left_out and len(left_out) == len(plan.transports):
        raise FabricRunError(f"{', '.join(left_out)}: {next(iter(left_out.values()))}", BAD_INPUT)
    return plan, left_out


def check(parser, study, plan, programs):
    """Everything that can be known before anything is made."""
    if problem := options.problem_of(plan, study):
        parser.error(problem)
    trained = study.workload == definition.TRAIN
    for program in ("fabric", *(("trainer", "analyser") if trained else ("all_reduce_perf",))):
        if not os.access(path := getattr(programs, program), os.X_OK):
            parser.error(f"{path} is missing: run scripts/build first, or say --build DIR")


def draw(path):
    folder = ResultsFolder(path)
    from gloo_bypass_tools.study import rendering
    from gloo_bypass_tools.report.display import console_for_output

    try:
        drawn = rendering.render(folder)
    except (KeyError, TypeError, AttributeError) as error:  # of a record that says something else than was written
        raise RecordError(f"{folder.place('results.json')}: damaged, it lacks or garbles {error}") from error
    rendering.show(*drawn, console_for_output())
    print(f"\nPage: {shown(folder.place('index.html'))}")
    return 0


def announcement(measurement):
    plan, missing, listed = measurement.plan, measurement.missing(), measurement.cells()
    times = f"{len(listed)} cells, {plan.repeats} time{'s' if plan.repeats > 1 else ''}"
    if len(missing) < plan.repeats * len(listed):
        times += f", {len(missing)} of these {plan.repeats * len(listed)} runs missing"
    cores = len(os.sched_getaffinity(0))
    runs_s = sum(estimates.cell_s(plan, measurement.study, cell, cores) for _, cell in missing)
    return f"{times}: {estimates.in_words(plan, runs_s)} on a quick machine with nothing else to do"


def in_guest(path):
    """The guest's part of a study; what failed stands in its results."""
    from gloo_bypass_tools.report.display import Display

    folder = ResultsFolder(path)
    name, record, paths = guest_part.read_order(folder)
    study, programs = catalogue.STUDIES[name], {key: Path(value) for key, value in paths.items()}
    measurement = StudyMeasurement(
        ROOT, plan_from(study, record), study, commands.Programs(**programs), folder, Display(), "", in_guest=True
    )
    if folder.place("results.json").exists():
        measurement.take_up(json_object(folder.place("results.json")))
    measurement.run()
    return 0


def measure(given, plan, left_out, arguments, earlier=None):
    """`earlier`: folder and record of the study to go on with."""
    if set(plan.transports) - set(plan.guest) - set(left_out):
        # What runs in the guest has these rights there.
        enclosure.check_tools()
        enclosure.check_right()
    folder, record = earlier or (None, None)
    if folder is None:
        folder = ResultsFolder.create(given.output or study_path(ROOT, plan.study))
    with continuation.alone(folder):
        return measure_into(folder, given, plan, left_out, arguments, record)


def measure_into(folder, given, plan, left_out, arguments, record):
    from gloo_bypass_tools.report.display import Display
    from gloo_bypass_tools.study import rendering

    display, status, again = Display(), 0, shlex.join(["scripts/study", *arguments])
    measurement = StudyMeasurement(ROOT, plan, given.study, programs_of(given), folder, display, again, left_out)
    if record:
        continuation.check(folder, record, measurement)
        measurement.take_up(record)
    if measurement.missing() or not record:
        display.line(f"{announcement(measurement)}; into {shown(folder.path)}")
    else:
        finished = continuation.is_finished(folder, record)
        display.line(f"nothing is missing in {shown(folder.path)}{'' if finished else ' but its page, which is drawn'}")
        if finished:
            return 0
    try:
        status = 0 if measurement.run() and not left_out else FAILED
    except KeyboardInterrupt:
        display.line("interrupted; everything started here has been ended", style="yellow")
        status = INTERRUPTED
    if not measurement.record["runs"]:
        display.line(f"nothing was measured; logs are in {shown(folder.place('logs'))}")
        return status or FAILED
    rendering.show(*rendering.render(folder), display.console)
    display.line(f"\nResults: {shown(folder.path)}    Page: {shown(folder.place('index.html'))}")
    return status


def parsed(parser, arguments):
    """What follows "--", of a study that prints its tables: flags of the program that it runs. `inside`: the folder of
    the enclosure that a printed study has started itself again in, with the same `arguments`, or ''."""
    inside, arguments = (arguments[1], arguments[2:]) if arguments[:1] == [enclosure.INSIDE] else ("", arguments)
    own, program = split_at_dashes(arguments)
    given = parser.parse_args(own)
    if program and "printed" not in given:
        parser.error(f"unrecognized arguments: {' '.join(program)}")
    return argparse.Namespace(**vars(given), flags=program[1:], inside=inside, arguments=arguments)


def print_study(parser, given):
    if given.flags and given.name not in TAKE_FLAGS:
        parser.error(f"unrecognized arguments: -- {' '.join(given.flags)}")
    if problem := given.printed.problem_of(given):
        parser.error(problem)
    try:
        return given.printed.run(given) or 0
    except (RuntimeError, ValueError) as error:
        print(f"study: {error}", file=sys.stderr)
        return FAILED


def run(parser, arguments):
    given, earlier = parsed(parser, arguments), None
    if "run_folder" in given:
        return given.run_folder(given.folder)
    if "keeping" in given:
        return keeping.run(given)
    if "printed" in given:
        return print_study(parser, given)
    if given.continued:
        if given.name:
            parser.error("--continue goes without a study's name: the folder says which")
        *earlier, arguments = continuation.read(given.continued, SCHEMA, ROOT)
        given = parser.parse_args(arguments)
    if not given.name:
        parser.error("the following arguments are required: NAME")
    plan = options.plan_from_options(given)
    check(parser, given.study, plan, programs_of(given))
    plan, left_out = placed(plan, given.study, given.where)
    return measure(given, plan, left_out, arguments, earlier)


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    processes.interrupt_on(signal.SIGTERM, signal.SIGHUP)
    try:
        return run(parser_of(), arguments)
    except (FabricRunError, ResultsError, RecordError, processes.StageError) as error:
        print(f"study: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # Whoever read the output has seen enough; what Python flushes at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        print(f"study: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("study: interrupted", file=sys.stderr)
        return INTERRUPTED
