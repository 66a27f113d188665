"""The sweeps: one parameter varied, a few quantities measured at each of its values. Pure.

What is swept is a Point: the variant of training or of an all-reduce that stands for one value. Which quantities there are follows from the
workload; a sweep names those that it is about, and what the model says of them is in sweep_prediction.
"""

from dataclasses import dataclass

from . import catalogue, cells, training

MIB = catalogue.MIB
REDUCE, TRAIN = "reduce", "training"
TINY = training.TINY
# Of bursts: a frame within one is lost with this chance, and the burst ends with that: five frames a burst in the mean.
BURST_LOSS_PERCENT, BURST_LEAVE_PERCENT = 80.0, 20.0
# Between two times that the link is down it is up for so long; they begin when the ranks are about to meet, and end after so many. In the guest
# steps take seconds, and it is minutes until the first.
UP_MS, FIRST_DOWN_S, TIMES_DOWN = 2000.0, 3.0, 60
GUEST_UP_MS, GUEST_TIMES_DOWN = 10000.0, 120
# A straggler: the last rank of two, of which the first waits.
STRAGGLER = 1


@dataclass(frozen=True)
class Point(training.TrainingVariant):
    """One value of what is swept. `series`: the line of the plot that it belongs to. Every edge has the same rate, delay and loss."""

    label: str = ""
    series: str = ""
    algorithm: str = "ring"
    bytes: int = 0                    # of the vector; 0: the scale's
    delay_ms: float = catalogue.FAST_DELAY_MS
    loss_percent: float = 0.0
    burst: bool = False
    down_ms: float = 0.0
    processor_share: float | None = None   # of one core, for one rank; None: what it gets
    endless: bool = False             # as many steps as the plan says, over several epochs
    published: tuple = ()             # study and variant of the published file that measured this point, over TCP

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
        settings = [f"rate={catalogue.FAST_RATE_MBIT:g}Mbit/s", f"delay={self.delay_ms:g}ms", f"queue={catalogue.FAST_QUEUE}"]
        if self.loss_percent and self.burst:
            settings += [f"burst_enter={self.burst_enter_percent:.6g}%", f"burst_leave={BURST_LEAVE_PERCENT:g}%", f"burst_loss={BURST_LOSS_PERCENT:g}%"]
        elif self.loss_percent:
            settings.append(f"loss={self.loss_percent:g}%")
        flags = ["--defaults", ",".join(settings)]
        for number in range(self.times_down(in_guest) if self.down_ms else 0):
            at = FIRST_DOWN_S + number * self.period_s(in_guest)
            flags += ["--event", f"at={at:g}s,from=r0,to=r1,both=true,down={self.down_ms:g}ms"]
        return tuple(flags)

    def period_s(self, in_guest=False):
        """From one time that the link goes down to the next; without any, that of the shortest, so that both are looked at alike."""
        return (self.down_ms + (GUEST_UP_MS if in_guest else UP_MS)) / 1000


@dataclass(frozen=True)
class SweepScale:
    """`bytes`, `rounds`, of all-reduces; `steps` of training, 0: the epoch."""

    bytes: int = 4 * MIB
    rounds: int = 3
    warm_up: int = 1
    steps: int = 0


@dataclass(frozen=True)
class Sweep:
    """`base`: the point whose measurement the model starts from. `quantities`: keys of sweep_tables.QUANTITIES, the first is the one drawn first."""

    name: str
    title: str
    about: str
    model_about: str
    axis: str
    workload: str
    points: tuple
    base: str
    quantities: tuple
    scales: dict
    model: str = training.MODEL
    same_bits: bool = False   # the parameters must not depend on what is swept

    variants = property(lambda self: self.points)
    published_name = None   # what was published is its points'

    def variant(self, name):
        return next(one for one in self.points if one.name == name)


def loss_points():
    made = [Point("0", ranks=4, label="0 %", delay_ms=5.0)]
    for kind in ("random", "burst"):
        made += [Point(f"{kind}-{share:g}", ranks=4, label=f"{share:g} %", series=kind, delay_ms=5.0, loss_percent=share, burst=kind == "burst")
                 for share in (0.1, 0.5, 1.0, 2.0, 5.0)]
    return tuple(made)


def algorithm_points():
    sizes = ((64 * 1024, "64 KiB"), (MIB, "1 MiB"), (16 * MIB, "16 MiB"))
    return tuple(Point(f"{algorithm}-{label.replace(' ', '')}", ranks=4, label=label, series=algorithm.replace("_", "-"), algorithm=algorithm, bytes=size,
                       delay_ms=5.0) for algorithm in ("ring", "halving_doubling", "bcube") for size, label in sizes)


def rank_points(batch_of, published=()):
    return tuple(Point(f"ws={ranks}", ranks=ranks, batch=batch_of(ranks), barrier=True, label=f"{ranks} ranks",
                       published=("world-size", f"ws={ranks}") if ranks in published else ()) for ranks in (2, 3, 4))


