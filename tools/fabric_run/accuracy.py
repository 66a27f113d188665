"""How near the emulated fabric comes to its description, measured from outside: UDP datagrams between two network
namespaces, stamped by the sender and, on arrival, by the kernel. Each case is a run of its own of scripts/fabric-run
with two ranks (accuracy_rank.py)."""

import json
import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.common.options import REPEATED, add_number, command_parser
from gloo_bypass_tools.common.rank_processes import TAIL_LINES
from gloo_bypass_tools.fabric_run.command import add_fabric

FABRIC_RUN = program_places.script("fabric-run")
RANK = Path(__file__).resolve().with_name("accuracy_rank.py")
RUN_S = 120.0
# Of fabric-run itself, whose limit is that of its ranks.
START_S = 60.0
FRAME_HEADERS = 42

DESCRIPTION = """\
Measures delay, rate and loss of emulated edges from outside, and prints what was described, what was measured, and \
how far they are
apart. Takes a minute. It says more on a quiet machine: a sender or receiver without processor time looks like a slow \
link. The first
line is an edge that does nothing: the way through the kernel and the fabric itself, which is taken off the delays."""
EPILOG = "exit status: 0; 1 a case was out of its bound, or failed; 2 bad input"


@dataclass(frozen=True)
class Case:
    """`edge` is the description's; `plan` says what the sender does. `measure` gives, of the receiver's report and of
    that without emulation, text of what was described and what was measured, the error and the bound on it (both
    relative)."""

    name: str
    edge: str
    plan: dict
    measure: object
    mtu: int = 1500


STEADY = {"frames": 400, "bytes": 100, "per_second": 200}
NOTHING = Case("nothing", "delay=0s", STEADY, None)


def delay_case(milliseconds):
    def measure(report, nothing):
        measured = report["delay_ms"]["p50"] - nothing["delay_ms"]["p50"]
        said = f"{measured:.3f} ms (p99 {report['delay_ms']['p99']:.3f})"
        return f"{milliseconds:g} ms", said, measured / milliseconds - 1, 0.05

    return Case("delay", f"delay={milliseconds}ms", STEADY, measure)


def rate_case(megabits, seconds=3.0):
    # Large frames where the sender could not make small ones fast enough.
    mtu = 1500 if megabits < 100 else 9000
    payload = mtu - 100
    offered = 1.3 * megabits * 1e6 / 8 / (payload + FRAME_HEADERS)

    def measure(report, _):
        measured, offers = (report[f"{name}_bits_per_second"] / 1e6 for name in ("frame", "offered"))
        if offers < 1.05 * megabits:
            raise RuntimeError(f"the sender could not offer more than {offers:.0f} Mbit/s on this machine now")
        return f"{megabits:g} Mbit/s", f"{measured:.2f} Mbit/s", measured / megabits - 1, 0.02

    # A tenth of a second of queue keeps the edge busy while the sender waits for a processor.
    edge = f"rate={megabits}Mbit/s,queue={int(megabits * 12500)}B"
    plan = {"frames": int(offered * seconds), "bytes": payload, "per_second": offered}
    return Case("rate", edge, plan, measure, mtu)


def loss_case(percent, frames=30000):
    probability = percent / 100

    def measure(report, _):
        lost = 1 - report["received"] / report["sent"]
        # Four standard deviations of a binomial: once in 16,000 cases it is beyond.
        bound = 4 * math.sqrt((1 - probability) / probability / report["sent"])
        return f"{percent:g} %", f"{100 * lost:.3f} %", lost / probability - 1, bound

    return Case("loss", f"loss={percent}%", {"frames": frames, "bytes": 100, "per_second": 15000}, measure)


CASES = (
    [delay_case(each) for each in (1, 10, 50, 300)]
    + [rate_case(each) for each in (10, 50, 100, 200, 1000)]
    + [loss_case(each) for each in (0.1, 1, 10)]
)


def run_case(case, fabric):
    """The receiver's report, and how late the fabric was by its own account. Raises RuntimeError with what fabric-run
    said."""
    with tempfile.TemporaryDirectory(prefix="fabric-accuracy-") as folder:
        words = [FABRIC_RUN, "--fabric", fabric, "--output", f"{folder}/run", "--timeout", RUN_S, "--transport", "TCP"]
        words += ["--ranks", 2, "--mtu", case.mtu, "--edge", f"from=r0,to=r1,{case.edge}"]
        rank = [sys.executable, RANK, json.dumps(case.plan), f"{folder}/report.json"]
        log = Path(folder, "log")
        outcome = processes.run([*words, "--", *rank], log, RUN_S + START_S)
        if outcome.status is None:
            raise RuntimeError(f"not done within {RUN_S + START_S:g} s")
        if outcome.status != 0:
            raise RuntimeError("\n".join(processes.last_lines(log, TAIL_LINES + 1)))
        counted = json.loads(Path(folder, "run", "fabric.json").read_text())
        return json.loads(Path(folder, "report.json").read_text()), counted["late_us"]


def main(arguments=None):
    parser = command_parser("fabric-accuracy", DESCRIPTION, EPILOG)
    add_fabric(parser)
    parser.add_argument("--case", choices=("delay", "rate", "loss"), help="only these; may be repeated", **REPEATED)
    add_number(parser, "--repeat", int, 1, 100, "default 1", default=1)
    options = parser.parse_args(arguments)
    processes.interrupt_once()
    failed = 0
    try:
        nothing, _ = run_case(NOTHING, options.fabric.absolute())
    except RuntimeError as error:
        print(f"fabric-accuracy: {error}", file=sys.stderr)
        return 1
    print(f"without emulation: p50 {nothing['delay_ms']['p50']:.3f} ms, p99 {nothing['delay_ms']['p99']:.3f} ms")
    heading = f"{'case':<7} {'described':>12} {'measured':>28} {'error':>9} {'bound':>8}"
    print(f"{heading}   late p50, p99, max (us)", flush=True)
    for case in CASES * options.repeat:
        if options.case and case.name not in options.case:
            continue
        try:
            report, late = run_case(case, options.fabric.absolute())
            described, measured, error, bound = case.measure(report, nothing)
        except RuntimeError as failure:
            print(f"fabric-accuracy: {case.edge}: {failure}", file=sys.stderr)
            failed += 1
            continue
        good = abs(error) <= bound
        failed += not good
        found = f"{case.name:<7} {described:>12} {measured:>28} {100 * error:>+8.2f}% {100 * bound:>7.1f}%"
        lateness = ", ".join(f"{late[name]:.0f}" for name in ("p50", "p99", "max"))
        print(f"{found} {'ok' if good else 'NO'} {lateness}", flush=True)
    return 1 if failed else 0
