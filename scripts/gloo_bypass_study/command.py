"""The command line of scripts/study."""

import argparse
import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

from argument_types import assignment, number_in
from fabric_run import enclosure
from fabric_run.command import sysctl
from fabric_run.failures import FabricRunError
from gloo_bypass_report import children
from gloo_bypass_report.command import shown, size_of
from gloo_bypass_report.records import RecordError
from gloo_bypass_report.results import ResultsError, ResultsFolder, default_path

from . import catalogue, cells, prediction, training

ROOT = Path(__file__).resolve().parents[2]
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
TRANSPORTS = ("TCP", "DPDK", "DPDK-netdev")
TRAINING_STEPS = 4   # at small size
DESCRIPTION = """Runs a published study over kernel TCP and over DPDK, in turn, through the same emulated links, and prints its tables
with what was published, what was measured and what the model says. Writes a folder with JSON, CSV, plots and a page."""
EPILOG = """\
  scripts/study edge-latency --repeats 1                      small, some minutes
  scripts/study edge-latency --variants base,300ms --segments two
  scripts/study edge-bandwidth --scale published              as many bytes as DistilGPT2's gradient has: an hour and more
  scripts/study world-size                                    DistilGPT2 over two and four ranks, captured
  scripts/study draw results/study-...                        tables, plots and page once more

exit status: 0; 1 a run failed; 2 bad input, or no right to make namespaces; 130 interrupted: results so far are kept"""


def add_options(parser, study):
    names = [variant.name for variant in study.variants]
    parser.add_argument("--scale", choices=tuple(study.scales), default="small",
                        help=f"small: {study.scales['small'].bytes // catalogue.MIB} MiB; published: 327.65 MB (default small)")
    add_common_options(parser, names, repeats=2)
    parser.add_argument("--segments", type=subset_of(catalogue.SEGMENTS), default=catalogue.SEGMENTS, metavar="A,B",
                        help="largest segments of Gloo's ring: default (1 MiB), two (two a rank); default both")
    lossy = f", with loss {' and '.join(study.lossy['small'])} alone" if study.lossy["small"] else ""
    parser.add_argument("--losses", type=losses_of, metavar="P,P", help="per cent of the slow edge's frames, of all variants but base, as in "
                        f"0,0.1,1 (default {', '.join(f'{one:g}' for one in study.losses)}{lossy})")
    parser.add_argument("--ranks", type=number_in(int, 2, 64), default=study.ranks, metavar="N", help=f"published: {study.ranks} (default)")
    parser.add_argument("--bytes", type=size_of, metavar="S", help="of the vector, as 16M, instead of the scale's")
    parser.add_argument("--rounds", type=number_in(int, 1, 10000), metavar="N", help="all-reduces timed in a run, instead of the scale's")
    parser.add_argument("--warm-up", type=number_in(int, 0, 10000), metavar="N", help="all-reduces before them, instead of the scale's")
    parser.set_defaults(study=study)


def add_common_options(parser, names, repeats):
    parser.add_argument("--transports", type=subset_of(TRANSPORTS), default=("TCP", "DPDK"), metavar="A,B",
                        help=f"of {', '.join(TRANSPORTS)} (default TCP,DPDK)")
    parser.add_argument("--variants", type=subset_of(names), default=tuple(names), metavar="A,B", help=f"of {', '.join(names)} (default all)")
    parser.add_argument("--repeats", type=number_in(int, 1, 100), default=repeats, metavar="N", help=f"of all runs, in turn (default {repeats})")
    parser.add_argument("--mtu", type=number_in(int, 1228, 32626), default=1500, metavar="N",
                        help="longest IP packet, of all transports (default 1500)")
    parser.add_argument("--seed", type=number_in(int, 0, 2**63 - 1), default=1, metavar="N", help="of the fabric's losses (default 1)")
    parser.add_argument("--env", type=assignment, action="append", default=[], metavar="NAME=VALUE",
                        help="for the ranks over DPDK; may be repeated (default " + ", ".join(f"{k}={v}" for k, v in cells.SETTINGS.items()) + ")")
    parser.add_argument("--sysctl", type=sysctl, action="append", default=[], metavar="NAME=VALUE",
                        help="for the ranks over TCP, as net.ipv4.tcp_congestion_control=cubic; may be repeated")
    parser.add_argument("--output", type=Path, metavar="DIR", help="a new folder for the results (default results/study-<name>-<time>)")
    parser.add_argument("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)")


def add_training_options(parser, study):
    parser.add_argument("--scale", choices=("small", "published"), default="small",
                        help="small: the first 4 steps of the epoch; published: all of it, hours (default small)")
    add_common_options(parser, [variant.name for variant in study.variants], repeats=1)
    parser.add_argument("--steps", type=number_in(int, 2, 100000), metavar="N", help="of a run, at most the epoch's, instead of the scale's")
    parser.add_argument("--warm-up", type=number_in(int, 0, 1000), default=1, metavar="N", help="first steps not in T_step and T_ar (default 1)")
    parser.add_argument("--model", choices=(training.MODEL, "tiny"), default=training.MODEL, help="tiny: to try it; has nothing published beside it")
    parser.set_defaults(study=study)


def subset_of(known):
    def parse(text):
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        if len(set(names)) != len(names):
            raise argparse.ArgumentTypeError(f"'{text}' names one twice")
        # In the order of the list, so that tables read as published.
        return tuple(name for name in known if name in names) if "TCP" not in known else names
    return parse


