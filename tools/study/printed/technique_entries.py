"""What is compared: studies of ddp_train's techniques, each a few sets of flags; and the links that they cross."""

from dataclasses import dataclass, field

from gloo_bypass_tools.common.program_places import ROOT

# 8 blocks that four ranks can share, either way: 436,224 parameters, nine tenths of them in blocks.
EIGHT_BLOCKS = ("--model-config", str(ROOT / "docs/studies/techniques/eight-blocks.json"))


@dataclass(frozen=True)
class Study:
    """`points`: name (without commas) and flags of ddp_train; the first one is what the others stand against.
    `ranks`: of points that have a number of their own. `model`: unless the caller chooses one."""

    title: str
    points: dict
    ranks: dict = field(default_factory=dict)
    model: tuple = ("--model", "tiny")


# As large a step as the four of four ranks that go one after the other.
FOUR_TIMES_THE_RATE = "--lr-scaling linear --lr-base-batch 8"
# Four ranks and the same 16 samples a step.
PARALLEL = {
    "data parallel": "--batch-size 4",
    "zero 3": "--batch-size 4 --zero 3",
    "tensor": "--batch-size 16 --model-parallel tensor",
    "gpipe 4 x 4": "--batch-size 4 --accumulate 4 --model-parallel gpipe",
    "1f1b 4 x 4": "--batch-size 4 --accumulate 4 --model-parallel 1f1b",
}
# Two copies of the model, of two parts each.
MESHES = {
    "tensor 2 x 2 copies": "--batch-size 8 --model-parallel tensor --model-ranks 2",
    "1f1b 4 x 2 x 2 copies": "--batch-size 2 --accumulate 4 --model-parallel 1f1b --model-ranks 2",
}
# As many samples a rank and step: twice the ranks, twice the batch of all.
RANKS = {
    "2 ranks": "",
    "4 ranks": "",
    "8 ranks": "",
    "4 ranks linear": "--lr-scaling linear --lr-base-batch 16",
    "8 ranks linear": "--lr-scaling linear --lr-base-batch 16",
    "8 ranks sqrt": "--lr-scaling sqrt --lr-base-batch 16",
}
STUDIES = {
    "compression": Study(
        "Gradient compression",
        {
            "none": "",
            "bf16": "--compress bf16",
            "topk 1 %": "--compress topk --compress-ratio 0.01",
            "randomk 1 %": "--compress randomk --compress-ratio 0.01",
            "sign": "--compress sign",
            "terngrad": "--compress terngrad",
            "qsgd 16": "--compress qsgd --compress-levels 16",
            "powersgd 4": "--compress powersgd --compress-rank 4",
        },
    ),
    # Where computing takes seconds, as with models that people train: what each costs, and from which rate on it pays.
    "compression-distilgpt2": Study(
        "Compression of DistilGPT2's gradients",
        {
            "none": "",
            "bf16": "--compress bf16",
            "topk 1 %": "--compress topk --compress-ratio 0.01",
            "topk 1 % in fp16": "--compress topk --compress-ratio 0.01 --compress-values fp16",
            "randomk 1 %": "--compress randomk --compress-ratio 0.01",
            "sign": "--compress sign",
            "terngrad": "--compress terngrad",
            "qsgd 16": "--compress qsgd --compress-levels 16",
            "powersgd 4": "--compress powersgd --compress-rank 4 --compress-warmup 0",
        },
        model=("--model", "distilgpt2"),
    ),
    "low-communication": Study(
        "Ranks that meet now and then",
        {
            "every step": "",
            "local-sgd 10": "--average local-sgd --inner-steps 10",
            "diloco 10": "--average diloco --inner-steps 10",
            "central": "--average central",
            "gossip ring": "--average gossip",
        },
    ),
    # Ranks that wait for the slowest, or do not; best with a link of one slow rank.
    "asynchronous": Study(
        "Waiting for the slowest",
        {
            "every step": "",
            "every step at 4 x rate": FOUR_TIMES_THE_RATE,
            "central": "--average central",
            "asynchronous": "--average asynchronous",
            "at most 4 ahead": "--average asynchronous --staleness-bound 4",
            "never ahead": "--average asynchronous --staleness-bound 0",
            "rate / staleness": "--average asynchronous --staleness-penalty inverse",
            "rate x exp(-0.1 staleness)": "--average asynchronous --staleness-penalty exponential",
        },
    ),
    "sharding": Study("ZeRO", {f"zero {stage}": f"--zero {stage}" for stage in range(4)}),
    "half-precision": Study(
        "Precision", {"fp32": "", **{name: f"--precision {name}" for name in ("bf16", "fp16", "fp64")}}
    ),
    # The same samples a step.
    "accumulation": Study(
        "Accumulation against batch",
        {
            "batch 8": "--batch-size 8",
            **{f"{8 // n} x {n}": f"--batch-size {8 // n} --accumulate {n}" for n in (2, 4, 8)},
        },
    ),
    # Twice the batch, twice (linear) or 1.4 times (sqrt) the rate.
    "batch": Study(
        "Batch and rate",
        {
            "batch 4": "--batch-size 4",
            "batch 16": "--batch-size 16",
            "batch 16 linear": "--batch-size 16 --lr-scaling linear --lr-base-batch 8",
            "batch 16 sqrt": "--batch-size 16 --lr-scaling sqrt --lr-base-batch 8",
        },
    ),
    "ranks": Study("Ranks and rate", RANKS, ranks={point: int(point[0]) for point in RANKS}),
    "parallelism": Study(
        "Samples, blocks' parts or blocks for each rank", PARALLEL, ranks=dict.fromkeys(PARALLEL, 4), model=EIGHT_BLOCKS
    ),
    # The same for a model that people train: its gradients are more than the activations of 16 samples.
    "parallelism-distilgpt2": Study(
        "DistilGPT2's samples, blocks' parts or blocks for each rank",
        PARALLEL | MESHES,
        ranks=dict.fromkeys(PARALLEL | MESHES, 4),
        model=("--model", "distilgpt2"),
    ),
    # The same 16 samples in more and smaller micro-batches.
    "bubbles": Study(
        "Micro-batches of a pipeline",
        {
            f"{method} {n} x {16 // n}": f"--batch-size {16 // n} --accumulate {n} --model-parallel {method}"
            for method in ("gpipe", "1f1b")
            for n in (1, 2, 4, 8)
        },
        model=EIGHT_BLOCKS,
    ),
}

# fabric-run's options. Every path between two ranks, both ways; a round trip is twice the delay.
OPEN = "open"
LINKS = {
    OPEN: "--defaults rate=10000Mbit/s,queue=4MiB",
    "200Mbit": "--defaults rate=200Mbit/s,delay=1ms,queue=4MiB",
    "50Mbit": "--defaults rate=50Mbit/s,delay=1ms,queue=4MiB",
    "300ms": "--defaults rate=1000Mbit/s,delay=150ms,queue=64MiB",
    # 200 Mbit/s, but for rank 1's.
    "slow rank": "--defaults rate=200Mbit/s,delay=1ms,queue=4MiB "
    "--edge from=1,to=*,both=true,rate=10Mbit/s,delay=1ms,queue=4MiB",
}
