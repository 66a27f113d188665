"""The command lines of scripts/quickstart, scripts/compare and scripts/report."""

import argparse
import os
import re
import shlex
import signal
import sys
from pathlib import Path

from . import children

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# Exit statuses: 1 a stage failed or results differ, 2 bad input, 130 interrupted.
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
# What the comparison runs. The tests are left to scripts/test: they would take as long again to build.
TARGETS = ("trainer/ddp_train", "tools/all_reduce_perf", "plugin/libgloo_bypass.so")
INSTALL_LIMIT_S, BUILD_LIMIT_S = 3600.0, 3600.0


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
        raise argparse.ArgumentTypeError(f"'{text}': the smallest is 4 bytes at least, the largest no less, the factor 2 at least")
    return low, high, factor


def names_of(text):
    names = [name.strip() for name in text.split(",")]
    if not all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in names) or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of different transports, as in TCP,DPDK")
    return tuple(names)


def ranged(kind, low, high):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}' must be a number from {low} to {high}")
        return value
    return parse


def add_measurement_options(parser, minutes):
    parser.add_argument("--transports", type=names_of, default=("TCP", "DPDK"), metavar="A,B",
                        help="what to compare; ratios are to the first (default TCP,DPDK)")
    parser.add_argument("--ranks", type=ranged(int, 2, 64), default=2, metavar="N", help="ranks on this machine (default 2)")
    parser.add_argument("--sizes", type=sizes_of, default=(4, 64 * 2**20, 4), metavar="B:E:F",
                        help="all-reduce sizes: smallest, largest, factor (default 4:64M:4); 10M floats are added")
    parser.add_argument("--repeats", type=ranged(int, 1, 100), default=3, metavar="N",
                        help="at most so many trainings of each transport, in turn (default 3)")
    parser.add_argument("--minutes", type=ranged(float, 0.1, 1440), default=minutes, metavar="M",
                        help=f"time for everything but package download: repeats are left out to keep it (default {minutes:g})")
    parser.add_argument("--steps", type=ranged(int, 2, 100000), default=6, metavar="N",
                        help="steps of each training, warm-up included (default 6)")
    parser.add_argument("--warm-up", type=ranged(int, 0, 1000), default=1, metavar="N",
                        help="first steps that are not measured (default 1)")
    parser.add_argument("--model", choices=("distilgpt2", "tiny"), default="distilgpt2")
    parser.add_argument("--batch-size", type=ranged(int, 1, 65536), default=8, metavar="N", help="samples a rank (default 8)")
    parser.add_argument("--seq-length", type=ranged(int, 1, 1024), default=64, metavar="N", help="tokens a sample (default 64)")
    parser.add_argument("--seed", type=ranged(int, 0, 2**63 - 1), default=1, metavar="N")
    parser.add_argument("--idle", type=ranged(float, 0, 3600), default=5.0, metavar="S",
                        help="seconds of standing still to measure; 0: leave out (default 5)")
    parser.add_argument("--no-training", action="store_true", help="leave the training out")
    parser.add_argument("--no-benchmark", action="store_true", help="leave all-reduces and idle ranks out")
    parser.add_argument("--output", type=Path, metavar="DIR", help="a new folder for the results (default results/<time>)")
    parser.add_argument("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)")
    parser.add_argument("trainer", nargs="*", metavar="TRAINER OPTION", help="after --: further options of ddp_train")


def check(parser, options):
    if options.warm_up >= options.steps:
        parser.error(f"--warm-up {options.warm_up} leaves none of --steps {options.steps} to measure")
    if options.no_training and options.no_benchmark:
        parser.error("--no-training and --no-benchmark leave nothing to do")


def plan_of(options):
    from .comparison import Plan
    return Plan(transports=options.transports, ranks=options.ranks, model=options.model, batch_size=options.batch_size,
                seq_len=options.seq_length, steps=options.steps, warm_up=options.warm_up, repeats=options.repeats,
                seed=options.seed, sizes=options.sizes, idle_s=options.idle, minutes=options.minutes,
                training=not options.no_training, benchmark=not options.no_benchmark,
                trainer_arguments=tuple(options.trainer))


