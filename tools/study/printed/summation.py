"""How exact an all-reduce's sums are, and what changes their bits.

Prints, as Markdown, the error of each order of additions against exact sums, and the share of elements whose bits
change with segments, buckets and algorithms. The orders are those of orders.py, which the tests compare with Gloo's
own, bit for bit. Vectors: gradients of the tiny model from ddp_train (left out without --trainer), and three hostile
kinds.
"""

import hashlib
import json
import math
import operator
import struct
import tempfile

import numpy as np

from gloo_bypass_tools.study.commands import flags
from gloo_bypass_tools.study.printed import markdown, orders, trainer
from gloo_bypass_tools.study.printed.arithmetic import ARITHMETICS, Plain

TITLE = "How exact an all-reduce's sums are, and what changes their bits"
UNIT_ROUNDOFF = 2.0**-24  # of fp32


def wide_exponents(ranks, elements, random):
    """Magnitudes from 2^-30 to 2^30, both signs: most operands vanish against the largest one."""
    return [
        (random.standard_normal(elements) * 2.0 ** random.uniform(-30, 30, elements)).astype(np.float32)
        for _ in range(ranks)
    ]


def cancelling(ranks, elements, random):
    """Large operands whose sum is small: the last rank has about minus the sum of the others."""
    vectors = [(random.standard_normal(elements) * 1e4).astype(np.float32) for _ in range(ranks - 1)]
    rest = -np.sum(vectors, axis=0, dtype=np.float64) + random.standard_normal(elements)
    return vectors + [rest.astype(np.float32)]


