"""The command lines of scripts/quickstart, scripts/compare and scripts/report."""

import argparse
import functools
import os
import re
import shlex
import signal
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.argument_types import names_of, number_in, size_of
from gloo_bypass_tools.common.failures import BAD_INPUT, FAILED, exit_status
from gloo_bypass_tools.common.options import add_build, add_number, add_output
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.transports import BY_NAME, COMPARED, DEVICES
from gloo_bypass_tools.report import guest, place, rdma_ports
from gloo_bypass_tools.report.comparison import Budget, Comparison, Plan
from gloo_bypass_tools.report.guest import GuestMeasurement
from gloo_bypass_tools.report.lines import LineDisplay
from gloo_bypass_tools.report.results import ResultsFolder, default_path

# Exit statuses: 1 a stage failed or results differ, 2 bad input, 130 interrupted.
INTERRUPTED = 130
# What the comparison runs. The tests are left to scripts/test: they would take as long again to build.
TARGETS = ("trainer/ddp_train", "tools/all_reduce_perf", "plugin/libgloo_bypass.so")
INSTALL_LIMIT_S, BUILD_LIMIT_S = 3600.0, 3600.0
# Between lines about the build where there is no terminal.
COUNTER_S = 30.0
# Of quickstart's time, for the comparison with RDMA in the guest where this machine has no device; and its size.
GUEST_MINUTES = 3.0
SMALL = {"ranks": 2, "batch_size": 4, "seq_len": 32, "steps": 5, "warm_up": 1, "repeats": 1, "idle_s": 0.0}
# What is measured unless the user says otherwise, by place: emulation is ten times slower.
DEFAULTS = {
    place.HOST: {"model": "distilgpt2", "sizes": (4, 64 * 2**20, 4), "idle_s": 5.0},
    place.GUEST: {"model": "tiny", "sizes": (4, 4 * 2**20, 32), "idle_s": 5.0},
}


def sizes_of(text):
    """(smallest, largest, factor) of '4:64M:4'."""
    parts = text.split(":")
    if len(parts) != 3 or not parts[2].isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not SMALLEST:LARGEST:FACTOR, as in 4:64M:4")
    low, high, factor = size_of(parts[0]), size_of(parts[1]), int(parts[2])
    if low < 4 or high < low or factor < 2:
        raise argparse.ArgumentTypeError(
            f"'{text}': the smallest is 4 bytes at least, the largest no less, the factor 2 at least"
        )
    return low, high, factor


def add_measurement_options(parser, minutes):
    parser.add_argument(
        "--transports",
        type=names_of(DEVICES),
        metavar="A,B",
        help="what to compare; ratios are to the first (default TCP,DPDK, and RDMA where there is a device)",
    )
    parser.add_argument(
        "--where",
        choices=("auto", "host", "guest"),
        default="auto",
        help="measure all of it on this machine or in the guest of scripts/rdma-guest; auto: in the guest if RDMA is "
        "compared and this machine has no RDMA device",
    )
    add_number(parser, "--ranks", int, 2, 64, "ranks on this machine", default=2)
    parser.add_argument(
        "--sizes",
        type=sizes_of,
        metavar="B:E:F",
        help="all-reduce sizes: smallest, largest, factor (default 4:64M:4, and 10M floats are added; in "
        "the guest 4:4M:32)",
    )
    add_number(parser, "--repeats", int, 1, 100, "at most so many trainings of each transport, in turn", default=3)
    budget = "time for everything but package download: repeats are left out to keep it"
    add_number(parser, "--minutes", float, 0.1, 1440, budget, default=minutes, metavar="M")
    add_number(parser, "--steps", int, 2, 100000, "steps of each training, warm-up included", default=6)
    add_number(parser, "--warm-up", int, 0, 1000, "first steps that are not measured", default=1)
    parser.add_argument("--model", choices=("distilgpt2", "tiny"), help="default distilgpt2, in the guest tiny")
    add_number(parser, "--batch-size", int, 1, 65536, "samples a rank", default=8)
    add_number(parser, "--seq-length", int, 1, 1024, "tokens a sample", default=64, dest="seq_len")
    parser.add_argument("--seed", type=number_in(int, 0, 2**63 - 1), default=1, metavar="N")
    idle = "seconds of standing still to measure; 0: leave out (default 5)"
    add_number(parser, "--idle", float, 0, 3600, idle, metavar="S", dest="idle_s")
    parser.add_argument("--no-training", action="store_false", dest="training", help="leave the training out")
    benchmark = "leave all-reduces, torch.distributed and idle ranks out"
    parser.add_argument("--no-benchmark", action="store_false", dest="benchmark", help=benchmark)
    add_output(parser, "the results", "<time>")
    add_build(parser)
    parser.add_argument(
        "--compare-programs", type=Path, default=ROOT / "scripts" / "compare-programs", help=argparse.SUPPRESS
    )
    parser.add_argument("--guest-program", type=Path, default=ROOT / "scripts" / "rdma-guest", help=argparse.SUPPRESS)
    trainer = "after --: further options of ddp_train"
    parser.add_argument("trainer_arguments", nargs="*", metavar="TRAINER OPTION", help=trainer)


