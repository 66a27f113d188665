"""Study, and the points that it varies. Pure.

A point is one variant of an all-reduce or of training. A study of one slow edge varies the edge from rank 3 to rank 2,
its successor on the ring 0 -> 3 -> 2 -> 1 -> 0; as an all-reduce it reduces one vector by itself, so that nothing hides
behind backward. The published studies trained DistilGPT2 on 400 samples an epoch.
"""

from dataclasses import dataclass, field

MIB = 2**20
REDUCE, TRAIN = "reduce", "training"
# What a study's page shows: a table of the slow edge, the published figures, or a table for each quantity.
EDGE, PUBLISHED, SWEEP = "edge", "training", "sweep"
PUBLISHED_BYTES = 81_912_576 * 4  # DistilGPT2's gradient in FP32
MODEL, TINY = "distilgpt2", "tiny"
SAMPLES, SEQUENCE_LENGTH = 400, 64
# With 64 tokens a sample, DistilGPT2's step would take an hour in the guest, the tiny model's many seconds.
GUEST_SEQUENCE_LENGTH = 8
# Every other edge. The published bridge had about 25 Gbit/s between containers (iperf3); this machine's ranks have
# less.
FAST_RATE_MBIT, FAST_DELAY_MS = 10_000.0, 0.02
# Room for all that is under way on a long edge; a slow edge has a router's buffer, which fills as it does with tc.
FAR_QUEUE, SLOW_QUEUE, FAST_QUEUE = "256MiB", "1MiB", "4MiB"
BASE = "base"
# Largest segment of Gloo's ring: as c10d leaves it, or two of them a rank, the fewest that its schedule allows.
SEGMENT_NAMES = {"default": "1 MiB", "two": "two a rank"}
SEGMENTS = tuple(SEGMENT_NAMES)
# Of bursts: a frame within one is lost with this chance, and the burst ends with that: five frames a burst in the mean.
BURST_LOSS_PERCENT, BURST_LEAVE_PERCENT = 80.0, 20.0
# How long a link is up between two times down; they begin when the ranks are about to meet, and end after so many. In
# the guest steps take seconds, and the first one starts after minutes.
UP_MS, FIRST_DOWN_S, TIMES_DOWN = 2000.0, 3.0, 60
GUEST_UP_MS, GUEST_TIMES_DOWN = 10000.0, 120
STRAGGLER = 1  # the last rank of two, for which the first waits


def words(text):
    """A block of text with spaces for line ends."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Edge:
    """The ring's last edge: a rate or a delay; neither: like all others."""

    rate_mbit: float | None = None
    delay_ms: float | None = None

    @property
    def is_slow(self):
        return self != Edge()

    @property
    def one_way_ms(self):
        return FAST_DELAY_MS if self.delay_ms is None else self.delay_ms


@dataclass(frozen=True)
class Point:
    """One value of what is varied. `name`: as in the published file; `label`, `series`: in tables and plots."""

    name: str
    ranks: int = 2
    batch: int = 8
    precision: str = "fp32"  # of ddp_train
    barrier: bool = False
    bucket_mb: float | None = None  # largest bucket, MiB; None: DDP's own 25
    processor_share: float | None = None  # of one core, for one rank; None: no limit
    endless: bool = False  # as many steps as the plan says, over several epochs
    algorithm: str = "ring"
    bytes: int = 0  # of the vector; 0: the plan's
    edge: Edge = Edge()
    delay_ms: float = FAST_DELAY_MS  # of every edge, as are loss and times down
    loss_percent: float = 0.0
    burst: bool = False
    down_ms: float = 0.0
    label: str = ""
    series: str = ""
    published: tuple = ()  # study and variant of the published file that measured this point, over TCP

    @property
    def bits(self):
        """Of a gradient."""
        return int(self.precision[2:])

    @property
    def epoch_steps(self):
        return 10**9 if self.endless else SAMPLES // (self.batch * self.ranks)

    @property
    def burst_enter_percent(self):
        """So that the mean loss is loss_percent: the share of frames in bursts is enter / (enter + leave)."""
        return BURST_LEAVE_PERCENT * self.loss_percent / (BURST_LOSS_PERCENT - self.loss_percent)

    def times_down(self, in_guest):
        """At the most: fewer are counted where the steps take less time."""
        return GUEST_TIMES_DOWN if in_guest else TIMES_DOWN

    def period_s(self, in_guest=False):
        """From one time that the link goes down to the next; the same steps are counted where it never does."""
        return (self.down_ms + (GUEST_UP_MS if in_guest else UP_MS)) / 1000


