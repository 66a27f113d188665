"""What a study measures, cell by cell, and how a cell is run. Pure.

A cell is one variant of the edge, one loss, one segment size and one transport. Repeats go over all cells in turn, so
that transports alternate and a slow spell of the machine hits each alike.
"""

from dataclasses import dataclass

from gloo_bypass_tools.model import ring
from gloo_bypass_tools.study import edge_study, transports

# The program's own limits follow from the model: so many times as long, and this much more.
PATIENCE, START_S, LEAST_OPERATION_S = 12.0, 60.0, 60.0
GUEST_PATIENCE_S = 240.0  # in the guest, for programs that load, and ranks that meet
PROBE_INTERVAL_S = 0.5
# What crosses the fabric at the least, in all: a tenth of what it is on two quick cores.
SLOWEST_BYTES_A_SECOND = 2e7
# In the guest the processor is emulated: what its ranks reduce at the least, on a busy machine, and how often they are
# looked at.
EMULATED_BYTES_A_SECOND, EMULATED_PROBE_INTERVAL_S = 2e5, 3.0
# Delay-based control (Swift) takes the wait for one of a few cores, which four ranks and the fabric share, for
# congestion: its windows stay at two datagrams and edges without any delay become the slow ones. BBR measures rates.
SETTINGS = {"GLOO_BYPASS_CONGESTION_CONTROL": "bbr"}


@dataclass(frozen=True)
class Cell:
    variant: str
    transport: str
    segment: str
    loss_percent: float

    @property
    def slug(self):
        loss = f"-loss{self.loss_percent:g}" if self.loss_percent else ""
        return f"{self.variant}{loss}-{self.segment}-{self.transport}"

    @property
    def about(self):
        loss = f", {self.loss_percent:g} % loss" if self.loss_percent else ""
        return f"{self.variant}{loss}, segments {edge_study.SEGMENT_NAMES[self.segment]}, {self.transport}"


@dataclass(frozen=True)
class Plan:
    """What is to be measured. `bytes` and the rest as of the scale unless the user said otherwise."""

    study: str
    scale: str
    transports: tuple = ("TCP", "DPDK")
    variants: tuple = ()
    segments: tuple = edge_study.SEGMENTS
    losses: tuple = (0.0,)
    lossy: tuple = ()
    repeats: int = 2
    ranks: int = 4
    bytes: int = 16 * edge_study.MIB
    rounds: int = 2
    warm_up: int = 1
    mtu: int = 1500
    seed: int = 1
    settings: tuple = tuple(SETTINGS.items())
    sysctls: tuple = ()
    guest: tuple = ()  # those of the transports that are measured in the guest

    def as_record(self):
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @staticmethod
    def from_record(record):
        return plan_from(Plan, record)


def plan_from(kind, record):
    """A plan of this kind from what its as_record() gave. TypeError where something is missing."""

    def value_of(value):
        if not isinstance(value, list):
            return value
        return tuple(tuple(one) if isinstance(one, list) else one for one in value)

    return kind(**{name: value_of(value) for name, value in record.items() if name in kind.__dataclass_fields__})


def cells_of(plan):
    """In the order of measuring: the transports of one cell one after another."""
    found = []
    for variant in plan.variants:
        for loss in plan.losses:
            if loss and variant not in plan.lossy:
                continue
            found += [
                Cell(variant, transport, segment, loss) for segment in plan.segments for transport in plan.transports
            ]
    return found


