"""The sweeps: one parameter varied, a few quantities measured at each of its values. Pure.

What is swept is a Point: the variant of training or of an all-reduce that stands for one value. Which quantities there
are follows from the workload; a sweep names those that it is about, and what the model says of them is in
sweep_prediction.
"""

from dataclasses import dataclass

from gloo_bypass_tools.study import cells, edge_study, training
from gloo_bypass_tools.study.study import Study, words

MIB = edge_study.MIB
REDUCE, TRAIN = "reduce", "training"
TINY = training.TINY
# Of bursts: a frame within one is lost with this chance, and the burst ends with that: five frames a burst in the mean.
BURST_LOSS_PERCENT, BURST_LEAVE_PERCENT = 80.0, 20.0
# Between two times that the link is down it is up for so long; they begin when the ranks are about to meet, and end
# after so many. In the guest steps take seconds, and it is minutes until the first.
UP_MS, FIRST_DOWN_S, TIMES_DOWN = 2000.0, 3.0, 60
GUEST_UP_MS, GUEST_TIMES_DOWN = 10000.0, 120
# A straggler: the last rank of two, of which the first waits.
STRAGGLER = 1


@dataclass(frozen=True)
class Point(training.TrainingVariant):
    """One value of what is swept. `series`: the line of the plot that it belongs to. Every edge has the same rate,
    delay and loss."""

    label: str = ""
    series: str = ""
    algorithm: str = "ring"
    bytes: int = 0  # of the vector; 0: the scale's
    delay_ms: float = edge_study.FAST_DELAY_MS
    loss_percent: float = 0.0
    burst: bool = False
    down_ms: float = 0.0
    processor_share: float | None = None  # of one core, for one rank; None: what it gets
    endless: bool = False  # as many steps as the plan says, over several epochs
    published: tuple = ()  # study and variant of the published file that measured this point, over TCP

    @property
    def epoch_steps(self):
        return 10**9 if self.endless else super().epoch_steps

    @property
    def burst_enter_percent(self):
        """So that the mean loss is loss_percent: the share of frames in bursts is enter / (enter + leave)."""
        return BURST_LEAVE_PERCENT * self.loss_percent / (BURST_LOSS_PERCENT - self.loss_percent)

    def times_down(self, in_guest):
        """At the most: those that are looked at are fewer where the steps take less time."""
        return GUEST_TIMES_DOWN if in_guest else TIMES_DOWN

    def fabric_flags(self, in_guest=False):
        settings = [
            f"rate={edge_study.FAST_RATE_MBIT:g}Mbit/s",
            f"delay={self.delay_ms:g}ms",
            f"queue={edge_study.FAST_QUEUE}",
        ]
        if self.loss_percent and self.burst:
            settings += [
                f"burst_enter={self.burst_enter_percent:.6g}%",
                f"burst_leave={BURST_LEAVE_PERCENT:g}%",
                f"burst_loss={BURST_LOSS_PERCENT:g}%",
            ]
        elif self.loss_percent:
            settings.append(f"loss={self.loss_percent:g}%")
        flags = ["--defaults", ",".join(settings)]
        for number in range(self.times_down(in_guest) if self.down_ms else 0):
            at = FIRST_DOWN_S + number * self.period_s(in_guest)
            flags += ["--event", f"at={at:g}s,from=r0,to=r1,both=true,down={self.down_ms:g}ms"]
        return tuple(flags)

    def period_s(self, in_guest=False):
        """From one time that the link goes down to the next; without any, that of the shortest, so that both are looked
        at alike."""
        return (self.down_ms + (GUEST_UP_MS if in_guest else UP_MS)) / 1000


@dataclass(frozen=True)
class SweepScale:
    """`bytes`, `rounds`, of all-reduces; `steps` of training, 0: the epoch."""

    bytes: int = 4 * MIB
    rounds: int = 3
    warm_up: int = 1
    steps: int = 0


TRAINING_SCALES = {"small": SweepScale(steps=3), "published": SweepScale(steps=0)}
REDUCE_SCALES = {"small": SweepScale(4 * MIB, rounds=3), "published": SweepScale(edge_study.PUBLISHED_BYTES, rounds=2)}


@dataclass(frozen=True)
class Asked:
    """What a sweep's model is asked: a quantity at a point over a transport. `base`: medians of the base point's
    quantities over the same transport, from which the models of training start, since the processor's part of a step
    cannot be computed; empty where the base was not measured."""

    plan: object
    study: object
    point: Point
    transport: str
    key: str
    base: dict
    cores: int

    @property
    def base_point(self):
        return self.study.variant(self.study.base)


@dataclass(frozen=True, kw_only=True)
class Sweep(Study):
    """`base`: the point whose measurement the model starts from. `quantities`: keys of sweep_tables.QUANTITIES, the
    first is the one drawn first. `predicted(asked)`: the model, in seconds, bytes, shares; None where it says nothing.
    `model_about`: the same in words. `guest_problem(plan, study)`: why it says nothing in the guest, or ''."""

    model_about: str
    axis: str
    workload: str
    base: str
    quantities: tuple
    scales: dict
    predicted: object
    model: str = training.MODEL
    same_bits: bool = False  # the parameters must not depend on what is swept
    guest_problem: object = lambda plan, study: ""
    published_name = None  # what was published is its points'

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "model_about", words(self.model_about))


@dataclass(frozen=True)
class SweepPlan(training.TrainingPlan):
    """`bytes`, `rounds` are an all-reduce's; `model`, `steps` training's."""

    bytes: int = 16 * MIB
    rounds: int = 3

    @staticmethod
    def from_record(record):
        return cells.plan_from(SweepPlan, record)

    def of_reduce(self, point):
        """What the studies of an all-reduce read of a plan, for this point."""
        return cells.Plan(
            study=self.study,
            scale=self.scale,
            ranks=point.ranks,
            bytes=point.bytes or self.bytes,
            rounds=self.rounds,
            warm_up=self.warm_up,
            mtu=self.mtu,
            seed=self.seed,
            settings=self.settings,
            sysctls=self.sysctls,
            guest=self.guest,
        )
