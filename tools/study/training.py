"""The studies of training: DistilGPT2, data parallel, through the fabric, with step markers in a capture. Pure.

A variant's epoch is the published one: 400 samples, so floor(400 / (batch x ranks)) steps; at small size the first
steps of it.
"""

import math
from dataclasses import dataclass, replace

from gloo_bypass_tools.model import buckets, framing, ring, schedule
from gloo_bypass_tools.study import cells, edge_study, prediction, transports
from gloo_bypass_tools.study.study import Study

MODEL, TINY = "distilgpt2", "tiny"
SAMPLES, SEQUENCE_LENGTH = 400, 64
# In the guest, some hundred times slower at computing: with 64 tokens a sample DistilGPT2's step would take an hour,
# that of the tiny model many seconds.
GUEST_SEQUENCE_LENGTH = 8
PROBE_INTERVAL_S = 1.0
# A step of the slowest variant on two busy cores takes a minute; this bounds what is stuck. In the guest so many times
# as long.
STEP_LIMIT_S, TINY_STEP_LIMIT_S, START_S = 180.0, 5.0, 180.0
GUEST_PATIENCE = 8.0
# Within so much of 2(N-1) S and headers the bytes of an event have to be.
BYTES_TOLERANCE = 0.005


def model_flags(flags, model=("--model", TINY)):
    """What chooses ddp_train's model beside `flags`: `model`, unless they do."""
    chosen = any(flag.partition("=")[0] in ("--model", "--model-config") for flag in flags)
    return [] if chosen else list(model)


@dataclass(frozen=True)
class TrainingVariant:
    """`name` is that of the published file. What the fabric, the probe and the trainer are told besides is a
    subclass's."""

    name: str
    ranks: int = 2
    batch: int = 8
    precision: str = "fp32"  # of ddp_train
    barrier: bool = False
    bucket_mb: float | None = None  # largest bucket, MiB; None: DDP's own 25

    @property
    def bits(self):
        """Of a gradient."""
        return int(self.precision[2:])

    @property
    def epoch_steps(self):
        return SAMPLES // (self.batch * self.ranks)

    def fabric_flags(self, _in_guest=False):
        return (
            "--defaults",
            f"rate={edge_study.FAST_RATE_MBIT:g}Mbit/s,delay={edge_study.FAST_DELAY_MS:g}ms,"
            f"queue={edge_study.FAST_QUEUE}",
        )

    @property
    def trainer_flags(self):
        if self.bucket_mb is None:
            return ()
        return ("--bucket-cap-mb", self.bucket_mb, "--first-bucket-mb", min(1, self.bucket_mb))


@dataclass(frozen=True)
class SlowEdgeVariant(TrainingVariant):
    """`edge`: what the ring's last edge is, as where one vector is reduced by itself."""

    edge: edge_study.Variant = edge_study.Variant(edge_study.BASE)

    def fabric_flags(self, _in_guest=False):
        return tuple(cells.slow_edge_flags(self.edge, self.ranks))


@dataclass(frozen=True, kw_only=True)
class TrainingStudy(Study):
    """`flows`: of studies in the published file whose variants are directions, 0->1, the variant that they belong to.
    The model is training_prediction's, and event_bytes()."""

    flows: tuple = ()
    published: str = ""  # its name in the published file, where that is another

    @property
    def published_name(self):
        return self.published or self.name


def over_slow_edge(study, order):
    """Training over the edges of that study, as they were published."""
    return TrainingStudy(
        name=f"{study.name}-training",
        order=order,
        title=f"{study.title}: training",
        about=study.about,
        published=study.name,
        variants=tuple(SlowEdgeVariant(edge.name, ranks=study.ranks, edge=edge) for edge in study.variants),
    )


@dataclass(frozen=True)
class TrainingCell:
    variant: str
    transport: str

    @property
    def slug(self):
        return f"{self.variant.replace('=', '')}-{self.transport}"

    @property
    def about(self):
        return f"{self.variant}, {self.transport}"


@dataclass(frozen=True)
class TrainingPlan:
    """`steps` 0: the epoch. `model` other than DistilGPT2 has nothing published beside it. `guest`: those of the
    transports that are measured in the guest, with a model and a sequence length of their own."""

    study: str
    scale: str
    transports: tuple = ("TCP", "DPDK")
    variants: tuple = ()
    repeats: int = 1
    model: str = MODEL
    steps: int = 4
    warm_up: int = 1
    mtu: int = 1500
    seed: int = 1
    settings: tuple = tuple(cells.SETTINGS.items())
    sysctls: tuple = ()
    guest: tuple = ()
    guest_model: str = TINY
    guest_sequence_length: int = GUEST_SEQUENCE_LENGTH
    files: tuple = ()  # (flag of ddp_train, absolute path): text, vocabulary, merges, weights, where they are others

    def model_over(self, transport):
        return self.guest_model if transport in self.guest else self.model

    def sequence_length_over(self, transport):
        return self.guest_sequence_length if transport in self.guest else SEQUENCE_LENGTH

    as_record = cells.Plan.as_record

    @staticmethod
    def from_record(record):
        return cells.plan_from(TrainingPlan, record)


