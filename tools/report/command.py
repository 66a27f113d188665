"""The command lines of scripts/quickstart, scripts/compare and scripts/report."""

import argparse
import functools
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.argument_types import number_in
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.transports import BY_NAME, COMPARED

SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# Exit statuses: 1 a stage failed or results differ, 2 bad input, 130 interrupted.
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
# What the comparison runs. The tests are left to scripts/test: they would take as long again to build.
TARGETS = ("trainer/ddp_train", "tools/all_reduce_perf", "plugin/libgloo_bypass.so")
INSTALL_LIMIT_S, BUILD_LIMIT_S = 3600.0, 3600.0
# Between lines about the build where there is no terminal.
COUNTER_S = 30.0
# Of quickstart's time, for the comparison with RDMA in the guest where this machine has no device.
GUEST_MINUTES = 3.0
# What is measured unless the user says otherwise, by place: emulation is ten times slower.
DEFAULTS = {
    "host": {"model": "distilgpt2", "sizes": (4, 64 * 2**20, 4), "idle": 5.0},
    "guest": {"model": "tiny", "sizes": (4, 4 * 2**20, 32), "idle": 5.0},
}


def size_of(text):
    """Bytes of '4', '64K', '64M': powers of 1024, as all_reduce_perf reads them."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: write 4, 64K, 64M or 1G")
    return int(found.group(1)) * SUFFIXES[found.group(2)]


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


def names_of(text):
    names = [name.strip() for name in text.split(",")]
    if not all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in names) or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of different transports, as in TCP,DPDK")
    return tuple(names)


def add_measurement_options(parser, minutes):
    parser.add_argument(
        "--transports",
        type=names_of,
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
    parser.add_argument(
        "--ranks", type=number_in(int, 2, 64), default=2, metavar="N", help="ranks on this machine (default 2)"
    )
    parser.add_argument(
        "--sizes",
        type=sizes_of,
        metavar="B:E:F",
        help="all-reduce sizes: smallest, largest, factor (default 4:64M:4, and 10M floats are added; in "
        "the guest 4:4M:32)",
    )
    parser.add_argument(
        "--repeats",
        type=number_in(int, 1, 100),
        default=3,
        metavar="N",
        help="at most so many trainings of each transport, in turn (default 3)",
    )
    parser.add_argument(
        "--minutes",
        type=number_in(float, 0.1, 1440),
        default=minutes,
        metavar="M",
        help=f"time for everything but package download: repeats are left out to keep it (default {minutes:g})",
    )
    parser.add_argument(
        "--steps",
        type=number_in(int, 2, 100000),
        default=6,
        metavar="N",
        help="steps of each training, warm-up included (default 6)",
    )
    parser.add_argument(
        "--warm-up",
        type=number_in(int, 0, 1000),
        default=1,
        metavar="N",
        help="first steps that are not measured (default 1)",
    )
    parser.add_argument("--model", choices=("distilgpt2", "tiny"), help="default distilgpt2, in the guest tiny")
    parser.add_argument(
        "--batch-size", type=number_in(int, 1, 65536), default=8, metavar="N", help="samples a rank (default 8)"
    )
    parser.add_argument(
        "--seq-length", type=number_in(int, 1, 1024), default=64, metavar="N", help="tokens a sample (default 64)"
    )
    parser.add_argument("--seed", type=number_in(int, 0, 2**63 - 1), default=1, metavar="N")
    parser.add_argument(
        "--idle",
        type=number_in(float, 0, 3600),
        metavar="S",
        help="seconds of standing still to measure; 0: leave out (default 5)",
    )
    parser.add_argument("--no-training", action="store_true", help="leave the training out")
    parser.add_argument(
        "--no-benchmark", action="store_true", help="leave all-reduces, torch.distributed and idle ranks out"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="a new folder for the results (default results/<time>)"
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)"
    )
    parser.add_argument(
        "--compare-programs", type=Path, default=ROOT / "scripts" / "compare-programs", help=argparse.SUPPRESS
    )
    parser.add_argument("--guest-program", type=Path, default=ROOT / "scripts" / "rdma-guest", help=argparse.SUPPRESS)
    parser.add_argument("trainer", nargs="*", metavar="TRAINER OPTION", help="after --: further options of ddp_train")


def check(parser, options):
    if options.warm_up >= options.steps:
        parser.error(f"--warm-up {options.warm_up} leaves none of --steps {options.steps} to measure")
    if options.no_training and options.no_benchmark:
        parser.error("--no-training and --no-benchmark leave nothing to do")


def decide(options):
    """The Place to measure at; fills in what the user left open. PlaceError where there is none."""
    from gloo_bypass_tools.report import guest, place, rdma_ports

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
    from gloo_bypass_tools.report.comparison import Plan

    return Plan(
        transports=options.transports,
        ranks=options.ranks,
        model=options.model,
        batch_size=options.batch_size,
        seq_len=options.seq_length,
        steps=options.steps,
        warm_up=options.warm_up,
        repeats=options.repeats,
        seed=options.seed,
        sizes=options.sizes,
        idle_s=options.idle,
        minutes=options.minutes,
        training=not options.no_training,
        benchmark=not options.no_benchmark,
        trainer_arguments=tuple(options.trainer),
        emulated=emulated,
    )


def measurement_of(options, folder, display, budget, where, arguments):
    """What will measure at this place: Stages that have run()."""
    repeat_command = shlex.join(arguments)
    if where.kind == "guest":
        from gloo_bypass_tools.report.guest import GuestMeasurement

        return GuestMeasurement(
            ROOT,
            options.guest_program,
            options.build.resolve(),
            plan_of(options, emulated=True),
            folder,
            display,
            where,
            repeat_command,
        )
    from gloo_bypass_tools.report.comparison import Comparison

    return Comparison(
        ROOT,
        options.build.resolve(),
        plan_of(options),
        folder,
        display,
        budget,
        {"repeat_command": repeat_command, "place": where.as_record()},
        options.compare_programs,
    )


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
    Returns whether nothing failed; where the guest cannot be had, the reason is written down and nothing has failed.
    """
    from gloo_bypass_tools.report import guest, place
    from gloo_bypass_tools.report.comparison import Plan
    from gloo_bypass_tools.report.results import ResultsFolder

    problem = guest.problem(options.guest_program)
    if problem:
        guest.fetch_kernel(options.guest_program, folder.place("logs/fetch-kernel.log"))
        problem = guest.problem(options.guest_program)
    if problem:
        measurement.record["guest"] = {"why_not": problem}
        measurement.save()
        display.line(
            f"RDMA is left out: this machine has no RDMA device, and the guest cannot be had: {problem}", style="yellow"
        )
        return True
    defaults = DEFAULTS["guest"]
    plan = Plan(
        transports=COMPARED,
        ranks=2,
        model=defaults["model"],
        batch_size=4,
        seq_len=32,
        steps=5,
        warm_up=1,
        repeats=1,
        seed=options.seed,
        sizes=defaults["sizes"],
        idle_s=0.0,
        minutes=GUEST_MINUTES,
        training=not options.no_training,
        benchmark=not options.no_benchmark,
        emulated=True,
    )
    where = place.Place(place.GUEST, "", True, "this machine has no RDMA device with an active port")
    within = ResultsFolder.create(folder.path / "guest")
    measurement.record["guest"] = {"folder": "guest"}
    measurement.save()
    inner = guest.GuestMeasurement(
        ROOT,
        options.guest_program,
        options.build.resolve(),
        plan,
        within,
        display,
        where,
        f"scripts/compare --where guest --transports {','.join(COMPARED)}",
    )
    return inner.run()


