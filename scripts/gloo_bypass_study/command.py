"""The command line of scripts/study."""

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

from fabric_run import enclosure
from fabric_run.failures import FabricRunError
from gloo_bypass_report import children
from gloo_bypass_report.command import shown
from gloo_bypass_report.records import RecordError
from gloo_bypass_report.results import ResultsError, ResultsFolder, default_path

from . import cells
from .options import KINDS, ROOT, kind_of

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
DESCRIPTION = """Runs a study over kernel TCP, over DPDK and (one slow edge) over RDMA, in turn, through the same emulated links, and prints its tables with what
was published, what was measured and what the model says. Those up to flow-symmetry are the published studies; the others sweep one parameter.
Writes a folder with JSON, CSV, plots and a page."""
EPILOG = """\
  scripts/study edge-latency --repeats 1                      small, some minutes
  scripts/study edge-latency --variants base,300ms --segments two
  scripts/study edge-bandwidth --scale published              as many bytes as DistilGPT2's gradient has: an hour and more
  scripts/study world-size                                    DistilGPT2 over two and four ranks, captured
  scripts/study loss --variants 0,random-1,burst-1            a sweep's points
  scripts/study stragglers --transports DPDK
  scripts/study draw results/study-...                        tables, plots and page once more

exit status: 0; 1 a run failed; 2 bad input, or no right to make namespaces; 130 interrupted: results so far are kept"""


def model_said(study):
    """Of a sweep, in its --help."""
    return f" Model: {study.model_about}" if hasattr(study, "model_about") else ""


def parser_of():
    parser = argparse.ArgumentParser(prog="study", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parsers = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for kind in KINDS:
        for study in kind.studies.values():
            one = parsers.add_parser(study.name, help=study.title, description=f"{study.title}. {study.about}{model_said(study)}")
            kind.add_options(one, study)
            one.set_defaults(study=study)
    draw = parsers.add_parser("draw", help="the tables, plots and page of a folder once more", description="Draws a study's folder again.")
    draw.add_argument("folder", type=Path)
    return parser


def programs_of(options):
    build = options.build.absolute()
    return cells.Programs(fabric_run=ROOT / "scripts" / "fabric-run", fabric=build / "tools" / "fabric" / "fabric",
                          all_reduce_perf=build / "tools" / "all_reduce_perf", python="/usr/bin/python3",
                          probe=Path(__file__).with_name("rank_probe.py"), trainer=build / "trainer" / "ddp_train",
                          analyser=build / "tools" / "capture" / "capture_analyser")


def check(parser, options, plan, programs):
    """Everything that can be known before anything is made."""
    kind = kind_of(options.name)
    if problem := kind.problem(plan, options.study):
        parser.error(problem)
    for program in ("fabric", *kind.programs(options.study)):
        if not os.access(path := getattr(programs, program), os.X_OK):
            parser.error(f"{path} is missing: run scripts/build first, or say --build DIR")


def draw(options):
    folder = ResultsFolder(options.folder)
    from . import rendering
    from gloo_bypass_report.display import console_for_output
    rendering.show(*rendering.render(folder), console_for_output())
    print(f"\nPage: {shown(folder.place('index.html'))}")
    return 0


def announcement(options, plan, listed):
    times = f"{len(listed)} cells, {plan.repeats} time{'s' if plan.repeats > 1 else ''}"
    least_s = kind_of(options.name).least_s
    if least_s is None:
        return times
    return f"{times}: about {max(1, round(plan.repeats * least_s(plan, options.study) / 60))} min by the model and more on a slow machine"


def measure(options, plan, programs, arguments):
    from gloo_bypass_report.display import Display

    from . import rendering
    enclosure.check_tools()
    enclosure.check_right()
    default = default_path(ROOT)
    folder = ResultsFolder.create(options.output or default.with_name(f"study-{plan.study}-{default.name}"))
    display, status = Display(), 0
    measurement = kind_of(options.name).measurement(ROOT, plan, options.study, programs, folder, display, shlex.join(["scripts/study", *arguments]))
    display.line(f"{announcement(options, plan, measurement.cells())}; into {shown(folder.path)}")
    try:
        status = 0 if measurement.run() else FAILED
    except KeyboardInterrupt:
        display.line("interrupted; everything started here has been ended", style="yellow")
        status = INTERRUPTED
    if not measurement.record["runs"]:
        display.line(f"nothing was measured; logs are in {shown(folder.place('logs'))}")
        return status or FAILED
    rendering.show(*rendering.render(folder), display.console)
    display.line(f"\nResults: {shown(folder.path)}    Page: {shown(folder.place('index.html'))}")
    return status


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = parser_of()
    options = parser.parse_args(arguments)
    children.interrupt_on(signal.SIGTERM, signal.SIGHUP)
    try:
        if options.name == "draw":
            return draw(options)
        plan = kind_of(options.name).plan_of(options)
        programs = programs_of(options)
        check(parser, options, plan, programs)
        return measure(options, plan, programs, arguments)
    except FabricRunError as error:
        print(f"study: {error}", file=sys.stderr)
        return BAD_INPUT
    except (ResultsError, RecordError, children.StageError) as error:
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