GLOBAL_BATCH = 24
TRAINING_SCALES = {"small": SweepScale(steps=3), "published": SweepScale(steps=0)}
REDUCE_SCALES = {"small": SweepScale(4 * MIB, rounds=3), "published": SweepScale(catalogue.PUBLISHED_BYTES, rounds=2)}

STUDIES = {one.name: one for one in (
    Sweep("loss", "Loss on every edge, random and in bursts",
          "Four ranks reduce one vector over edges of 5 ms, one way, which lose 0 to 5 % of their frames, acknowledgements too: each by itself, or in "
          f"bursts of five frames in the mean, of which {BURST_LOSS_PERCENT:g} % are lost.",
          "Gloo's schedule over these edges, where a segment comes one round trip later for each time that any of its frames has to be sent again; "
          "no processor, no congestion window.",
          "frames lost", REDUCE, loss_points(), "0", ("time", "sent_again", "timeouts", "busbw"), REDUCE_SCALES),
    Sweep("algorithm", "Ring, halving-doubling and bcube",
          "Four ranks reduce vectors of three sizes by three of Gloo's algorithms, over edges of 5 ms, one way. Ring and bcube are what PyTorch can use; "
          "halving-doubling is Gloo's older class with buffers bound beforehand.",
          "Ring: Gloo's schedule. The others: rounds, 2 log2 N of them, of one delay each (two where data waits for the notice of a posted receive: bcube over "
          "TCP), and the bytes, 2(N-1)/N S a rank, at the edge's rate; no processor.",
          "vector", REDUCE, algorithm_points(), "ring-64KiB", ("time", "busbw", "sent_again"), REDUCE_SCALES),
    Sweep("bucket", "Bucket size of DDP",
          "Two ranks; gradients are reduced in buckets of at most so many MiB, the first of at most 1 MiB, while backward goes on.",
          "T_ar: buckets against backward, two at a time, with the time of a byte and backward's window from the measured default of 25 MiB (which is therefore "
          "met by itself). Bytes: 2(N-1) S and headers.",
          "bucket, MiB", TRAIN, tuple(Point(f"{size:g}MiB", bucket_mb=size, label=f"{size:g}", published=("batch-size", "bs=8") if size == 25 else ())
                                             for size in (1.0, 5.0, 25.0, 100.0, 400.0)),
          "25MiB", ("t_step", "t_ar", "t_exposed", "bytes_per_event"), TRAINING_SCALES, same_bits=True),
    Sweep("flap", "A link that goes down and comes back",
          f"Two ranks train a tiny model, some tens of steps a second; both ways of their link are down for 50, 200 or 1000 ms, again and again, and up for {UP_MS / 1000:g} s between (in the guest, {GUEST_UP_MS / 1000:g} s).",
          "The time down itself: what any transport loses.",
          "down for", TRAIN, (Point("none", label="never", endless=True), *(Point(f"{ms}ms", label=f"{ms} ms", down_ms=float(ms), endless=True) for ms in (50, 200, 1000))),
          "none", ("lost_time", "repeated_bytes", "lost_frames", "t_ar", "t_step"), {"small": SweepScale(steps=200), "published": SweepScale(steps=1000)}, model=TINY, same_bits=True),
    Sweep("stragglers", "One rank with little processor time",
          "Two ranks; the second may use a whole core, a half or a quarter of one, and the first waits for it.",
          "T_step: the straggler's processor time of a step, as it was without limit, at the share that it has; not less than the step without limit.",
          "share of a core", TRAIN, (Point("free", barrier=True, label="no limit", published=("barrier", "barrier")), *(Point(f"{share:g}", barrier=True, label=f"{share:g}", processor_share=share) for share in (0.5, 0.25))),
          "free", ("t_step", "t_ar", "t_exposed", "cpu"), TRAINING_SCALES, same_bits=True),
    Sweep("strong-scaling", "More ranks for the same global batch",
          f"Two, three and four ranks share a global batch of {GLOBAL_BATCH} samples.",
          "From the step of two ranks: computation by samples a rank, what is visible of the all-reduce by bytes, 2(N-1)/N S a rank; both stretched by "
          "ranks / cores where ranks share cores.",
          "ranks", TRAIN, rank_points(lambda ranks: GLOBAL_BATCH // ranks), "ws=2", ("t_step", "samples_per_s", "efficiency", "t_ar", "bytes_per_event"), TRAINING_SCALES),
    Sweep("weak-scaling", "More ranks with the same batch each",
          "Two, three and four ranks with 8 samples each.",
          "From the step of two ranks: computation by samples a rank, what is visible of the all-reduce by bytes, 2(N-1)/N S a rank; both stretched by "
          "ranks / cores where ranks share cores.",
          "ranks", TRAIN, rank_points(lambda ranks: 8, published=(2, 4)), "ws=2", ("t_step", "samples_per_s", "efficiency", "t_ar", "bytes_per_event"), TRAINING_SCALES),
)}


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
        return cells.Plan(study=self.study, scale=self.scale, ranks=point.ranks, bytes=point.bytes or self.bytes, rounds=self.rounds,
                          warm_up=self.warm_up, mtu=self.mtu, seed=self.seed, settings=self.settings, sysctls=self.sysctls, guest=self.guest)