def shown(path):
    """Relative to where the user stands, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


def missing_programs(options):
    wanted = []
    if not options.no_training:
        wanted.append("trainer/ddp_train")
    if not options.no_benchmark:
        wanted.append("tools/all_reduce_perf")
    return [name for name in wanted if not os.access(options.build / name, os.X_OK)]


def guarded(name, body):
    """Runs a command's body; turns what the user can put right into one line and an exit status."""
    from gloo_bypass_tools.report.place import PlaceError
    from gloo_bypass_tools.report.records import RecordError
    from gloo_bypass_tools.report.results import ResultsError

    processes.interrupt_on(signal.SIGTERM, signal.SIGHUP)
    try:
        return body()
    except (PlaceError, ResultsError, RecordError, processes.StageError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"{name}: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED


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
        where = decide(options)
        from gloo_bypass_tools.report.comparison import Budget
        from gloo_bypass_tools.report.display import Display
        from gloo_bypass_tools.report.results import ResultsFolder, default_path

        folder = ResultsFolder.create(options.output or default_path(ROOT))
        display, budget = Display(), Budget()
        if where.kind == "guest":
            display.line(f"All of it is measured {where.in_words()}: {where.why}.")
        measurement = measurement_of(
            options, folder, display, budget, where, ["scripts/compare", *without_output(arguments)]
        )
        return measure(measurement, folder, display, budget)

    return guarded("compare", body)


def measure_only(options):
    """The measurement alone, into a folder that is there, with nothing loaded that takes long to load."""
    from gloo_bypass_tools.report.comparison import Budget, Comparison
    from gloo_bypass_tools.report.lines import LineDisplay
    from gloo_bypass_tools.report.results import ResultsFolder

    return (
        0
        if Comparison(
            ROOT,
            options.build,
            plan_of(options, options.emulated),
            ResultsFolder(options.measure_into),
            LineDisplay(),
            Budget(),
        ).run()
        else FAILED
    )


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
        from gloo_bypass_tools.report.comparison import Budget
        from gloo_bypass_tools.report.display import Display
        from gloo_bypass_tools.report.results import ResultsFolder, default_path

        where = decide(options)
        folder = ResultsFolder.create(options.output or default_path(ROOT))
        display, budget = Display(), Budget()
        display.line(f"Results go to {shown(folder.path)}.")
        after = None
        if where.kind == "host" and "RDMA" not in options.transports and not options.no_guest:
            options.minutes = max(0.1, options.minutes - GUEST_MINUTES)
            after = functools.partial(add_guest, options, folder, display)
        before = []
        if not options.no_install:
            before.append(("install packages", "install", [ROOT / "scripts" / "install-packages"], INSTALL_LIMIT_S))
        if not options.no_build:
            wanted = [word for target in TARGETS for word in ("--target", target)]
            before.append(
                ("build", "build", [ROOT / "scripts" / "build", "--dir", options.build, *wanted], BUILD_LIMIT_S)
            )
        measurement = measurement_of(
            options, folder, display, budget, where, ["scripts/quickstart", *without_output(arguments)]
        )
        return measure(measurement, folder, display, budget, before, after)

    return guarded("quickstart", body)


def without_output(arguments):
    """Arguments for repeating the command: --output must name a new folder each time."""
    kept, skip = [], False
    for word in arguments:
        if skip:
            skip = False
        elif word == "--output":
            skip = True
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
        from gloo_bypass_tools.report.results import ResultsFolder

        folder = ResultsFolder(options.folder)
        measurement, made = rendering.render(folder)
        rendering.show(measurement, made, console_for_output())
        print(f"\nPage: {shown(folder.place('index.html'))}")
        return 0

    return guarded("report", body)
