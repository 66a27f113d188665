"""The command line of scripts/compare-programs."""

import json
import os
import sys
import tempfile
from pathlib import Path

from gloo_bypass_tools.common import interpreter, processes, program_places, transports
from gloo_bypass_tools.common.argument_types import names_of, result_file
from gloo_bypass_tools.common.failures import FAILED, exit_status, kept_exception, why_ended
from gloo_bypass_tools.common.options import add_build, add_number, add_output, command_parser
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.compare_programs import libraries
from gloo_bypass_tools.compare_programs.measurement import Measurement
from gloo_bypass_tools.report import machine, program_tables, programs, results, stored_programs
from gloo_bypass_tools.report.lines import show_progress, show_start
from gloo_bypass_tools.report.memory_rates import RateSamples

# What needs nothing that a machine may lack.
DEFAULT_TRANSPORTS = transports.names(lambda one: one.name == one.device and not one.needs_device)

DESCRIPTION = """\
Runs the same programs of PyTorch over each transport, through torch.distributed as users do, and prints what each
gains: tensor-parallel decoding, all-reduces one after the other and with computing between them, and a step of
DistilGPT2 under DistributedDataParallel; where there is a GPU, also all-reduces of CUDA tensors and such a step on it
(ranks share the GPUs that there are). One transport a process, since PyTorch reads GLOO_DEVICE_TRANSPORT once; each
round goes over all transports in turn. Each rank ends with an error unless its bytes went over the transport that it
names, by the counters, and results must be the same over all. Other libraries may stand among the transports, for
all-reduces alone: Open MPI, MPICH (each through mpi4py) and DeepSpeed's for inference; the command installs them from
PyPI in environments of their own. What was measured until a signal ends the command is stored too. How fast the machine
copies and adds 64 MiB is measured before each round, and stored: where memory is slow, large vectors gain less."""
EPILOG = """\
  scripts/compare-programs                                              Debian's PyTorch, the plug-in in build/
  scripts/compare-programs --python build-wheel/torch-2.13.0/bin/python --json docs/runs/programs-2-cores.json
  scripts/compare-programs --python build-wheel/torch-2.13.0/bin/python --transports TCP,DPDK,DPDK/own
  scripts/compare-programs --python ... --programs all_reduce --transports TCP,DPDK,DPDK/own,OpenMPI,MPICH,DeepSpeed
  scripts/compare-programs --python ... --programs all_reduce --transports TCP,TCP_TLS,UDP/sealed,UDP/own/sealed
  scripts/compare-programs --table docs/runs/programs-*.json            what was stored, as Markdown
  scripts/compare-programs --table docs/runs/programs-2-cores.json --page page.html          and as a page

Training needs transformers in that Python (pip install transformers) and is left out without it.

exit status: 0; 1 a program failed over a transport; 2 bad input; 128 + N ended by signal N"""


def parse(arguments):
    parser = command_parser("compare-programs", DESCRIPTION, EPILOG)
    interpreter.add_python(parser)
    parser.add_argument(
        "--programs",
        type=names_of(programs.BY_NAME),
        metavar="A,B",
        help=f"of {', '.join(programs.BY_NAME)} (default all; those of CUDA tensors where PyTorch has a GPU)",
    )
    parser.add_argument(
        "--transports",
        type=names_of(transports.DEVICES + transports.OWN + transports.ENCRYPTED + tuple(libraries.BY_NAME)),
        default=DEFAULT_TRANSPORTS,
        metavar="A,B",
        help=f"ratios are to the first (default {','.join(DEFAULT_TRANSPORTS)}); DPDK/own and the like: with "
        "gloo-bypass's own collectives (PyTorch 2.6 and later); UDP/sealed, UDP/own/sealed: with sealed datagrams, "
        f"beside {transports.TLS}, PyTorch's TLS (from pip); {', '.join(libraries.BY_NAME)}: other libraries, by the "
        "program all_reduce alone",
    )
    parser.add_argument(
        "--libraries",
        type=Path,
        default=program_places.ROOT / "build-libraries",
        metavar="DIR",
        help="virtual environments of other libraries; what is missing is installed there (default build-libraries)",
    )
    add_number(parser, "--ranks", int, 2, 64, "on this machine", default=2)
    add_number(parser, "--threads", int, 1, 1024, "that a rank computes with (default cores / ranks, at least 1)")
    add_number(parser, "--rounds", int, 1, 1000, "default 5", default=5)
    parser.add_argument(
        "--effort",
        choices=programs.EFFORTS,
        default=programs.FULL,
        help="short takes a fifth of the time, tiny only shows that it works (default full)",
    )
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write the stored run")
    add_output(parser, "logs", "programs-<time>")
    add_build(parser, "build folder, for a Python without gloo_bypass")
    parser.add_argument("--table", type=Path, nargs="+", metavar="RUN", help="print stored runs, and measure nothing")
    parser.add_argument(
        "--page", type=result_file, metavar="FILE", help="write an HTML page of the run, or of those of --table"
    )
    options = parser.parse_args(arguments)
    if options.table and options.json:
        parser.error("--json writes what was measured, and --table measures nothing: leave one out")
    others = [name for name in options.transports if name in libraries.BY_NAME]
    if others and options.programs and libraries.PROGRAM not in options.programs:
        parser.error(
            f"--transports {','.join(others)}: they run the program {libraries.PROGRAM} alone: add it to --programs"
        )
    options.build, options.libraries = options.build.absolute(), options.libraries.absolute()
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def wanted_programs(options, found, left_out):
    """Those that can be run; what is left out goes to `left_out` with one line why."""
    devices = ("cpu", "cuda") if found.gpus else ("cpu",)
    for name in options.programs or [one.name for one in programs.TABLE if one.device in devices]:
        program = programs.BY_NAME[name]
        missing = [need for need in program.needs if need not in found.has]
        why = program.problem(program.sizes[options.effort], options.ranks)
        if program.device not in devices:
            why = f"{options.python} finds no GPU"
        elif missing:
            why = f"{', '.join(missing)} is missing: {options.python} -m pip install {' '.join(missing)}"
        if why:
            left_out.append({"what": name, "why": why})
        else:
            yield program


