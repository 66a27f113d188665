"""scripts/study summation: the orders of additions are Gloo's and DDP's own, bit for bit, and what its page says is so.

REDUCE_VECTORS and DDP_TRAIN name the programs; what needs one that is not there is skipped.
"""

import fractions
import json
import operator
import os
import pathlib
import subprocess

import numpy as np
import pytest
from conftest import ROOT
from gloo_bypass_tools.study import command
from gloo_bypass_tools.study.printed import orders, summation
from gloo_bypass_tools.study.printed.arithmetic import ARITHMETICS, Double, Plain, two_sum

REDUCE_VECTORS = pathlib.Path(os.environ.get("REDUCE_VECTORS", ROOT / "build/tools/summation/reduce_vectors"))
DDP_TRAIN = pathlib.Path(os.environ.get("DDP_TRAIN", ROOT / "build/trainer/ddp_train"))
needs_gloo = pytest.mark.skipif(not REDUCE_VECTORS.exists(), reason=f"{REDUCE_VECTORS} is not built")
KINDS = tuple(summation.HOSTILE)


def hostile(kind, ranks, elements=4099):
    return summation.HOSTILE[kind](ranks, elements, np.random.default_rng(ranks))


def same_bits(one, other):
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def by_gloo(folder, name, vectors, *flags):
    """Each rank's result of a real all-reduce."""
    np.stack(vectors).tofile(folder / "in")
    subprocess.run(
        [
            REDUCE_VECTORS,
            "--ranks",
            str(len(vectors)),
            "--algorithm",
            name,
            "--input",
            folder / "in",
            "--type",
            "double" if vectors[0].dtype == np.float64 else "float",
            "--output",
            folder / "out",
            *flags,
        ],
        check=True,
        timeout=100,
    )
    return np.fromfile(folder / "out", vectors[0].dtype).reshape(len(vectors), -1)


@needs_gloo
@pytest.mark.parametrize(
    "name, ranks, segment_bytes",
    [
        *[("ring", ranks, segment) for ranks in (2, 3, 5) for segment in (0, 256, 1000)],
        *[(name, ranks, 0) for name in ("ring_chunked", "halving_doubling", "bcube") for ranks in (3, 4, 6, 7)],
    ],
)
def test_Order_OfGloo_IsTheModelsBitForBit(tmp_path, name, ranks, segment_bytes):
    vectors = hostile("wide exponents", ranks)
    flags = ["--segment-bytes", str(segment_bytes)] if segment_bytes else []
    options = {"segment_bytes": segment_bytes} if segment_bytes else {}
    expected = summation.reduced(name, vectors, **options)
    for rank, result in enumerate(by_gloo(tmp_path, name, vectors, *flags)):
        assert same_bits(result, expected), f"rank {rank}"
    others = [other for other in orders.ALGORITHMS if not same_bits(summation.reduced(other, vectors), expected)]
    assert others or ranks == 2, "the vectors do not tell orders apart"


@needs_gloo
def test_Order_OfDoubles_IsTheModelsToo(tmp_path):
    vectors = [vector.astype(np.float64) * (1 + 2.0**-40) for vector in hostile("cancelling", 3)]
    expected = orders.ring([Double(vector) for vector in vectors], operator.add).values
    assert all(same_bits(result, expected) for result in by_gloo(tmp_path, "ring", vectors))


@needs_gloo
@pytest.mark.parametrize(
    "name, length",
    [("ring", 1), ("ring", 2), ("ring", 5), ("ring", 7), ("ring_chunked", 700), ("halving_doubling", 3), ("bcube", 2)],
)
def test_Order_FewElements_IsTheModels(tmp_path, name, length):
    vectors = hostile("wide exponents", 3, length)
    assert all(same_bits(one, summation.reduced(name, vectors)) for one in by_gloo(tmp_path, name, vectors))