def segment_bytes(plan, segment):
    """Gloo's largest segment in bytes, of whole floats; 0: Gloo's own. Two segments a rank: 2 N of them in all."""
    if segment == "default":
        return 0
    return max(4, -(-plan.bytes // (2 * plan.ranks * 4)) * 4)


def report_beside(output):
    """What all_reduce_perf writes, beside a run's folder. A folder's name may have dots."""
    return output.with_name(f"{output.name}.json")


def quantity(value, unit):
    return f"{value:g}{unit}"


def edge_flags(plan, study, cell):
    return slow_edge_flags(study.variant(cell.variant), plan.ranks, cell.loss_percent)


def slow_edge_flags(variant, ranks, loss_percent=0.0):
    """The fabric's description, as flags of fabric-run. `variant`: of an edge's study."""
    flags = [
        "--defaults",
        f"rate={edge_study.FAST_RATE_MBIT:g}Mbit/s,delay={edge_study.FAST_DELAY_MS:g}ms,queue={edge_study.FAST_QUEUE}",
    ]
    settings = []
    if variant.rate_mbit is not None:
        settings += [f"rate={variant.rate_mbit:g}Mbit/s", f"queue={edge_study.SLOW_QUEUE}"]
    if variant.delay_ms is not None:
        settings += [f"delay={variant.delay_ms:g}ms", f"queue={edge_study.FAR_QUEUE}"]
    if loss_percent:
        settings.append(f"loss={loss_percent:g}%")
    if settings:
        start, end = slow_edge(ranks)
        flags += ["--edge", ",".join([f"from=r{start}", f"to=r{end}", *settings])]
    return flags


def slow_edge(ranks):
    """From the last rank to the one before it, as published."""
    return ranks - 1, ranks - 2


def beyond_model_s(plan, transport):
    """What the processor, and windows of TCP's that are small for a long path, may take for one all-reduce."""
    if transport in plan.guest:
        return plan.bytes / EMULATED_BYTES_A_SECOND
    return ring.event_bytes(plan.ranks, plan.bytes) / SLOWEST_BYTES_A_SECOND


def operation_limit_s(plan, transport, model_s):
    return max(LEAST_OPERATION_S, PATIENCE * model_s) + beyond_model_s(plan, transport)


def run_limit_s(plan, model_s, transport="TCP"):
    # Connecting, one all-reduce that is checked, those that warm up, those that are timed.
    start_s = START_S + (GUEST_PATIENCE_S if transport in plan.guest else 0.0)
    return start_s + (1 + plan.warm_up + plan.rounds) * (PATIENCE * model_s + 10.0 + beyond_model_s(plan, transport))


@dataclass(frozen=True)
class Programs:
    fabric_run: object
    fabric: object
    all_reduce_perf: object
    python: object
    probe: object
    trainer: object = None
    analyser: object = None
    guest: object = None  # scripts/rdma-guest
    study: object = None  # scripts/study


def command_of(plan, study, cell, model_s, programs, output, perf_json):
    """fabric-run with the ranks of one run; its `output` is a folder that does not exist yet."""
    return reduce_command(
        plan,
        cell.transport,
        ("--ranks", plan.ranks, *edge_flags(plan, study, cell)),
        ("--segment-bytes", segment_bytes(plan, cell.segment)),
        model_s,
        programs,
        output,
        perf_json,
    )


def reduce_command(plan, transport, fabric_flags, perf_flags, model_s, programs, output, perf_json):
    """fabric-run with all_reduce_perf in each rank, whose one size, rounds and warm-up are the plan's."""
    words = [
        programs.fabric_run,
        *transports.run_flags(transport),
        "--seed",
        plan.seed,
        *fabric_flags,
        "--mtu",
        plan.mtu,
        "--fabric",
        programs.fabric,
        "--output",
        output,
        "--timeout",
        round(run_limit_s(plan, model_s, transport)),
    ]
    if not transports.is_tcp(transport):
        stats = f"GLOO_BYPASS_STATS={output}/stats-%r.json"
        settings = (stats, *(f"{name}={value}" for name, value in plan.settings))
        words += [part for setting in settings for part in ("--env", setting)]
    else:
        words += [part for name, value in plan.sysctls for part in ("--sysctl", f"{name}={value}")]
    words += [
        "--",
        programs.python,
        programs.probe,
        "--output",
        output,
        "--interval",
        EMULATED_PROBE_INTERVAL_S if transport in plan.guest else PROBE_INTERVAL_S,
        "--",
        programs.all_reduce_perf,
        "--transports",
        transports.kind_of(transport),
        "-b",
        plan.bytes,
        "-e",
        plan.bytes,
        "-n",
        1,
        "-w",
        plan.warm_up,
        "--rounds",
        plan.rounds,
        *perf_flags,
        "--timeout",
        round(operation_limit_s(plan, transport, model_s)),
        "--json",
        perf_json,
    ]
    return [str(word) for word in words]