@dataclass(frozen=True)
class Scale:
    """`about`: in --help. `bytes`, `rounds`: of all-reduces; `steps` of training, 0: the epoch."""

    about: str
    bytes: int = 4 * MIB
    rounds: int = 3
    warm_up: int = 1
    steps: int = 0


def reduce_scale(size, rounds):
    return Scale(f"{size / 1e6:.4g} MB, {rounds} rounds", size, rounds)


def training_scale(steps):
    return Scale(f"{steps} steps" if steps else "a whole epoch", steps=steps)


REDUCE_SCALES = {"small": reduce_scale(4 * MIB, 3), "published": reduce_scale(PUBLISHED_BYTES, 2)}
TRAINING_SCALES = {"small": training_scale(3), "published": training_scale(0)}
EDGE_SCALES = {"small": Scale("16 MiB", 16 * MIB, rounds=2), "published": Scale("327.65 MB", PUBLISHED_BYTES, rounds=1)}
EPOCH_SCALES = {
    "small": Scale("the first 4 steps of the epoch", steps=4),
    "published": Scale("all of it, minutes a run"),
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """`order`: its place in lists. `variants`: its points. `repeats`: of all runs, unless the user says otherwise.

    Of a sweep: `base`, the point whose measurement the model starts from; `quantities`, keys of
    sweep_tables.QUANTITIES, the first one drawn first; `predicted(asked)`, the model of an Asked, in seconds, bytes,
    shares, None where there is none; `model_about`, the same in words; `same_bits`, whether the parameters must not
    depend on what is swept; `guest_problem(plan)`, why it says nothing in the guest, or ''.
    Of a slow edge under an all-reduce: `table` of the published T_ar; `losses` on the edge; `lossy`, the variants that
    are measured with loss too, at each scale; `targets(plan, study, rows)`; `shares`, whether TCP's time is divided.
    Of published training: `published`, its name in the published file, where that is another; `flows`: studies in
    that file that list directions, as 0->1, each with the variant of this study that it belongs to.
    """

    name: str
    order: int
    title: str
    about: str
    variants: tuple
    layout: str = PUBLISHED
    workload: str = TRAIN
    scales: dict = field(default_factory=lambda: EPOCH_SCALES)
    repeats: int = 1
    model: str = MODEL
    base: str = BASE
    axis: str = ""
    quantities: tuple = ()
    predicted: object = None
    model_about: str = ""
    same_bits: bool = False
    guest_problem: object = lambda plan: ""
    table: str = ""
    losses: tuple = ()
    lossy: dict = field(default_factory=dict)
    targets: object = None
    shares: bool = False
    published: str = ""
    flows: tuple = ()

    def __post_init__(self):
        for name in ("about", "model_about"):
            object.__setattr__(self, name, words(getattr(self, name)))

    @property
    def published_name(self):
        return self.published or self.name

    @property
    def ranks(self):
        """Of a study with the same number at all points."""
        return self.variants[0].ranks

    def variant(self, name):
        return next(one for one in self.variants if one.name == name)


def edge_study(name, order, **words_and_targets):
    """A study of one slow edge, as an all-reduce."""
    return Study(
        name=name, order=order, layout=EDGE, workload=REDUCE, scales=EDGE_SCALES, repeats=2, **words_and_targets
    )


def edge_training_study(study, order):
    """Training over the edges of that study, as they were published."""
    return Study(
        name=f"{study.name}-training",
        order=order,
        title=f"{study.title}: training",
        about=study.about,
        published=study.name,
        variants=study.variants,
    )


def sweep(workload, **rest):
    """A study of one parameter."""
    scales = REDUCE_SCALES if workload == REDUCE else TRAINING_SCALES
    return Study(layout=SWEEP, workload=workload, **{"scales": scales} | rest)


@dataclass(frozen=True)
class Asked:
    """A question to a sweep's model: a quantity at a point over a transport. `base`: medians of the base point's
    quantities over the same transport. Models of training start from these, since nothing computes the processor's part
    of a step; empty where the base was not measured."""

    plan: object
    study: Study
    point: Point
    transport: str
    key: str
    base: dict
    cores: int

    @property
    def base_point(self):
        return self.study.variant(self.study.base)

    @property
    def has_times(self):
        """Whether a model of training can start from the base."""
        return None not in (self.base.get("t_step"), self.base.get("t_ar"), self.base.get("t_exposed"))