def check(parser, options):
    # Stages run in the sources' folder.
    options.build = options.build.absolute()
    options.output = options.output and options.output.absolute()
    if options.warm_up >= options.steps:
        parser.error(f"--warm-up {options.warm_up} leaves none of --steps {options.steps} to measure")
    if not options.training and not options.benchmark:
        parser.error("--no-training and --no-benchmark leave nothing to do")


def decide(options):
    """The Place to measure at; fills in what the user left open. PlaceError where there is none."""
    ports = rdma_ports.active()
    if options.transports is None:
        options.transports = tuple(
            one for one in COMPARED if ports or options.where == "guest" or not BY_NAME[one].needs_device
        )
    where = place.choose(options.where, options.transports, ports, lambda: guest.problem(options.guest_program))
    for name, value in DEFAULTS[where.kind].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return where


def plan_of(options, emulated=False):
    given = {one.name: getattr(options, one.name) for one in fields(Plan) if one.name != "emulated"}
    return Plan(**given | {"trainer_arguments": tuple(options.trainer_arguments)}, emulated=emulated)


def measurement_of(options, folder, display, budget, where, arguments):
    """The measurement for this place: Stages with run()."""
    build, repeat_command = options.build.resolve(), shlex.join(arguments)
    if where.emulated:
        plan = plan_of(options, emulated=True)
        return GuestMeasurement(options.guest_program, build, plan, folder, display, where, repeat_command)
    record = {"repeat_command": repeat_command, "place": where.as_record()}
    return Comparison(build, plan_of(options), folder, display, budget, record, options.compare_programs)


def build_counter(display, log, clock=time.monotonic):
    """A function that shows what a stage before the measurement has done: how many of ninja's steps, or the log's last
    line; in place on a terminal, else a line every COUNTER_S."""
    shown_at = clock()

    def tick():
        nonlocal shown_at
        said = processes.last_line(log, 1000)  # the steps stand at its begin
        found = re.match(r"\[(\d+)/(\d+)\]", said)
        counted = tuple(int(part) for part in found.groups()) if found else ()
        note = "building: {} of {}".format(*counted) if counted else said[-70:]
        display.advance(*counted, note=note)
        if note and not display.console.is_terminal and clock() - shown_at >= COUNTER_S:
            shown_at = clock()
            display.line(note)

    return tick


def prepare(measurement, folder, display, budget, before):
    """Runs the stages before the measurement. Returns whether all succeeded."""
    for name, slug, command, limit_s in before:
        tick = build_counter(display, folder.place(f"logs/{slug}.log"))
        if not measurement.stage(name, slug, command, limit_s, dict(os.environ), on_tick=tick):
            measurement.record["state"] = "failed"
            measurement.save()
            return False
        if slug == "install":
            budget.restart()
    return True


def measure(measurement, folder, display, budget, before=(), after=None):
    """Runs the stages `before`, the measurement and what comes `after` it, and draws what there is, whatever ended
    it."""
    from gloo_bypass_tools.report import rendering

    status = 0
    try:
        if not prepare(measurement, folder, display, budget, before):
            return FAILED
        status = 0 if measurement.run() else FAILED
        if after is not None and not after(measurement):
            status = FAILED
    except KeyboardInterrupt:
        measurement.record["state"] = "interrupted"
        measurement.save()
        display.line("interrupted; everything started here has been ended", style="yellow")
        status = INTERRUPTED
    record = measurement.record
    if not (record["training"] or record["all_reduce"] or record["idle"]):
        display.line(f"nothing was measured; logs are in {shown(folder.place('logs'))}")
        return status or FAILED
    with display.stage("report"):
        loaded, made = rendering.render(folder)
    rendering.show(loaded, made, display.console)
    display.line(f"\nResults: {shown(folder.path)}    Page: {shown(folder.place('index.html'))}")
    return status or (FAILED if made.same_bits is False or made.guest and made.guest.same_bits is False else 0)


def add_guest(options, folder, display, measurement):
    """quickstart's comparison with RDMA where this machine has no device: small, in the guest, in a folder of its own.
    Returns whether nothing failed. A guest that is not available is no failure; the record says why.
    """
    problem = guest.problem(options.guest_program)
    if problem:
        guest.fetch_kernel(options.guest_program, folder.place("logs/fetch-kernel.log"))
        problem = guest.problem(options.guest_program)
    if problem:
        measurement.record["guest"] = {"why_not": problem}
        measurement.save()
        why = f"this machine has no RDMA device, and the guest is not available: {problem}"
        display.line(f"RDMA is left out: {why}", style="yellow")
        return True
    of_guest = DEFAULTS[place.GUEST] | {"minutes": GUEST_MINUTES, "trainer_arguments": (), "emulated": True}
    plan = replace(plan_of(options), transports=COMPARED, **of_guest | SMALL)
    where = place.Place(place.GUEST, "", True, "this machine has no RDMA device with an active port")
    within = ResultsFolder.create(folder.path / "guest")
    repeat_command = f"scripts/compare --where guest --transports {','.join(COMPARED)}"
    build = options.build.resolve()
    made = GuestMeasurement(options.guest_program, build, plan, within, display, where, repeat_command)
    made.save()  # before the record names it: whoever interrupts may have a page
    measurement.record["guest"] = {"folder": "guest"}
    measurement.save()
    return made.run()


