"""The command line of scripts/execution-trace."""

import json
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.argument_types import result_file
from gloo_bypass_tools.common.failures import exit_status
from gloo_bypass_tools.common.options import AS_WRITTEN, add_number, command_parser
from gloo_bypass_tools.common.whole_file import write_all_whole
from gloo_bypass_tools.execution_traces import from_ddp_train, from_profiler, methods, plan, summary, trace
from gloo_bypass_tools.execution_traces.trace import TraceError

MOST_JSON_BYTES = 4 << 30

DESCRIPTION = """\
Execution traces in the format of Chakra 1.0 (mlcommons/chakra): PREFIX.N.et holds what rank N computed and exchanged,
and what waited for what. scripts/replay plays one."""
EPILOG = """\
  ddp_train --spawn 2 --steps 10 --trace trace.json && scripts/execution-trace convert trace.json run
  scripts/execution-trace convert profile.0.json profile.1.json run
  scripts/execution-trace make diloco run --parameters 82e6 --bits 16 --step 0.2 --inner-steps 50 --steps 50
  scripts/execution-trace show run && scripts/replay run --transport DPDK

exit status: 0; 1 a file could not be written; 2 bad input"""
CONVERT = """\
Makes an execution trace of the trace that ddp_train --trace wrote, or of those that PyTorch's profiler exported, one a
rank (on a CPU; record_shapes=True, PyTorch from pip). tools/execution_traces/README.md says what is understood."""

MAKE = """\
Makes the trace of a training that nobody has run: what ranks compute and exchange by a method as its paper describes
it. ddp: all-reduces of gradients in buckets, beside the backward pass. diloco: all numbers after every H steps; local
SGD exchanges as much. streaming-diloco: fragments in turn, each every H steps, while ranks go on for some steps. A
sum that would end after the last step is left out: take a multiple of H steps, and the overlap more."""


def trace_prefix(text):
    """Of files that are to be written; a folder may have this name."""
    result_file(f"{text}.0.et")
    return Path(text)


def parse(arguments):
    parser = command_parser("execution-trace", DESCRIPTION, EPILOG)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    convert = commands.add_parser("convert", help="from other formats", description=CONVERT, **AS_WRITTEN)
    convert.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the trace, or the profile of each rank")
    convert.add_argument("prefix", type=trace_prefix, metavar="PREFIX", help="writes PREFIX.0.et, PREFIX.1.et, ...")
    convert.set_defaults(act=convert_files)
    add_make(commands)
    show = commands.add_parser("show", help="what a trace holds", description="Prints what a trace holds.")
    show.add_argument("prefix", type=Path, metavar="PREFIX", help="of PREFIX.0.et, ..., or one file")
    show.set_defaults(act=show_trace)
    return parser.parse_args(arguments)


def add_make(commands):
    make = commands.add_parser("make", help="of a method of training", description=MAKE, **AS_WRITTEN)
    make.add_argument("method", choices=methods.NAMES, metavar="METHOD", help=f"one of {', '.join(methods.NAMES)}")
    make.add_argument("prefix", type=trace_prefix, metavar="PREFIX", help="writes PREFIX.0.et, PREFIX.1.et, ...")
    add_number(make, "--ranks", int, 1, trace.MOST_RANKS, "that train", default=2)
    add_number(make, "--parameters", float, 1, 1e13, "numbers that are exchanged", required=True)
    add_number(make, "--bits", float, 1, 64, "of each number that is exchanged", default=32.0)
    add_number(make, "--step", float, 1e-5, 86400, "that a rank computes in a step", metavar="S", required=True)
    add_number(make, "--steps", int, 1, 1_000_000, "in all", required=True)
    add_number(make, "--inner-steps", int, 1, 1_000_000, "H: steps from one exchange to the next", default=1)
    add_number(make, "--fragments", int, 1, 1_000_000, "P, of streaming-diloco", default=1)
    add_number(make, "--overlap", int, 0, 1_000_000, "steps that a fragment's sum may take", default=0)
    make.set_defaults(act=make_trace)


def document_of(path):
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_JSON_BYTES + 1)
        if len(text) > MOST_JSON_BYTES:
            raise TraceError(f"{path}: it is longer than {MOST_JSON_BYTES >> 30} GiB")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: this is no JSON: {error}") from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error


def converted(documents):
    """Traces of {path: document}."""
    first = next(iter(documents))
    try:
        if len(documents) == 1 and from_ddp_train.is_one(documents[first]):
            return from_ddp_train.convert(first, documents[first]), "ddp_train --trace"
        for path, document in documents.items():
            if not from_profiler.is_one(document):
                raise TraceError(
                    f"{path}: neither a trace of this ddp_train nor an export of PyTorch's profiler with its ranks "
                    "(distributedInfo); PyTorch 1.13 of Debian writes none"
                )
        return from_profiler.convert(documents), "PyTorch's profiler"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TraceError(f"{first}: it is not as its writer makes it: {type(error).__name__}: {error}") from error


def convert_files(options):
    traces, source = converted({path: document_of(path) for path in options.files})
    for one in traces:
        trace.check_writable(options.files[0], one)
    plan.make(traces)  # what could not be played is refused before it is written
    return write(traces, options.prefix, source)


def make_trace(options):
    method = methods.Method(
        options.method,
        round(options.parameters),
        options.bits,
        options.step,
        options.steps,
        options.inner_steps,
        options.fragments,
        options.overlap,
    )
    one = methods.trace_of(method)
    trace.check_writable(options.prefix, one)
    return write([one] * options.ranks, options.prefix, f"{options.method}, as its paper describes it")


def write(traces, prefix, source):
    following = Path(f"{prefix}.{len(traces)}.et")
    if following.exists():
        raise TraceError(
            f"{following} is there, of a trace of more than {len(traces)} ranks: remove it, or choose another PREFIX"
        )
    files = {id(one): trace.as_bytes(one, source) for one in traces}  # ranks may have the same trace
    write_all_whole({f"{prefix}.{rank}.et": files[id(one)] for rank, one in enumerate(traces)})
    print(summary.text_of(traces))
    return 0


def show_trace(options):
    print(summary.text_of([trace.read(path) for path in trace.files_of(options.prefix)]))
    return 0


def main(arguments=None):
    options = parse(arguments)
    processes.interrupt_once()
    return exit_status("execution-trace", lambda: options.act(options))