def losses_of(text):
    one = number_in(float, 0, 50)
    values = tuple(one(part.strip()) for part in text.split(","))
    if len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"'{text}' names one twice")
    return values


def parser_of():
    parser = argparse.ArgumentParser(prog="study", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parsers = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for study in catalogue.STUDIES.values():
        add_options(parsers.add_parser(study.name, help=study.title.lower(), description=f"{study.title}. {study.about}"), study)
    for study in training.STUDIES.values():
        add_training_options(parsers.add_parser(study.name, help=study.title.lower(), description=f"{study.title}. {study.about}"), study)
    draw = parsers.add_parser("draw", help="the tables, plots and page of a folder once more", description="Draws a study's folder again.")
    draw.add_argument("folder", type=Path)
    return parser


def training_plan_of(options):
    steps = options.steps or (0 if options.scale == "published" else TRAINING_STEPS)
    return training.TrainingPlan(study=options.study.name, scale=options.scale, transports=options.transports, variants=options.variants,
                                 repeats=options.repeats, model=options.model, steps=steps, warm_up=options.warm_up, mtu=options.mtu, seed=options.seed,
                                 settings=tuple((cells.SETTINGS | dict(options.env)).items()), sysctls=tuple(options.sysctl))


def plan_of(options):
    study, scale = options.study, options.study.scales[options.scale]
    lossy = study.lossy[options.scale]
    if options.losses is not None:
        lossy = tuple(variant.name for variant in study.variants if variant.name != catalogue.BASE)
    plan = cells.Plan(study=study.name, scale=options.scale, transports=options.transports, variants=options.variants, segments=options.segments,
                      losses=study.losses if options.losses is None else options.losses, lossy=lossy, repeats=options.repeats,
                      ranks=options.ranks, bytes=scale.bytes, rounds=scale.rounds, warm_up=scale.warm_up, mtu=options.mtu,
                      seed=options.seed, settings=tuple((cells.SETTINGS | dict(options.env)).items()), sysctls=tuple(options.sysctl))
    changed = {name: value for name, value in (("bytes", options.bytes), ("rounds", options.rounds), ("warm_up", options.warm_up))
               if value is not None}
    return replace(plan, **changed)


def programs_of(options):
    build = options.build.absolute()
    return cells.Programs(fabric_run=ROOT / "scripts" / "fabric-run", fabric=build / "tools" / "fabric" / "fabric",
                          all_reduce_perf=build / "tools" / "all_reduce_perf", python="/usr/bin/python3",
                          probe=Path(__file__).with_name("rank_probe.py"), trainer=build / "trainer" / "ddp_train",
                          analyser=build / "tools" / "capture" / "capture_analyser")


def check(parser, options, plan, programs):
    """Everything that can be known before anything is made."""
    needed = check_training(parser, options, plan, programs) if options.name in training.STUDIES else check_edge(parser, plan, programs)
    for program in (programs.fabric, *needed):
        if not os.access(program, os.X_OK):
            parser.error(f"{program} is missing: run scripts/build first, or say --build DIR")


def check_training(parser, options, plan, programs):
    for name in plan.variants:
        if (steps := training.steps_of(plan, options.study.variant(name))) <= plan.warm_up:
            parser.error(f"--warm-up {plan.warm_up} leaves none of the {steps} steps of {name} to measure")
    return programs.trainer, programs.analyser


def check_edge(parser, plan, programs):
    if plan.bytes < 4 * 2 * plan.ranks or plan.bytes % 4:
        parser.error(f"--bytes {plan.bytes}: it must be a multiple of 4, and {8 * plan.ranks} at least with {plan.ranks} ranks")
    if not cells.cells_of(plan):
        parser.error("nothing to measure: base is measured without loss only; add 0 to --losses, or a variant")
    return (programs.all_reduce_perf,)


def draw(options):
    folder = ResultsFolder(options.folder)
    from . import rendering
    from gloo_bypass_report.display import console_for_output
    rendering.show(*rendering.render(folder), console_for_output())
    print(f"\nPage: {shown(folder.place('index.html'))}")
    return 0


def announcement(options, plan, listed):
    times = f"{len(listed)} cells, {plan.repeats} time{'s' if plan.repeats > 1 else ''}"
    if options.name in training.STUDIES:
        return times
    least_s = sum((1 + plan.warm_up + plan.rounds) * prediction.model_of(plan, options.study, cell).schedule_s + 5.0 for cell in listed)
    return f"{times}: about {max(1, round(plan.repeats * least_s / 60))} min by the model and more on a slow machine"


def measure(options, plan, programs, arguments):
    from gloo_bypass_report.display import Display

    from . import rendering
    from .measurement import EdgeMeasurement, TrainingMeasurement
    enclosure.check_tools()
    enclosure.check_right()
    default = default_path(ROOT)
    folder = ResultsFolder.create(options.output or default.with_name(f"study-{plan.study}-{default.name}"))
    display, status = Display(), 0
    kind = TrainingMeasurement if options.name in training.STUDIES else EdgeMeasurement
    measurement = kind(ROOT, plan, options.study, programs, folder, display, shlex.join(["scripts/study", *arguments]))
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
        plan = training_plan_of(options) if options.name in training.STUDIES else plan_of(options)
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
