"""The programs that are compared, and their sizes. Pure.

A program measures quantities, each in microseconds; a row of a stored run is one quantity of one program over one
transport. Some are made here of two others that a program measured in turn: what an all-reduce adds to them.
"""

import statistics
from dataclasses import dataclass

from gloo_bypass_tools.common.samples import quantile

TOKEN, TOKEN_ALONE = "token", "token without its all-reduces"
TOKEN_MET = "token whose ranks only wait for each other"
FIRST, HOT = "first calls", "one after the other"
ASYNCHRONOUS, FUNCTIONAL = "asynchronous, awaited at once", "functional"
ROUND, ROUND_ALONE, CALL, ADDED = "round", "round without its all-reduce", "call after computing", "added to a round"
STEP, STEP_ALONE, EXPOSED = "step", "step without its all-reduces", "exposed all-reduce"
STEP_UNSENT, COPIES = "step whose buckets are not sent", "copies of gradients"
# What nothing is sent in: it takes as long over every transport, if the machine is steady.
ALONE = (TOKEN_ALONE, ROUND_ALONE, STEP_ALONE, STEP_UNSENT)
# Where a transport has no part, and a ratio would say nothing.
WITHOUT_RATIO = (*ALONE, TOKEN_MET, COPIES)


@dataclass(frozen=True)
class Difference:
    """`name`: what `whole` takes longer than `alone`; of the means, or of the medians."""

    name: str
    whole: str
    alone: str
    of: object = statistics.fmean


@dataclass(frozen=True)
class Program:
    """`module` is run by each rank. `sizes`: its settings by effort. `needs`: packages besides PyTorch and ours, as pip
    calls them. `problem(sizes, ranks)`: why it cannot be run, or ''. `device`: where its tensors are, as PyTorch calls
    it; ranks share the GPUs that there are."""

    name: str
    module: str
    about: str
    sizes: dict
    differences: tuple = ()
    needs: tuple = ()
    problem: object = lambda sizes, ranks: ""
    device: str = "cpu"


HEAD = 64
CUDA_VECTORS = {"first_calls": 20, "first_bytes": 8192, "sizes": [4, 8192, 65536, 1 << 20, 16 << 20, 64 << 20]}
DISTILGPT2 = {"layers": 6, "heads": 12, "hidden": 768, "vocabulary": 50257}


def heads_problem(sizes, ranks):
    """Why so many ranks cannot share the decoder; '' if they can."""
    heads = sizes["hidden"] // HEAD
    return "" if heads % ranks == 0 else f"its {heads} heads cannot be shared by {ranks} ranks alike"


FULL, SHORT, TINY = EFFORTS = ("full", "short", "tiny")


OF_STEPS = (
    Difference(EXPOSED, STEP, STEP_ALONE, statistics.median),
    Difference(COPIES, STEP_UNSENT, STEP_ALONE, statistics.median),
)


def training_of(**samples):
    """Settings by effort: a batch of so many samples of so many tokens."""
    return {
        FULL: DISTILGPT2 | samples | {"warm_up": 3, "steps": 8},
        SHORT: DISTILGPT2 | samples | {"warm_up": 1, "steps": 3},
        TINY: {"layers": 1, "heads": 2, "hidden": 32, "vocabulary": 64}
        | {"batch": 1, "length": 8, "warm_up": 1, "steps": 2},
    }


