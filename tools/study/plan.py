"""What is to be measured, run by run: a plan and its cells. Pure.

A cell is a point over one transport; over a slow edge also with one loss and one segment size. Repeats go over all
cells in turn, so that transports alternate and a slow spell of the machine hits each alike.
"""

from dataclasses import dataclass, replace

from gloo_bypass_tools.study import definition

# Delay-based control (Swift) took the wait for one of a few cores, which four ranks and the fabric share, for
# congestion when the runs in docs were measured: its windows stayed at two datagrams, and edges without any delay
# became the slow ones. BBR measures rates. All runs of a study have the same.
SETTINGS = {"GLOO_BYPASS_CONGESTION_CONTROL": "bbr"}


def known(one):
    """The fields as results.json has them: without those that this study does not have."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(one).items()
        if value is not None
    }


@dataclass(frozen=True)
class Cell:
    """`segment`, `loss_percent`: of the slow edge of an all-reduce alone."""

    variant: str
    transport: str
    segment: str | None = None
    loss_percent: float | None = None

    as_record = known

    @property
    def slug(self):
        loss = f"loss{self.loss_percent:g}" if self.loss_percent else ""
        parts = (self.variant.replace("=", ""), loss, self.segment, self.transport)
        return "-".join(part for part in parts if part)

    @property
    def about(self):
        loss = f"{self.loss_percent:g} % loss" if self.loss_percent else ""
        segments = self.segment and f"segments {definition.SEGMENT_NAMES[self.segment]}"
        return ", ".join(part for part in (self.variant, loss, segments, self.transport) if part)


@dataclass(frozen=True)
class Plan:
    """As of the scale, unless the user said otherwise; None: the study has no such thing. `guest`: those of the
    transports that are measured in the guest, with a model and a sequence length of their own. `files`: (flag of
    ddp_train, absolute path) of text, vocabulary, merges, weights, where they are others. `steps` 0: the epoch."""

    study: str
    scale: str
    transports: tuple = ("TCP", "DPDK")
    variants: tuple = ()
    repeats: int = 1
    warm_up: int = 1
    mtu: int = 1500
    seed: int = 1
    settings: tuple = tuple(SETTINGS.items())
    sysctls: tuple = ()
    guest: tuple = ()
    bytes: int | None = None
    rounds: int | None = None
    ranks: int | None = None
    segments: tuple | None = None
    losses: tuple | None = None
    lossy: tuple | None = None
    model: str | None = None
    steps: int | None = None
    guest_model: str | None = None
    guest_sequence_length: int | None = None
    files: tuple | None = None

    as_record = known

    def at(self, point):
        """With the ranks and the bytes of this point's all-reduce."""
        return replace(self, ranks=self.ranks or point.ranks, bytes=point.bytes or self.bytes)

    def model_over(self, transport):
        return self.guest_model if transport in self.guest else self.model

    def sequence_length_over(self, transport):
        return self.guest_sequence_length if transport in self.guest else definition.SEQUENCE_LENGTH


def plan_of(study, /, scale, **changes):
    """The study at this scale, all of it, but for `changes`."""
    chosen, names = study.scales[scale], tuple(point.name for point in study.variants)
    values = {"study": study.name, "variants": names, "repeats": study.repeats, "warm_up": chosen.warm_up}
    if study.layout != definition.PUBLISHED:
        values |= {"bytes": chosen.bytes, "rounds": chosen.rounds}
    if study.layout == definition.EDGE:
        values |= {"ranks": study.ranks, "segments": definition.SEGMENTS}
        values |= {"losses": study.losses, "lossy": study.lossy[scale]}
    else:
        values |= {"model": study.model, "steps": chosen.steps, "files": ()}
        values |= {"guest_model": definition.TINY, "guest_sequence_length": definition.GUEST_SEQUENCE_LENGTH}
    return Plan(scale=scale, **values | changes)


def plan_from(study, record):
    """From what as_record() gave. KeyError or TypeError where something is missing."""

    def value_of(value):
        if not isinstance(value, list):
            return value
        return tuple(tuple(one) if isinstance(one, list) else one for one in value)

    return plan_of(study, **{key: value_of(value) for key, value in record.items() if key in Plan.__dataclass_fields__})


def cells_of(plan):
    """In the order of measuring: the transports of one cell one after another."""
    return [
        Cell(variant, transport, segment, loss)
        for variant in plan.variants
        for loss in plan.losses or (None,)
        if not loss or variant in plan.lossy
        for segment in plan.segments or (None,)
        for transport in plan.transports
    ]


def steps_of(plan, point):
    return min(plan.steps, point.epoch_steps) if plan.steps else point.epoch_steps


def segment_bytes(plan, segment):
    """Gloo's largest segment in bytes, of whole floats; 0: Gloo's own. Two segments a rank: 2 N of them in all."""
    if segment == "default":
        return 0
    return max(4, -(-plan.bytes // (2 * plan.ranks * 4)) * 4)


def slow_edge(ranks):
    """From the last rank to the one before it, as published."""
    return ranks - 1, ranks - 2