def prepared_libraries(options, found, left_out):
    """{name: library that can be measured}; options.transports keeps only these of the libraries."""
    prepared = {}
    for name in filter(libraries.BY_NAME.get, options.transports):
        try:
            prepared[name] = libraries.prepare(name, found, options.libraries, lambda text: print(text, flush=True))
        except libraries.LibraryError as error:
            left_out.append({"what": name, "why": str(error)})
    options.transports = tuple(name for name in options.transports if name in prepared or name not in libraries.BY_NAME)
    return prepared


def new_folder(path):
    try:
        path.mkdir(parents=True)
    except FileExistsError as error:
        raise results.ResultsError(f"{path} exists already: choose another --output") from error
    return path


def default_output():
    return program_places.results() / f"programs-{results.default_path('').name}"


def record_of(options, found, measurement, described, rates, others_cores, left_out):
    """The stored run; None where nothing was measured."""
    rows = measurement.rows()
    if not rows:
        return None
    measured = [name for name in options.transports if any(row["transport"] == name for row in rows)]
    return {
        "schema": stored_programs.SCHEMA,
        "commit": machine.commit_of(program_places.ROOT),
        "date": machine.today(),
        "machine": machine.stored(described),
        "load_before": described["load_before"],
        "others_cores": others_cores,
        "rates": rates,
        "python": found.python,
        "torch": found.torch,
        "gloo_bypass": found.gloo_bypass,
        "gpus": found.gpus,
        "ranks": options.ranks,
        "threads": options.threads,
        "rounds": options.rounds,
        "effort": options.effort,
        "transports": measured,
        "libraries": {name: one.versions for name, one in measurement.prepared.items()},
        "left_out": left_out + [{"what": one.program, "why": one.in_words()} for one in measurement.missing],
        "digests": {name: digest for name, (digest, _) in measurement.digests.items()},
        "rows": rows,
    }


def measure(options):
    needs = sorted({need for one in programs.TABLE for need in one.needs})
    found = interpreter.find(options.python, options.build, needs)
    ours = [name for name in options.transports if not transports.is_gloos(name) and name not in libraries.BY_NAME]
    if ours and not found.gloo_bypass:
        raise interpreter.InterpreterError(
            f"{options.python} has no gloo_bypass ({found.why_not}): install the wheel in it (scripts/build-wheel), or "
            "build the plug-in for Debian's PyTorch (scripts/build)"
        )
    described, left_out = machine.describe_system(), []
    wanted = list(wanted_programs(options, found, left_out))
    prepared = prepared_libraries(options, found, left_out)
    ranks = f"; PyTorch {found.torch}, {options.ranks} ranks of {options.threads} threads"
    show_start("compare-programs", described, ranks)
    for one in left_out:
        print(f"left out: {one['what']}: {one['why']}", flush=True)
    logs, rates = new_folder(options.output or default_output()), RateSamples(options.python)
    with tempfile.TemporaryDirectory(prefix="gbp") as folder:  # short, for sockets
        measurement = Measurement(found, options, folder, logs, prepared)
        others = machine.OtherWork()
        ended = kept_exception(lambda: measurement.measure(wanted, show_progress, rates.take))
        others_cores = others.cores()
    if ended:
        measurement.leave_out_the_rest(wanted, why_ended(ended))
    else:
        rates.take()
    for one in measurement.missing:
        print(f"not measured: {one.in_words()}", file=sys.stderr)
    if rates.why_not:
        print(f"copy and addition rates: not measured: {rates.why_not}", file=sys.stderr)
    record = record_of(options, found, measurement, described, list(rates), others_cores, left_out)
    if record is None and ended:
        raise ended
    if record is None:
        print(f"nothing was measured; logs are in {logs}", file=sys.stderr)
        return FAILED
    path = logs / "run.json"
    write_whole(path, (json.dumps(record, indent=1) + "\n").encode())
    if options.json:
        write_whole(options.json, path.read_bytes())
    write_page(options.page, [path])
    print(f"\n{program_tables.whole(stored_programs.read(path))}")
    if ended:
        raise ended
    return FAILED if measurement.missing else 0


def write_page(page, paths):
    if page:
        # Here, since what draws pages takes half a second to import.
        from gloo_bypass_tools.report import programs_page

        write_whole(page, programs_page.render([stored_programs.read(path) for path in paths]).encode())


def show_tables(options):
    print("\n\n".join(program_tables.whole(stored_programs.read(path)) for path in options.table))
    write_page(options.page, options.table)
    return 0


def main(arguments=None):
    options = parse(arguments)
    processes.interrupt_once()
    return exit_status("compare-programs", lambda: show_tables(options) if options.table else measure(options))