TABLE = (
    Program(
        "decoding",
        "decoding",
        "tensor-parallel decoding: two all-reduces a layer and token",
        {
            FULL: {"layers": 24, "hidden": 1024, "batch": 1, "tokens": 16, "repeats": 3},
            SHORT: {"layers": 12, "hidden": 1024, "batch": 1, "tokens": 8, "repeats": 2},
            TINY: {"layers": 1, "hidden": 256, "batch": 1, "tokens": 2, "repeats": 1},
        },
        problem=heads_problem,
    ),
    Program(
        "all_reduce",
        "reduction",
        "dist.all_reduce by itself, and with computing between two of them",
        {
            FULL: {"first_calls": 50, "first_bytes": 8192, "most_calls": 300, "least_calls": 8}
            | {"sizes": [4, 8192, 65536, 1 << 20, 16 << 20, 64 << 20]}
            | {"compute_ms": [0.5, 2, 10], "compute_sizes": [8192, 65536], "compute_rounds": 60},
            SHORT: {"first_calls": 50, "first_bytes": 8192, "most_calls": 200, "least_calls": 5}
            | {"sizes": [4, 8192, 65536, 1 << 20, 16 << 20, 64 << 20]}
            | {"compute_ms": [2], "compute_sizes": [8192], "compute_rounds": 50},
            TINY: {"first_calls": 3, "first_bytes": 8192, "most_calls": 5, "least_calls": 2}
            | {"sizes": [4, 8192]}
            | {"compute_ms": [0.5], "compute_sizes": [8192], "compute_rounds": 4},
        },
        (Difference(ADDED, ROUND, ROUND_ALONE),),
    ),
    Program(
        "training",
        "training",
        "a step of DistilGPT2 under DistributedDataParallel",
        training_of(batch=1, length=64),
        OF_STEPS,
        ("transformers",),
    ),
    Program(
        "cuda_all_reduce",
        "vectors",
        "dist.all_reduce of CUDA tensors, until the sum is on the GPU",
        {
            FULL: CUDA_VECTORS | {"most_calls": 100, "least_calls": 8},
            SHORT: CUDA_VECTORS | {"most_calls": 50, "least_calls": 5},
            TINY: CUDA_VECTORS | {"first_calls": 3, "most_calls": 5, "least_calls": 2, "sizes": [4, 8192]},
        },
        device="cuda",
    ),
    Program(
        "cuda_training",
        "training",
        "a step of DistilGPT2 on a GPU, in bf16, under DistributedDataParallel",
        training_of(batch=8, length=256),
        OF_STEPS,
        ("transformers",),
        device="cuda",
    ),
)
BY_NAME = {program.name: program for program in TABLE}


@dataclass(frozen=True)
class Key:
    """Which quantity: `bytes` of the vector and `compute_ms` of computing before it, 0 where there is none."""

    program: str
    quantity: str
    bytes: int = 0
    compute_ms: float = 0

    def of(self, quantity):
        return Key(self.program, quantity, self.bytes, self.compute_ms)


@dataclass(frozen=True)
class Figures:
    """One quantity's figures over one transport, in one turn or in all."""

    median_us: float
    p99_us: float
    mean_us: float
    samples: int


def is_difference(key):
    return key.quantity in {one.name for one in BY_NAME[key.program].differences}


def figures_of(samples_us):
    median, mean = statistics.median(samples_us), statistics.fmean(samples_us)
    return Figures(median, quantile(samples_us, 0.99), mean, len(samples_us))


def with_differences(program, by_key):
    """`by_key`: {Key: samples}; the same as Figures, and those of what is made of two of them. A difference is one
    number a turn: its median, p99 and mean are the same."""
    found = {key: figures_of(samples) for key, samples in by_key.items()}
    for difference in program.differences:
        for key, samples in by_key.items():
            alone = by_key.get(key.of(difference.alone))
            if key.quantity == difference.whole and alone:
                value = difference.of(samples) - difference.of(alone)
                found[key.of(difference.name)] = Figures(value, value, value, len(samples))
    return found


def of_all_rounds(rounds):
    """The Figures of several turns: the median of the medians, the worst p99."""
    return Figures(
        statistics.median(one.median_us for one in rounds),
        max(one.p99_us for one in rounds),
        statistics.fmean(one.mean_us for one in rounds),
        sum(one.samples for one in rounds),
    )


def turns(transports, number):
    """The order in one round: each begins once in so many rounds, since the first has colder caches."""
    first = (number - 1) % len(transports)
    return transports[first:] + transports[:first]
