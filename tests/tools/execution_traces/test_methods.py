"""Traces of methods of training, made without a run."""

import resource
import subprocess
from dataclasses import replace

import pytest
from conftest import ROOT
from gloo_bypass_tools.execution_traces import methods, plan, trace
from gloo_bypass_tools.execution_traces.methods import DDP, DILOCO, STREAMING, Method

SCRIPT = ROOT / "scripts/execution-trace"
STREAM = Method(STREAMING, 1000, 32, 0.1, 12, inner_steps=10, fragments=5, overlap=2)


def sums_of(one):
    return [node for node in one.nodes if node.kind == trace.COLLECTIVE]


def computed_us(one):
    return sum(node.duration_us for node in one.nodes if node.kind == trace.COMPUTE)


def test_Ddp_SumsAllGradientsEachStep_InBucketsBesideTheBackwardPass():
    one = methods.trace_of(Method(DDP, 20_000_000, 32, 0.3, 2))
    sums = sums_of(one)
    assert len(sums) == 8 and sum(node.bytes for node in sums) == 2 * 80_000_000
    assert max(node.bytes for node in sums) <= methods.BUCKET_BYTES
    assert [node.start_us for node in sums[:4]] == [150_000, 200_000, 250_000, 300_000]
    assert abs(computed_us(one) - 600_000) <= 2
    forward = next(node for node in one.nodes if node.step == 2 and node.kind == trace.COMPUTE)
    assert {node.id for node in sums[:4]} <= set(forward.waits_for)


def test_DiLoCo_SumsEverythingAfterHSteps_AndWaitsForIt():
    one = methods.trace_of(Method(DILOCO, 1000, 16, 0.1, 20, inner_steps=10))
    sums = sums_of(one)
    assert [(node.step, node.bytes) for node in sums] == [(10, 2000), (20, 2000)]
    after = next(node for node in one.nodes if node.step == 11 and node.kind == trace.COMPUTE)
    assert sums[0].id in after.waits_for


def test_Streaming_SumsEachFragmentOnceInHSteps_AndGoesOnMeanwhile():
    one = methods.trace_of(STREAM)
    sums = sums_of(one)
    assert [(node.step, node.bytes) for node in sums] == [(step, 800) for step in (2, 4, 6, 8, 10)]
    waiting = {
        node.step: [other.step for other in sums if other.id in node.waits_for]
        for node in one.nodes
        if node.kind == trace.COMPUTE
    }
    assert waiting[3] == [] and waiting[5] == [2] and waiting[11] == [8]
    plan.make([one] * 3)  # can be played


def test_Fragments_ShareWhatDoesNotDivide():
    one = methods.trace_of(replace(STREAM, parameters=1003, bits=8))
    assert sorted(node.bytes for node in sums_of(one)) == [200, 200, 201, 201, 201]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"name": DDP}, "ddp has neither fragments nor overlap"),
        ({"name": DDP, "fragments": 1, "overlap": 0}, "ddp exchanges all gradients in each step"),
        ({"fragments": 3}, "10 inner steps are no multiple of 3 fragments"),
        ({"overlap": 11}, "may not take 11 steps"),
        ({"steps": 11}, "11 steps are too few: all is exchanged, and has arrived, after 12"),
        ({"parameters": 1}, "too many or too few"),
        ({"parameters": 1 << 50}, "too many or too few"),
        ({"steps": 1_000_000}, "nodes: take fewer steps"),
    ],
)
def test_WhatIsNoTraining_IsRefused(changes, said):
    with pytest.raises(trace.TraceError, match=said):
        methods.trace_of(replace(STREAM, **changes))


def test_Make_WritesATraceThatIsRead(tmp_path):
    words = [SCRIPT, "make", STREAMING, tmp_path / "run", "--parameters", "1e6", "--bits", "4", "--step", "0.01"]
    words += ["--inner-steps", "4", "--fragments", "2", "--overlap", "1", "--steps", "5", "--ranks", "3"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "2 x ALL_REDUCE of 250000 bytes" in ended.stdout
    read = [trace.read(path) for path in trace.files_of(tmp_path / "run")]
    assert len(read) == 3 and sums_of(read[2])[1].step == 4
    refused = subprocess.run([*words[:-1], "0"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "--ranks" in refused.stderr


def test_Make_WithoutRoom_NamesTheFileAndLeavesNone(tmp_path):
    words = [SCRIPT, "make", DILOCO, tmp_path / "run", "--parameters", "1e6", "--step", "0.01", "--steps", "100"]
    limit = (1000, 1000)
    ended = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert ended.returncode == 1 and f"{tmp_path}/run.0.et" in ended.stderr.splitlines()[-1], ended.stderr
    assert list(tmp_path.iterdir()) == []
