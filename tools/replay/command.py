"""The command line of scripts/replay."""

import json
from pathlib import Path

from gloo_bypass_tools.common import interpreter, processes, transports
from gloo_bypass_tools.common.argument_types import result_file
from gloo_bypass_tools.common.failures import exit_status
from gloo_bypass_tools.common.options import add_build, add_number, command_parser
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.execution_traces import plan, trace
from gloo_bypass_tools.replay import playing, report

TRANSPORTS = transports.DEVICES + transports.OWN

DESCRIPTION = """\
Plays an execution trace (Chakra 1.0): each rank computes for as long as the traced one did, and does the traced
collectives and messages as real ones of torch.distributed, over any transport. Neither the model nor an accelerator is
needed. Prints each step's time beside the traced one, the slowest rank's. All ranks are started here, on this
machine; where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, as torchrun and scripts/fabric-run do, this is one
of them. What ranks exchange is checked first: a trace whose ranks would wait for each other for ever is refused."""
EPILOG = """\
  scripts/replay run --transport DPDK                       of run.0.et, run.1.et, ...
  scripts/replay run.0.et --ranks 4 --transport TCP         one rank's trace, played by four
  scripts/fabric-run --ranks 2 --defaults rate=200Mbit/s --transport DPDK -- scripts/replay run

scripts/execution-trace makes traces, and shows what one holds.

exit status: 0; 1 a rank failed; 2 bad input; 128 + N ended by signal N"""


def parse(arguments):
    parser = command_parser("replay", DESCRIPTION, EPILOG)
    parser.add_argument(
        "trace", type=Path, metavar="TRACE", help="PREFIX of PREFIX.0.et, PREFIX.1.et, ...; or one file"
    )
    add_number(parser, "--ranks", int, 1, trace.MOST_RANKS, "that all do what the one traced rank did")
    parser.add_argument(
        "--transport",
        choices=TRANSPORTS,
        metavar="NAME",
        help=f"of {', '.join(TRANSPORTS)}; /own: with gloo-bypass's own collectives (PyTorch 2.6 and later; default: "
        "what GLOO_DEVICE_TRANSPORT and GLOO_BYPASS_COLLECTIVES say, else TCP)",
    )
    add_number(parser, "--repeat", int, 1, 1_000_000, "times that all of it is played", default=1)
    parser.add_argument(
        "--compute",
        choices=("busy", "idle"),
        default="busy",
        help="what the processor computed is played by using it, or by waiting (default busy); what an accelerator "
        "computed, always by waiting",
    )
    add_number(
        parser, "--flops", float, 1, 1e24, "of nodes that say how many operations they take, not how long", metavar="N"
    )
    interpreter.add_python(parser)
    add_number(
        parser,
        "--timeout",
        float,
        1,
        86400,
        "within which some node must end, beyond what ranks compute",
        default=300.0,
        metavar="S",
    )
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write the times")
    add_build(parser, "build folder, for a Python without gloo_bypass")
    options = parser.parse_args(arguments)
    options.build = options.build.absolute()
    return options


def play(options):
    traces = [trace.read(path) for path in trace.files_of(options.trace)]
    options.plan = plan.make(plan.repeated(traces, options.ranks), options.flops)
    answers, transport = playing.play(options, interpreter.find(options.python, options.build, ()))
    if answers is not None:
        if options.json:  # before the table: nobody may be there to read that
            record = report.record(options.plan, answers, transport)
            write_whole(options.json, (json.dumps(record, indent=1) + "\n").encode())
        print(report.text_of(options.plan, answers, transport))
    return 0


def main(arguments=None):
    options = parse(arguments)
    processes.interrupt_once()
    return exit_status("replay", lambda: play(options))