def swamped(ranks, elements, random):
    """Ordinary operands, and two of 2^60 that cancel: fp64 has 53 bits, and loses what was added in between."""
    vectors = [random.standard_normal(elements).astype(np.float32) for _ in range(ranks)]
    vectors[0] = np.full(elements, 2.0**60, np.float32)
    vectors[ranks // 2] = -vectors[0]
    return vectors


HOSTILE = {"cancelling": cancelling, "wide exponents": wide_exponents, "swamped": swamped}


def read_safetensors(path, prefix):
    """Name and fp32 values of each tensor whose name begins with `prefix`, in the order of names."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {
        name[len(prefix) :]: np.frombuffer(data[slice(*header[name]["data_offsets"])], "<f4")
        for name in sorted(header)
        if name.startswith(prefix)
    }


def run_tiny(program, *chosen):
    tiny = flags(model="tiny", seq_length=16, steps=1, lr=0, metrics="/dev/null")
    trainer.run([program, *tiny, *chosen], "ddp_train", timeout_s=100)


def train_tiny(program, folder, *chosen):
    """The gradient of one step, by parameter: with beta1 = 0 it is AdamW's first moment."""
    run_tiny(program, *flags(weights=f"{folder}/w", beta1=0, checkpoint=f"{folder}/c"), *chosen)
    return read_safetensors(f"{folder}/c", "exp_avg.")


def gradients(program, ranks):
    """Of one model on a batch of its own each."""
    with tempfile.TemporaryDirectory() as folder:
        run_tiny(program, "--save-model", f"{folder}/w")
        found = [train_tiny(program, folder, "--no-ddp", "--seed", rank) for rank in range(ranks)]
    return [np.concatenate(list(one.values())) for one in found]


def exact_sums(vectors):
    """fp64 nearest to the exact sum, element by element."""
    return np.array([math.fsum(column) for column in np.stack(vectors).astype(np.float64).T.tolist()])


def reduced(name, vectors, arithmetic=Plain, **options):
    return orders.ALGORITHMS[name]([arithmetic.of(vector) for vector in vectors], operator.add, **options).rounded()


def error(sums, vectors, exact):
    """(the largest error in units of roundoff times the sum of magnitudes, share of elements not correctly rounded)."""
    magnitudes = np.sum(np.abs(np.stack(vectors).astype(np.float64)), axis=0)
    errors = np.abs(sums.astype(np.float64) - exact) / np.where(magnitudes > 0, UNIT_ROUNDOFF * magnitudes, 1)
    return errors.max(), np.mean(sums != exact.astype(np.float32))


def bucketed(name, vectors, elements, **options):
    """As DDP reduces: bucket by bucket."""
    cuts = range(0, len(vectors[0]), elements)
    return np.concatenate(
        [reduced(name, [vector[cut : cut + elements] for vector in vectors], **options) for cut in cuts]
    )


def changed(one, other):
    return np.mean(one.view(np.uint32) != other.view(np.uint32))


def digest(vector):
    return hashlib.sha256(vector.tobytes()).hexdigest()[:8]


def table(header, rows):
    return markdown.table(header, rows, left=len(header))


def error_table(kinds, ranks):
    rows = []
    for name in orders.ALGORITHMS:
        for arithmetic in ARITHMETICS:
            chain = orders.additions_in_a_row(name, ranks)
            cells = [name, arithmetic, str(chain)]
            for vectors, exact in kinds.values():
                worst, wrong = error(reduced(name, vectors, ARITHMETICS[arithmetic]), vectors, exact)
                cells.append(f"{worst:.2f}, {100 * wrong:.1f} %")
            rows.append(cells)
    return table(["order", "sums", "additions in a row", *kinds], rows)


def bits_table(kinds, world_sizes):
    """Share of elements of which the first so many ranks' sums have other bits."""
    variants = {
        "ring in segments of 4 KiB": lambda v: reduced("ring", v, segment_bytes=4096),
        "ring in buckets of 1000 elements": lambda v: bucketed("ring", v, 1000),
    }
    variants |= {name: lambda v, name=name: reduced(name, v) for name in orders.ALGORITHMS if name != "ring"}
    rows = []
    for label, reduce in variants.items():
        for kind, (vectors, _) in kinds.items():
            if kind == "swamped":
                continue  # fewer ranks would not have both large operands
            shares = [changed(reduced("ring", vectors[:ranks]), reduce(vectors[:ranks])) for ranks in world_sizes]
            rows.append([label, kind, *(f"{100 * share:.1f} %" for share in shares)])
    return table(["against ring", "vectors", *(f"{ranks} ranks" for ranks in world_sizes)], rows)


def digest_table(kinds, ranks):
    rows = [
        [name, arithmetic, *(digest(reduced(name, vectors, ARITHMETICS[arithmetic])) for vectors, _ in kinds.values())]
        for arithmetic in ARITHMETICS
        for name in orders.ALGORITHMS
    ]
    return table([f"order, {ranks} ranks", "sums", *kinds], rows)


def add_options(options):
    add = options.parser.add_argument
    add("--trainer", help="ddp_train, for gradients")
    add("--ranks", type=int, default=8, choices=range(2, 65), metavar="2..64")
    add("--elements", type=int, default=20000, help="of a hostile vector")
    add("--seed", type=int, default=1)


def problem_of(given):
    return ""


def run(given):
    random = np.random.default_rng(given.seed)
    vectors = {"gradients": gradients(given.trainer, given.ranks)} if given.trainer else {}
    vectors |= {name: make(given.ranks, given.elements, random) for name, make in HOSTILE.items()}
    kinds = {name: (one, exact_sums(one)) for name, one in vectors.items()}
    errors = "Largest error in 2^-24 times the sum of magnitudes, and elements not correctly rounded"
    print(f"{errors}, of {given.ranks} ranks\n\n{error_table(kinds, given.ranks)}\n")
    print("Elements whose bits differ from those of the ring in one bucket with segments of 1 MiB\n")
    print(bits_table(kinds, [ranks for ranks in (2, 3, 4, 8) if ranks <= given.ranks]))
    print(f"\nFirst digits of SHA-256 of the fp32 sums\n\n{digest_table(kinds, given.ranks)}")