def cells_of(plan):
    return [TrainingCell(variant, transport) for variant in plan.variants for transport in plan.transports]


def steps_of(plan, variant):
    return min(plan.steps, variant.epoch_steps) if plan.steps else variant.epoch_steps


def run_limit_s(plan, variant, transport):
    step_s = STEP_LIMIT_S if plan.model_over(transport) == MODEL else TINY_STEP_LIMIT_S
    return (START_S + step_s * steps_of(plan, variant)) * (GUEST_PATIENCE if transport in plan.guest else 1.0)


def command_of(plan, variant, cell, programs, output, limit=()):
    """fabric-run with the trainers of one run, captured. `limit`: flags of the probe that hold a rank's processor share
    down."""
    transport, model = cell.transport, plan.model_over(cell.transport)
    words = [
        programs.fabric_run,
        *transports.run_flags(transport),
        "--ranks",
        variant.ranks,
        "--seed",
        plan.seed,
        *variant.fabric_flags(transport in plan.guest),
        "--mtu",
        plan.mtu,
        "--fabric",
        programs.fabric,
        "--output",
        output,
        "--capture",
        "--timeout",
        round(run_limit_s(plan, variant, transport)),
    ]
    if transports.is_tcp(transport):
        words += [part for name, value in plan.sysctls for part in ("--sysctl", f"{name}={value}")]
    else:
        words += [part for name, value in plan.settings for part in ("--env", f"{name}={value}")]
    words += [
        "--",
        programs.python,
        programs.probe,
        "--output",
        output,
        "--interval",
        cells.EMULATED_PROBE_INTERVAL_S if transport in plan.guest else PROBE_INTERVAL_S,
        *limit,
        "--",
        programs.trainer,
        "--model",
        model,
        "--batch-size",
        variant.batch,
        "--seq-length",
        plan.sequence_length_over(transport),
        "--precision",
        variant.precision,
        "--steps",
        steps_of(plan, variant),
        "--seed",
        plan.seed,
        "--skip-first",
        plan.warm_up,
        "--barrier" if variant.barrier else "--no-barrier",
        "--no-progress",
        "--step-markers",
        "{markers}",
        "--metrics",
        f"{output}/metrics-{{rank}}.jsonl",
        *variant.trainer_flags,
    ]
    if model == MODEL:
        words += ["--samples", SAMPLES]
    words += [word for pair in plan.files for word in pair]
    return [str(word) for word in words]


@dataclass(frozen=True)
class EventBytes:
    """Of one event, by model: all ranks' payload 2(N-1) S, and all frames with their headers and acknowledgements; of
    these, those that go the ring's way, and those that go back. `fewest`: all frames, where no acknowledgement goes
    alone if the path leaves that to the receiver: TCP's sends one for two segments at most (RFC 5681, 4.2), and one for
    many where the kernel hands them up together."""

    payload: float
    forward: float
    backward: float
    fewest: float

    @property
    def frames(self):
        return self.forward + self.backward

    def on_edge(self, ranks, start, end):
        """From one rank to another: the ring goes from each rank to the one before it, and with two ranks both ways are
        that."""
        found = 0.0
        if (start - end) % ranks == 1:
            found += self.forward / ranks
        if (end - start) % ranks == 1:
            found += self.backward / ranks
        return found


def gradient_buckets(variant, model):
    """In the order of their all-reduces."""
    limit = buckets.BUCKET_BYTES if variant.bucket_mb is None else int(variant.bucket_mb * buckets.MEBIBYTE)
    return buckets.of_model(buckets.MODELS[model], variant.bits // 8, min(buckets.FIRST_BUCKET_BYTES, limit), limit)


def event_bytes(plan, variant, transport):
    """Over this transport, and so of the model that it has there."""
    path = prediction.path_of(plan, transport)
    quiet = replace(path, frames_an_acknowledgement=math.inf) if isinstance(path, framing.TcpPath) else path
    total, fewest, payload = framing.NOTHING, framing.NOTHING, 0
    for bucket in gradient_buckets(variant, plan.model_over(transport)):
        parts = schedule.cut(bucket.size, variant.ranks, element_bytes=variant.bits // 8)
        total += framing.event_cost(path, variant.ranks, parts.segments())
        fewest += framing.event_cost(quiet, variant.ranks, parts.segments())
        payload += ring.event_bytes(variant.ranks, bucket.size)
    return EventBytes(payload, total.forward, total.backward, fewest.total)
