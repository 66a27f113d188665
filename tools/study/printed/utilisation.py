"""How much of its time a training computes, by method: DDP, local SGD and DiLoCo, Streaming DiLoCo with and without
overlap and with 4 bits a number; over links of several rates, with delay, and with loss; over each transport.

Traces of the methods (scripts/execution-trace make) are played over emulated links (scripts/fabric-run) by
scripts/replay: what ranks exchange is real, and where they would compute they wait, as with accelerators. So what is
measured is what the published models compute; they stand beside it.

Says first how long it takes. Prints tables in Markdown. --json writes the stored run after every run, and goes on with
a file that is there, if commit and machine are the same. --draw makes the tables of a page (README.md) and its picture
beside it.
"""

import os
import sys
import tempfile
from pathlib import Path

from gloo_bypass_tools.common.argument_types import names_of, number_in, numbers_in, result_file
from gloo_bypass_tools.common.failures import FAILED
from gloo_bypass_tools.common.processes import StageError
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.whole_file import write_all_whole, write_whole
from gloo_bypass_tools.execution_traces import methods, trace
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.report import machine, wording
from gloo_bypass_tools.report.lines import show_progress, show_start
from gloo_bypass_tools.report.records import RecordError, json_object, value_at
from gloo_bypass_tools.study.commands import flags
from gloo_bypass_tools.study.printed import trainer
from gloo_bypass_tools.study.transports import SWITCHED, kind_of
from gloo_bypass_tools.study.utilisation import cells, model, stored, tables

TITLE = "How much of its time a training computes: DDP to Streaming DiLoCo, beside the published models"
RUN_FILE, PAGE, PICTURE = "run.json", "README.md", "utilisation.svg"
TRANSPORTS = tuple(name for name in SWITCHED if kind_of(name) == name)
FABRIC = "tools/fabric/fabric"
# Of a run beyond what the model says: ranks start, and transports need longer than the model, TCP where frames are
# lost much longer.
START_S, PATIENCE, LEAST_LIMIT_S = 4.0, 20.0, 120.0


def add_options(options):
    add = options.parser.add_argument
    add("--places", type=names_of(cells.PLACES), default=list(cells.PLACES), metavar="A,B", help="default all")
    about = "Mbit/s (default 100,300,1000)"
    add("--rates", type=numbers_in(float, 1, 1e5), default=list(cells.RATES_MBIT), metavar="A,B", help=about)
    about = f"of {', '.join(SWITCHED)} (default {','.join(TRANSPORTS)})"
    add("--transports", type=names_of(SWITCHED), default=list(TRANSPORTS), metavar="A,B", help=about)
    about = f"numbers of {'; '.join(f'{at} {name}' for at, name in enumerate(cells.METHODS, 1))} (default all)"
    add("--methods", type=numbers_in(int, 1, len(cells.METHODS)), metavar="A,B", help=about)
    add("--repeats", type=number_in(int, 1, 100), default=1, metavar="N", help="runs of each, in turn (default 1)")
    add("--json", type=result_file, metavar="FILE", help="write the stored run, or go on with it")
    add("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)")
    about = f"measure nothing: make the tables of DIR/{PAGE} and DIR/{PICTURE} from DIR/{RUN_FILE}"
    add("--draw", type=Path, metavar="DIR", help=about)


def problem_of(given):
    if given.draw or os.access(given.build / FABRIC, os.X_OK):
        return ""
    return f"{given.build / FABRIC} is missing: run scripts/build first, or say --build DIR"


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


def measure(given, cell, prefix):
    """What all steps took. RuntimeError where it failed."""
    limit_s = LEAST_LIMIT_S + PATIENCE * estimate_s(cell)
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        times = Path(folder) / "times.json"
        words = [
            *(ROOT / "scripts/fabric-run", *flags(transport=cell.transport, ranks=cells.RANKS)),
            *flags(defaults=",".join(cells.edges(cell)), output=Path(folder) / "run", timeout=round(limit_s)),
            *flags(fabric=given.build.absolute() / FABRIC),
            *("--", ROOT / "scripts/replay", prefix),
            *flags(compute="idle", json=times, timeout=round(limit_s), build=given.build.absolute()),
        ]
        trainer.run(words, "replay", limit_s + 60)
        return value_at(times, json_object(times), "whole", list)[0]["played_s"]


def taken_up(given, described):
    """{cell: times} of the file, where there is one."""
    if not given.json or not given.json.exists():
        return {}
    run = stored.read(given.json)
    if (run.commit, run.machine) != (described["commit"], machine.stored(described)):
        raise RecordError(f"{given.json}: it is of another commit or machine ({run.commit}): choose another file")
    return {cell: list(times) for cell, times in run.whole_s.items()}


def measure_all(given, prefixes, described):
    """(times, [(what, why) of what failed]). Of a cell that has failed nothing is tried again."""
    others, listed = machine.OtherWork(), cells_of(given)
    found, failures = taken_up(given, described), {}
    missing = [cell for repeat in range(given.repeats) for cell in listed if len(found.get(cell, ())) <= repeat]
    seconds = sum(map(estimate_s, missing))
    print(f"{len(missing)} runs: {wording.duration(seconds)} at the least", flush=True)
    for cell in missing:
        if cell in failures:
            continue
        show_progress(cell.about)
        try:
            found.setdefault(cell, []).append(measure(given, cell, prefixes[cell.method]))
        except (RuntimeError, StageError) as error:
            failures[cell] = str(error)
            found = {one: times for one, times in found.items() if times}
        if given.json and found:
            left_out = [(one.about, why) for one, why in failures.items()]
            text = stored.text_of(described, others.cores(), left_out, in_order(found))
            write_whole(given.json, text.encode())
    return in_order(found), [(cell.about, why) for cell, why in failures.items()]


def in_order(found):
    """As cells_of() has them, whatever was measured first."""
    order = {name: at for names in (cells.PLACES, cells.METHODS) for at, name in enumerate(names)}
    known = {name: at for at, name in enumerate(SWITCHED)}

    def place_of(cell):
        return order[cell.place], cell.rate_mbit, order[cell.method], known.get(cell.transport, len(known))

    return {cell: found[cell] for cell in sorted(found, key=place_of)}


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
    with tempfile.TemporaryDirectory(prefix="study-") as folder, tempfile.TemporaryDirectory() as result:
        kept, given.json = given.json, given.json or Path(result) / RUN_FILE
        found, failures = measure_all(given, write_traces(folder), described)
        for what, why in failures:
            print(f"not measured: {what}: {why}", file=sys.stderr)
        if not found:
            return FAILED
        print(tables.whole(stored.read(given.json)))
        if kept:
            print(f"\nStored: {kept}")
    return FAILED if failures else 0
