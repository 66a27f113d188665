"""The command line of a cell, and its time limit: fabric-run with a probe and all_reduce_perf or ddp_train each.
Pure.
"""

from dataclasses import dataclass

from gloo_bypass_tools.model import ring
from gloo_bypass_tools.study import definition, prediction, transports
from gloo_bypass_tools.study.plan import segment_bytes, slow_edge, steps_of

# The program's own limits follow from the model: so many times as long, and this much more.
PATIENCE, START_S, LEAST_OPERATION_S = 12.0, 60.0, 60.0
GUEST_PATIENCE_S = 240.0  # in the guest, for programs that load, and ranks that meet
# What crosses the fabric at the least, in all: a tenth of what it is on two quick cores. In the guest the processor is
# emulated: what its ranks reduce at the least, on a busy machine.
SLOWEST_BYTES_A_SECOND, EMULATED_BYTES_A_SECOND = 2e7, 2e5
# Between two samples of the probe.
PROBE_INTERVAL_S = {definition.REDUCE: 0.5, definition.TRAIN: 1.0}
EMULATED_PROBE_INTERVAL_S = 3.0
# A step of the slowest variant on two busy cores takes a minute; this bounds what is stuck. In the guest so many times
# as long.
STEP_LIMIT_S, TINY_STEP_LIMIT_S, TRAINING_START_S = 180.0, 5.0, 180.0
GUEST_PATIENCE = 8.0


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


def flags(**values):
    """--name value of each, and --name alone of those that are True."""
    named = ((f"--{name.replace('_', '-')}", value) for name, value in values.items())
    return [word for name, value in named for word in ((name,) if value is True else (name, value))]


def model_flags(chosen, model=("--model", definition.TINY)):
    """`model`, unless the flags `chosen` name a model themselves."""
    has_one = any(flag.partition("=")[0] in ("--model", "--model-config") for flag in chosen)
    return [] if has_one else list(model)


def report_beside(output):
    """What all_reduce_perf writes, beside a run's folder. A folder's name may have dots."""
    return output.with_name(f"{output.name}.json")


def all_edges(point):
    """The settings of every edge."""
    rate, queue = f"rate={definition.FAST_RATE_MBIT:g}Mbit/s", f"queue={definition.FAST_QUEUE}"
    settings = [rate, f"delay={point.delay_ms:g}ms", queue]
    if point.loss_percent and point.burst:
        settings += [
            f"burst_enter={point.burst_enter_percent:.6g}%",
            f"burst_leave={definition.BURST_LEAVE_PERCENT:g}%",
            f"burst_loss={definition.BURST_LOSS_PERCENT:g}%",
        ]
    elif point.loss_percent:
        settings.append(f"loss={point.loss_percent:g}%")
    return settings


def last_edge(edge, loss_percent):
    """The settings that the slow edge has besides."""
    settings = []
    if edge.rate_mbit is not None:
        settings += [f"rate={edge.rate_mbit:g}Mbit/s", f"queue={definition.SLOW_QUEUE}"]
    if edge.delay_ms is not None:
        settings += [f"delay={edge.delay_ms:g}ms", f"queue={definition.FAR_QUEUE}"]
    return [*settings, f"loss={loss_percent:g}%"] if loss_percent else settings


def fabric_flags(point, ranks, loss_percent=None, in_guest=False):
    """The fabric's description, as flags of fabric-run. `loss_percent`: of the slow edge."""
    found = ["--ranks", ranks, "--defaults", ",".join(all_edges(point))]
    if settings := last_edge(point.edge, loss_percent):
        start, end = slow_edge(ranks)
        found += ["--edge", ",".join([f"from=r{start}", f"to=r{end}", *settings])]
    for number in range(point.times_down(in_guest) if point.down_ms else 0):
        at_s = definition.FIRST_DOWN_S + number * point.period_s(in_guest)
        found += ["--event", f"at={at_s:g}s,from=r0,to=r1,both=true,down={point.down_ms:g}ms"]
    return found


def beyond_model_s(plan, transport):
    """What the processor, and windows of TCP's that are small for a long path, may take for one all-reduce."""
    if transport in plan.guest:
        return plan.bytes / EMULATED_BYTES_A_SECOND
    return ring.event_bytes(plan.ranks, plan.bytes) / SLOWEST_BYTES_A_SECOND


def operation_limit_s(plan, transport, model_s):
    return max(LEAST_OPERATION_S, PATIENCE * model_s) + beyond_model_s(plan, transport)