def shown(path):
    """Relative to where the user stands, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


def missing_programs(options):
    wanted = {"trainer/ddp_train": options.training, "tools/all_reduce_perf": options.benchmark}
    return [name for name, runs in wanted.items() if runs and not os.access(options.build / name, os.X_OK)]


def guarded(name, body):
    """The exit status of a command's body, or of what ends it."""
    processes.interrupt_on(signal.SIGTERM, signal.SIGHUP)
    return exit_status(name, body)


def compare_parser():
    parser = argparse.ArgumentParser(
        prog="compare",
        description="Trains and all-reduces over several transports in turn, with "
        "what is built already, and writes a table, plots and a page.",
    )
    add_measurement_options(parser, minutes=60.0)
    # What the guest's own side of the comparison is started with.
    parser.add_argument("--measure-into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--emulated", action="store_true", help=argparse.SUPPRESS)
    return parser


def compare(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = compare_parser()
    options = parser.parse_args(arguments)
    check(parser, options)
    missing = missing_programs(options)
    if missing:
        print(f"compare: {options.build / missing[0]} is missing: run scripts/build first", file=sys.stderr)
        return BAD_INPUT

    def body():
        if options.measure_into:
            return measure_only(options)
        from gloo_bypass_tools.report.display import Display

        where = decide(options)
        folder = ResultsFolder.create(options.output or default_path(ROOT))
        display, budget = Display(), Budget()
        if where.kind == "guest":
            display.line(f"All of it is measured {where.in_words()}: {where.why}.")
        repeat = ["scripts/compare", *without_output(arguments)]
        return measure(measurement_of(options, folder, display, budget, where, repeat), folder, display, budget)

    return guarded("compare", body)


def measure_only(options):
    """The measurement alone, into a folder that is there, with nothing loaded that takes long to load."""
    folder, plan = ResultsFolder(options.measure_into), plan_of(options, options.emulated)
    return 0 if Comparison(options.build, plan, folder, LineDisplay(), Budget()).run() else FAILED


def quickstart(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="quickstart",
        description="Installs packages, builds, trains DistilGPT2 over each transport in turn, "
        "compares programs of PyTorch, benchmarks all-reduces, and writes a table, plots and a page. Where the forward "
        "pass, which sends nothing, shows that the machine was not steady, it trains again in shorter turns. Where "
        "this machine has no RDMA device, TCP, DPDK and RDMA are compared in a guest as well, on a smaller scale.",
    )
    add_measurement_options(parser, minutes=12.0)
    parser.add_argument("--no-guest", action="store_true", help="leave the guest out")
    parser.add_argument("--no-install", action="store_true", help="do not look for missing packages")
    parser.add_argument("--no-build", action="store_true", help="use what is built")
    options = parser.parse_args(arguments)
    check(parser, options)

    def body():
        from gloo_bypass_tools.report.display import Display

        where = decide(options)
        folder = ResultsFolder.create(options.output or default_path(ROOT))
        display, budget = Display(), Budget()
        display.line(f"Results go to {shown(folder.path)}.")
        after = None
        if where.kind == "host" and not where.device and "RDMA" not in options.transports and not options.no_guest:
            options.minutes = max(0.1, options.minutes - GUEST_MINUTES)
            after = functools.partial(add_guest, options, folder, display)
        before = []
        if not options.no_install:
            before.append(
                (
                    "install packages",
                    "install",
                    [ROOT / "scripts" / "install-packages", "build", "run", "guest"],
                    INSTALL_LIMIT_S,
                )
            )
        if not options.no_build:
            wanted = [word for target in TARGETS for word in ("--target", target)]
            build = [ROOT / "scripts" / "build", "--dir", options.build, *wanted]
            before.append(("build", "build", build, BUILD_LIMIT_S))
        repeat = ["scripts/quickstart", *without_output(arguments)]
        measurement = measurement_of(options, folder, display, budget, where, repeat)
        return measure(measurement, folder, display, budget, before, after)

    return guarded("quickstart", body)


def without_output(arguments):
    """Arguments for repeating the command: --output must name a new folder each time."""
    kept, words = [], iter(arguments)
    for word in words:
        if word == "--output":
            next(words, None)
        elif not word.startswith("--output="):
            kept.append(word)
    return kept


def report(arguments=None):
    parser = argparse.ArgumentParser(
        prog="report", description="Draws the table, plots and page of a results folder again from its raw files."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that quickstart or compare has written")
    options = parser.parse_args(arguments)

    def body():
        from gloo_bypass_tools.report import rendering
        from gloo_bypass_tools.report.display import console_for_output

        folder = ResultsFolder(options.folder)
        measurement, made = rendering.render(folder)
        rendering.show(measurement, made, console_for_output())
        print(f"\nPage: {shown(folder.place('index.html'))}")
        return 0

    return guarded("report", body)
