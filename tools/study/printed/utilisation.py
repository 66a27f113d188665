"""How much of its time a training computes, by method: DDP, local SGD and DiLoCo, Streaming DiLoCo with and without
overlap and with 4 bits a number; over links of several rates, with delay, and with loss; over each transport.

Traces of the methods (scripts/execution-trace make) are played over emulated links (scripts/fabric-run) by
scripts/replay: what ranks exchange is real, and where they would compute they wait, as with accelerators. So what is
measured is what published models compute; they stand beside it.

Says first how long it takes. Prints tables in Markdown. --json writes the stored run after every run, and goes on with
a file that is there, if commit, programs and machine are the same. --draw makes the tables of a page (README.md) and
its picture beside it.
"""

import sys
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.common.argument_types import distinct, names_of, number_in, numbers_in, result_file
from gloo_bypass_tools.common.failures import FAILED, Failure
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.rank_processes import clean_environment
from gloo_bypass_tools.common.whole_file import write_all_whole, write_whole
from gloo_bypass_tools.execution_traces import methods, trace
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.report import machine, results, wording
from gloo_bypass_tools.report.lines import show_progress, show_start
from gloo_bypass_tools.report.records import RecordError, json_object, positive_at, value_at
from gloo_bypass_tools.study.commands import flags
from gloo_bypass_tools.study.measurement import digest_of, kernel_tcp
from gloo_bypass_tools.study.transports import DISTINCT, SWITCHED
from gloo_bypass_tools.study.utilisation import cells, model, stored, tables

TITLE = "How much of its time a training computes: DDP to Streaming DiLoCo, beside the published models"
RUN_FILE, PAGE, PICTURE = "run.json", "README.md", "utilisation.svg"
FABRIC, PLUGIN = "tools/fabric/fabric", "plugin/libgloo_bypass.so"
INTERRUPTED = 130
# Of a run beyond what the model says: ranks start, and transports need longer than the model, TCP where frames are
# lost much longer.
START_S, PATIENCE, LEAST_LIMIT_S, GRACE_S = 4.0, 20.0, 120.0, 60.0


def add_options(options):
    add = options.parser.add_argument
    add("--places", type=names_of(cells.PLACES), default=list(cells.PLACES), metavar="A,B", help="default all")
    about = "Mbit/s (default 100,300,1000)"
    rates = distinct(numbers_in(float, 1, 1e5))
    add("--rates", type=rates, default=list(cells.RATES_MBIT), metavar="A,B", help=about)
    about = f"of {', '.join(SWITCHED)} (default {','.join(DISTINCT)})"
    add("--transports", type=names_of(SWITCHED), default=list(DISTINCT), metavar="A,B", help=about)
    about = f"numbers of {'; '.join(f'{at} {name}' for at, name in enumerate(cells.METHODS, 1))} (default all)"
    add("--methods", type=distinct(numbers_in(int, 1, len(cells.METHODS))), metavar="A,B", help=about)
    add("--repeats", type=number_in(int, 1, 100), default=1, metavar="N", help="runs of each, in turn (default 1)")
    add("--json", type=result_file, metavar="FILE", help="write the stored run, or go on with it")
    about = "a new folder for logs (default results/study-utilisation-<time>)"
    add("--output", type=Path, metavar="DIR", help=about)
    add("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)")
    about = f"measure nothing: make the tables of DIR/{PAGE} and DIR/{PICTURE} from DIR/{RUN_FILE}"
    add("--draw", type=Path, metavar="DIR", help=about)


def problem_of(given):
    return "" if given.draw else program_places.missing(given.build, (FABRIC,))


def cells_of(given):
    names = list(cells.METHODS)
    chosen = names if given.methods is None else [names[number - 1] for number in given.methods]
    return cells.cells_of(given.places, given.rates, given.transports, chosen)


def estimate_s(cell):
    """By the model, at the least."""
    return model.of_cell(cell, cells.METHODS[cell.method]) + START_S


def write_traces(folder):
    """{method: the prefix of its trace}"""
    prefixes = {}
    for number, (name, method) in enumerate(cells.METHODS.items()):
        prefixes[name] = Path(folder) / f"method-{number}"
        content = trace.as_bytes(methods.trace_of(method), name)
        write_all_whole({f"{prefixes[name]}.{rank}.et": content for rank in range(cells.RANKS)})
    return prefixes