def reduce_limit_s(plan, transport, model_s):
    # Connecting, one all-reduce that is checked, those that warm up, those that are timed.
    start_s = START_S + (GUEST_PATIENCE_S if transport in plan.guest else 0.0)
    return start_s + (1 + plan.warm_up + plan.rounds) * (PATIENCE * model_s + 10.0 + beyond_model_s(plan, transport))


def training_limit_s(plan, point, transport):
    step_s = STEP_LIMIT_S if plan.model_over(transport) == definition.MODEL else TINY_STEP_LIMIT_S
    limit_s = TRAINING_START_S + step_s * steps_of(plan, point)
    # Where a rank has little processor time, its start takes longer too.
    return limit_s * (GUEST_PATIENCE if transport in plan.guest else 1.0) / (point.processor_share or 1.0)


def run_limit_s(plan, study, cell):
    point = study.variant(cell.variant)
    if study.workload == definition.TRAIN:
        return training_limit_s(plan, point, cell.transport)
    return reduce_limit_s(plan.at(point), cell.transport, prediction.schedule_s(plan, study, cell))


def settings_flags(plan, transport, *more):
    if transports.is_tcp(transport):
        flag, settings = "--sysctl", plan.sysctls
    else:
        flag, settings = "--env", (*more, *plan.settings)
    return [word for name, value in settings for word in (flag, f"{name}={value}")]


def perf_words(plan, study, cell, programs, output):
    """all_reduce_perf with one size; rounds and warm-up are the plan's."""
    point = study.variant(cell.variant)
    of_one, transport = plan.at(point), cell.transport
    limit_s = operation_limit_s(of_one, transport, prediction.schedule_s(plan, study, cell))
    return [
        programs.all_reduce_perf,
        *flags(transports=transports.kind_of(transport)),
        *("-b", of_one.bytes, "-e", of_one.bytes, "-n", 1, "-w", plan.warm_up, "--rounds", plan.rounds),
        *(
            flags(segment_bytes=segment_bytes(of_one, cell.segment))
            if cell.segment
            else flags(algorithm=point.algorithm)
        ),
        *flags(timeout=round(limit_s), json=report_beside(output)),
    ]


def trainer_words(plan, point, transport, programs, output):
    model, mb = plan.model_over(transport), point.bucket_mb
    return [
        programs.trainer,
        *flags(model=model, batch_size=point.batch, seq_length=plan.sequence_length_over(transport)),
        *flags(precision=point.precision, steps=steps_of(plan, point), seed=plan.seed, skip_first=plan.warm_up),
        "--barrier" if point.barrier else "--no-barrier",
        *flags(no_progress=True, step_markers="{markers}", metrics=f"{output}/metrics-{{rank}}.jsonl"),
        *([] if mb is None else flags(bucket_cap_mb=mb, first_bucket_mb=min(1, mb))),
        *(flags(samples=definition.SAMPLES) if model == definition.MODEL else []),
        *(word for pair in plan.files for word in pair),
    ]


def fabric_seed(plan, repeat):
    return (plan.seed + repeat - 1) % 2**63


def command_of(plan, study, cell, programs, output, limit=(), repeat=1):
    """fabric-run with the ranks of one run, training captured; its folder `output` does not exist yet. `limit`: flags
    of the probe that hold a rank's processor share down. Each repeat loses other frames, the same for all transports.
    """
    point, transport, trained = study.variant(cell.variant), cell.transport, study.workload == definition.TRAIN
    in_guest, limit_s = transport in plan.guest, run_limit_s(plan, study, cell)
    interval_s = EMULATED_PROBE_INTERVAL_S if in_guest else PROBE_INTERVAL_S[study.workload]
    of_program = (
        trainer_words(plan, point, transport, programs, output)
        if trained
        else perf_words(plan, study, cell, programs, output)
    )
    statistics = () if trained else (("GLOO_BYPASS_STATS", f"{output}/stats-%r.json"),)
    words = [
        programs.fabric_run,
        *transports.run_flags(transport),
        *fabric_flags(point, plan.at(point).ranks, cell.loss_percent, in_guest),
        *flags(seed=fabric_seed(plan, repeat), mtu=plan.mtu, fabric=programs.fabric),
        *flags(output=output, timeout=round(limit_s)),
        *(["--capture"] if trained else []),
        *settings_flags(plan, transport, *statistics),
        *("--", programs.python, programs.probe, *flags(output=output, interval=interval_s), *limit),
        *("--", *of_program),
    ]
    return [str(word) for word in words]