def measure(options, folder, display, budget, arguments, before=()):
    """Runs the stages `before`, then the comparison, and draws what there is, whatever ended it."""
    from . import rendering
    from .comparison import Comparison

    comparison = Comparison(ROOT, options.build.resolve(), plan_of(options), folder, display, budget,
                            {"repeat_command": shlex.join(arguments)})
    status = 0
    try:
        for name, slug, command, limit_s in before:
            log = folder.place(f"logs/{slug}.log")

            def tick(log=log):
                said = children.last_line(log, 70)
                found = re.match(r"\[(\d+)/(\d+)\]", said)
                display.advance(*(int(part) for part in found.groups()) if found else (), note=said)

            if not comparison.stage(name, slug, command, limit_s, dict(os.environ), on_tick=tick):
                comparison.record["state"] = "failed"
                comparison.save()
                return FAILED
            if slug == "install":
                budget.restart()
        status = 0 if comparison.run() else FAILED
    except KeyboardInterrupt:
        comparison.record["state"] = "interrupted"
        comparison.save()
        display.line("interrupted; everything started here has been ended", style="yellow")
        status = INTERRUPTED
    if not (comparison.record["training"] or comparison.record["all_reduce"] or comparison.record["idle"]):
        display.line(f"nothing was measured; logs are in {shown(folder.place('logs'))}")
        return status or FAILED
    with display.stage("report"):
        measurement, made = rendering.render(folder)
    rendering.show(measurement, made, display.console)
    display.line(f"\nResults: {shown(folder.path)}    Page: {shown(folder.place('index.html'))}")
    return status or (FAILED if made.same_bits is False else 0)


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
    from .records import RecordError
    from .results import ResultsError
    children.interrupt_on(signal.SIGTERM, signal.SIGHUP)
    try:
        return body()
    except (ResultsError, RecordError, children.StageError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"{name}: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED


def compare(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="compare", description="Trains and all-reduces over several transports in turn, with "
                                     "what is built already, and writes a table, plots and a page.")
    add_measurement_options(parser, minutes=60.0)
    options = parser.parse_args(arguments)
    check(parser, options)
    missing = missing_programs(options)
    if missing:
        print(f"compare: {options.build / missing[0]} is missing: run scripts/build first", file=sys.stderr)
        return BAD_INPUT

    def body():
        from .comparison import Budget
        from .display import Display
        from .results import ResultsFolder, default_path
        folder = ResultsFolder.create(options.output or default_path(ROOT))
        return measure(options, folder, Display(), Budget(), ["scripts/compare", *without_output(arguments)])
    return guarded("compare", body)


def quickstart(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="quickstart", description="Installs packages, builds, trains DistilGPT2 over each "
                                     "transport in turn, benchmarks all-reduces, and writes a table, plots and a page.")
    add_measurement_options(parser, minutes=9.0)
    parser.add_argument("--no-install", action="store_true", help="do not look for missing packages")
    parser.add_argument("--no-build", action="store_true", help="use what is built")
    options = parser.parse_args(arguments)
    check(parser, options)

    def body():
        from .comparison import Budget
        from .display import Display
        from .results import ResultsFolder, default_path
        folder = ResultsFolder.create(options.output or default_path(ROOT))
        display = Display()
        display.line(f"Results go to {shown(folder.path)}.")
        before = []
        if not options.no_install:
            before.append(("install packages", "install", [ROOT / "scripts" / "install-packages"], INSTALL_LIMIT_S))
        if not options.no_build:
            wanted = [word for target in TARGETS for word in ("--target", target)]
            before.append(("build", "build", [ROOT / "scripts" / "build", "--dir", options.build, *wanted], BUILD_LIMIT_S))
        return measure(options, folder, display, Budget(), ["scripts/quickstart", *without_output(arguments)], before)
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
    parser = argparse.ArgumentParser(prog="report", description="Draws the table, plots and page of a results folder again from "
                                     "its raw files.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that quickstart or compare has written")
    options = parser.parse_args(arguments)

    def body():
        from . import rendering
        from .display import console_for_output
        from .results import ResultsFolder
        folder = ResultsFolder(options.folder)
        measurement, made = rendering.render(folder)
        rendering.show(measurement, made, console_for_output())
        print(f"\nPage: {shown(folder.place('index.html'))}")
        return 0
    return guarded("report", body)