def measure(given, cell, prefix, output):
    """What all steps took; logs are in `output`. Failure or OSError where it failed."""
    limit_s, log, times = LEAST_LIMIT_S + PATIENCE * estimate_s(cell), output / "log", output / "times.json"
    output.mkdir()
    words = [
        *(ROOT / "scripts/fabric-run", *flags(transport=cell.transport, ranks=cells.RANKS)),
        *flags(defaults=",".join(cells.edges(cell)), output=output / "ranks", timeout=round(limit_s)),
        *flags(fabric=given.build.absolute() / FABRIC),
        *("--", ROOT / "scripts/replay", prefix),
        *flags(compute="idle", json=times, timeout=round(limit_s), build=given.build.absolute()),
    ]
    outcome = processes.run(words, log, limit_s + GRACE_S, clean_environment())
    processes.require_success("replay", outcome, log)
    whole = value_at(times, json_object(times), "whole", list)
    return positive_at(times, whole[0] if whole else {}, "played_s")


def begun(given, described):
    """The run to go on with, or one without times. RecordError where the file's was measured otherwise."""
    paths = {Path(name).name: given.build / name for name in (FABRIC, PLUGIN)}
    programs = {name: digest_of(path) for name, path in paths.items() if path.exists()}
    today, load = date.fromisoformat(machine.today()), described["load_before"]
    new = stored.Run(described["commit"], today, machine.stored(described), kernel_tcp(), programs, load, None, (), {})
    if not given.json or not given.json.exists():
        return new
    old = stored.read(given.json)
    for name in ("commit", "machine", "kernel_tcp", "programs"):
        if getattr(old, name) != getattr(new, name):
            raise RecordError(f"{given.json}: it is of another {name}: choose another file, or measure all of it anew")
    return replace(old, load_before=max(old.load_before, load))


def measured(run, others_cores, whole_s, failures):
    """The run with what was measured since. Of what failed before, that stays which is still missing."""
    known = [one for one in (run.others_cores, others_cores) if one is not None]
    there = {cell.about for cell in whole_s} | {cell.about for cell in failures}
    left_out = [(what, why) for what, why in run.left_out if what not in there]
    left_out += [(cell.about, why) for cell, why in failures.items()]
    return replace(run, others_cores=max(known, default=None), left_out=tuple(left_out), whole_s=whole_s)


def measure_all(given, run, prefixes, output):
    """(the run as far as it goes, {cell: why it failed}, whether it was interrupted). It is written after each cell. Of
    one that has failed nothing is tried again."""
    others, found, failures = machine.OtherWork(), {cell: list(times) for cell, times in run.whole_s.items()}, {}
    listed = [(repeat, cell) for repeat in range(given.repeats) for cell in cells_of(given)]
    missing = [(repeat, cell) for repeat, cell in listed if len(found.get(cell, ())) <= repeat]
    seconds = sum(estimate_s(cell) for _, cell in missing)
    print(f"{len(missing)} runs: {wording.duration(seconds)} at the least; logs are in {output}", flush=True)
    for number, (_, cell) in enumerate(missing, 1):
        if cell in failures:
            continue
        show_progress(cell.about)
        try:
            time_s = measure(given, cell, prefixes[cell.method], output / str(number))
            found.setdefault(cell, []).append(time_s)
        except (Failure, OSError) as error:
            failures[cell] = str(error)
        except KeyboardInterrupt:
            return measured(run, others.cores(), found, failures), failures, True
        if found:
            now = measured(run, others.cores(), found, failures)
            write_whole(given.json or output / RUN_FILE, stored.text_of(now).encode())
    return measured(run, others.cores(), found, failures), failures, False


def draw(folder):
    from gloo_bypass_tools.study.utilisation import picture

    run = stored.read(folder / RUN_FILE)
    tables.renew(folder / PAGE, run)
    picture.write(run, folder / PICTURE)
    return 0


def run(given):
    if given.draw:
        return draw(given.draw)
    enclosure.check_tools()
    enclosure.check_right()
    described = machine.describe(ROOT)
    show_start("study", described)
    first = begun(given, described)
    output = (given.output or results.study_path(ROOT, "utilisation")).absolute()
    enclosure.make_output(output)
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        found, failures, interrupted = measure_all(given, first, write_traces(folder), output)
    for cell, why in failures.items():
        print(f"not measured: {cell.about}: {why}", file=sys.stderr)
    if found.whole_s:
        print(tables.whole(found))
    if interrupted:
        print("study: interrupted", file=sys.stderr)
        return INTERRUPTED
    return FAILED if failures else 0