@needs_gloo
@pytest.mark.parametrize(
    "flags, reason",
    [
        (["--ranks", "3", "--algorithm", "ring"], "not whole vectors of 3 ranks"),
        (
            ["--ranks", "2", "--algorithm", "bcube", "--segment-bytes", "64"],
            "--segment-bytes belongs to --algorithm ring",
        ),
        (["--ranks", "2", "--algorithm", "star"], "--algorithm"),
        (["--ranks", "2", "--algorithm", "ring", "--input", "/no/such"], "cannot read /no/such"),
    ],
)
def test_ReduceVectors_BadInput_IsOneLine(tmp_path, flags, reason):
    (tmp_path / "in").write_bytes(bytes(32))
    ended = subprocess.run(
        [
            REDUCE_VECTORS,
            "--type",
            "float",
            "--output",
            tmp_path / "out",
            *(() if "--input" in flags else ("--input", tmp_path / "in")),
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 2 and reason in ended.stderr and ended.stderr.count("\n") == 1, ended
    assert not (tmp_path / "out").exists()


class Depth:
    """A partial sum that only counts the additions its operands went through."""

    wire_bytes = 4

    def __init__(self, depths):
        self.depths = depths

    @staticmethod
    def joined(parts):
        return Depth([depth for part in parts for depth in part.depths])

    def __len__(self):
        return len(self.depths)

    def __getitem__(self, part):
        return Depth(self.depths[part])

    def __add__(self, other):
        return Depth([max(pair) + 1 for pair in zip(self.depths, other.depths, strict=True)])


@pytest.mark.parametrize("name", orders.ALGORITHMS)
def test_Chain_EveryNumberOfRanks_IsAsLongAsStated(name):
    for ranks in range(1, 34):
        sums = orders.ALGORITHMS[name]([Depth([0] * 70) for _ in range(ranks)], operator.add)
        assert len(sums) == 70
        assert max(sums.depths) == orders.additions_in_a_row(name, ranks), ranks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", orders.ALGORITHMS)
def test_Error_OfPlainSums_IsWithinHighamsBound(name, kind):
    for ranks in (2, 3, 8, 13):
        vectors = hostile(kind, ranks, 500)
        worst, _ = summation.error(summation.reduced(name, vectors), vectors, summation.exact_sums(vectors))
        chain = orders.additions_in_a_row(name, ranks)
        assert worst <= chain / (1 - chain * summation.UNIT_ROUNDOFF)


@pytest.mark.parametrize(
    "kind, arithmetic, correct",
    [
        *[
            (kind, arithmetic, True)
            for kind in ("cancelling", "wide exponents")
            for arithmetic in ("compensated", "fp64")
        ],
        ("swamped", "fp64", False),
        *[(kind, "fp32", False) for kind in KINDS],
    ],
)
def test_Sums_OfEachArithmetic_AreAsExactAsStated(kind, arithmetic, correct):
    vectors = hostile(kind, 8)
    exact = summation.exact_sums(vectors)
    for name in orders.ALGORITHMS:
        _, wrong = summation.error(summation.reduced(name, vectors, ARITHMETICS[arithmetic]), vectors, exact)
        assert (wrong < 0.001) == correct, (name, wrong)


@pytest.mark.parametrize("name", orders.ALGORITHMS)
def test_Compensated_SwampedOperands_AreKept(name):
    vectors = hostile("swamped", 8)
    exact = summation.exact_sums(vectors)
    ordinary = np.sum(np.abs([vector for vector in vectors if abs(vector[0]) < 2.0**59]), axis=0, dtype=np.float64)

    def worst(arithmetic):
        return np.max(np.abs(summation.reduced(name, vectors, ARITHMETICS[arithmetic]) - exact) / ordinary)

    assert worst("compensated") < 8 * summation.UNIT_ROUNDOFF  # the sums of what is lost are fp32 themselves
    assert worst("fp64") > 0.1
    assert worst("fp32") > 0.1


def test_ExactSums_AreTheFractionsSums():
    vectors = [*hostile("swamped", 5, 60), *hostile("wide exponents", 4, 60)]
    expected = [float(sum(fractions.Fraction(float(value)) for value in column)) for column in zip(*vectors)]
    assert summation.exact_sums(vectors).tolist() == expected


def test_TwoSum_KeepsTheWholeSum():
    a, b = hostile("wide exponents", 2)
    total, lost = two_sum(a, b)
    assert np.count_nonzero(lost) > 1000
    for values in zip(a, b, total, lost):
        one, other, rounded, rest = (fractions.Fraction(float(value)) for value in values)
        assert one + other == rounded + rest


@pytest.mark.parametrize("kind", KINDS)
def test_TwoRanks_AllOrdersSegmentsAndBuckets_HaveTheSameBits(kind):
    vectors = hostile(kind, 2)
    expected = summation.reduced("ring", vectors)
    assert all(same_bits(summation.reduced(name, vectors), expected) for name in orders.ALGORITHMS)
    assert same_bits(summation.reduced("ring", vectors, segment_bytes=100), expected)
    assert same_bits(summation.bucketed("ring", vectors, 700), expected)


def test_ThreeRanks_OrderBucketsAndSegments_ChangeBits():
    vectors = hostile("wide exponents", 3)
    expected = summation.reduced("ring", vectors)
    for other in (
        summation.reduced("tree", vectors),
        summation.bucketed("ring", vectors, 1000),
        summation.reduced("ring", vectors, segment_bytes=512),
    ):
        assert summation.changed(expected, other) > 0


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_PowerOfTwoRanks_TreeHalvingAndBcube_AreOneOrder(ranks):
    vectors = hostile("wide exponents", ranks)
    expected = summation.reduced("tree", vectors)
    assert same_bits(summation.reduced("halving_doubling", vectors), expected)
    assert same_bits(summation.reduced("bcube", vectors), expected)


def test_Overflow_InOneOrder_IsFiniteInAnother():
    largest = np.finfo(np.float32).max
    vectors = [np.full(6, value, np.float32) for value in (largest, largest, -largest)]
    with np.errstate(over="ignore"):
        ring = summation.reduced("ring", vectors)
    assert np.isinf(ring).any() and np.isfinite(ring).any()
    assert np.isfinite(summation.reduced("ring", vectors, Double)).all()


def of_buckets(parameters, trace_file):
    """Names in each bucket, in the order of handing over: consecutive pieces of the parameters, last registered first;
    within a bucket in the order of registration."""
    with open(trace_file) as file:
        spans = [event for event in json.load(file)["traceEvents"] if event["name"] == "gloo:all_reduce"]
    sizes = {span["args"]["bucket"]: span["args"]["bytes"] for span in spans if span["pid"] == 0}
    left = list(parameters)
    for bucket in range(len(sizes)):
        names, held = [], 0
        while held < sizes[bucket]:
            names.insert(0, left.pop())
            held += parameters[names[0]].nbytes
        assert held == sizes[bucket]
        yield names
    assert not left


def registration_order(names):
    layer = [
        "ln_1.weight",
        "ln_1.bias",
        "attn.c_attn.weight",
        "attn.c_attn.bias",
        "attn.c_proj.weight",
        "attn.c_proj.bias",
        "ln_2.weight",
        "ln_2.bias",
        "mlp.c_fc.weight",
        "mlp.c_fc.bias",
        "mlp.c_proj.weight",
        "mlp.c_proj.bias",
    ]
    known = [
        "wte.weight",
        "wpe.weight",
        *(f"h.{i}.{name}" for i in range(2) for name in layer),
        "ln_f.weight",
        "ln_f.bias",
    ]
    assert sorted(known) == sorted(names)
    return known


@pytest.mark.skipif(not DDP_TRAIN.exists(), reason=f"{DDP_TRAIN} is not built")
@pytest.mark.parametrize("ranks, flags", [(3, ()), (3, ("--segment-bytes", "512")), (4, ()), (2, ())])
def test_Gradients_OfRealDdp_AreTheModelsRingBitForBit(tmp_path, monkeypatch, ranks, flags):
    """Each rank's gradient alone, divided by the number of ranks and reduced bucket by bucket in the model's order,
    equals the result of c10d's reducer on every rank."""
    torch_data = pytest.importorskip("torch.utils.data")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = (ROOT / "trainer/data/sample.txt").read_bytes()
    summation.run_tiny(DDP_TRAIN, "--save-model", tmp_path / "w")
    ddp = summation.train_tiny(
        DDP_TRAIN,
        tmp_path,
        "--spawn",
        str(ranks),
        "--batch-size",
        "1",
        "--samples",
        str(ranks),
        "--bucket-cap-mb",
        "0.02",
        "--first-bucket-mb",
        "0.005",
        "--verify-ranks",
        "--trace",
        tmp_path / "trace.json",
        *flags,
    )
    alone = []
    for rank in range(ranks):
        (sample,) = torch_data.DistributedSampler(range(ranks), num_replicas=ranks, rank=rank, seed=42)
        (tmp_path / "text").write_bytes(text[sample * 16 : sample * 16 + 17])
        alone.append(
            summation.train_tiny(
                DDP_TRAIN, tmp_path, "--no-ddp", "--batch-size", "1", "--samples", "1", "--data", tmp_path / "text"
            )
        )
    parameters = {name: ddp[name] for name in registration_order(ddp)}
    buckets = list(of_buckets(parameters, tmp_path / "trace.json"))
    assert len(buckets) > 3
    options = {"segment_bytes": int(flags[1])} if flags else {}
    orders_differ = False
    for names in buckets:
        vectors = [np.concatenate([one[name] for name in names]) * np.float32(1 / ranks) for one in alone]
        expected = summation.reduced("ring", vectors, **options)
        assert same_bits(np.concatenate([ddp[name] for name in names]), expected), names
        orders_differ |= not same_bits(summation.reduced("ring_chunked", vectors), expected)
    assert orders_differ == (ranks > 2), "the gradients do not tell orders apart"


def test_Study_Run_PrintsEveryTable(capsys):
    assert command.main(["summation", "--ranks", "3", "--elements", "300"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| ring | fp32 | 2 |") == 1
    assert all(f"| {name} | compensated |" in printed for name in orders.ALGORITHMS)
    assert "| bcube | cancelling | 0.0 % |" in printed  # of two ranks


def test_Plain_IsFp32_WhateverItIsGiven():
    assert Plain.of([1.0, 2.0**-30]).rounded().dtype == np.float32
