"""scripts/study scaling: the arithmetic, and a run with one rank and two."""

import os
import pathlib
import subprocess

import pytest
from conftest import ROOT
from gloo_bypass_tools.study.printed import scaling

SCRIPT = (ROOT / "scripts/study", "scaling")
DDP_TRAIN = pathlib.Path(os.environ.get("DDP_TRAIN", ROOT / "build/trainer/ddp_train"))


def step(seconds, exposed):
    return {"event": "step", "t_step_s": seconds, "t_ar_exposed_s": exposed, "overlap": 50.0}


def test_Summary_FirstStep_IsLeftOut():
    found = scaling.summary_of([{"event": "start"}, step(9.0, 8.0), step(2.0, 0.5), step(4.0, 1.0), step(2.0, 0.5)])
    assert found == {"t_step_s": 2.0, "computing": 0.75, "overlap": 50.0}
    with pytest.raises(ValueError):
        scaling.summary_of([step(1.0, 0.0)])


@pytest.mark.parametrize(
    "batches, seconds, efficiencies",
    [
        ((8, 8), (2.0, 2.5), (1.0, 0.8)),  # weak: a step of 2 s takes 2.5 s
        ((24, 12), (2.0, 1.25), (1.0, 0.8)),  # strong: half of 2 s would be 1 s
    ],
)
def test_Efficiency_IsAgainstLinear(batches, seconds, efficiencies):
    measured = [
        (ranks, batch, {"t_step_s": time_s, "computing": 1.0, "overlap": 0.0})
        for ranks, batch, time_s in zip((1, 2), batches, seconds)
    ]
    assert [row[4] for row in scaling.rows_of(measured)] == [pytest.approx(one) for one in efficiencies]


@pytest.mark.skipif(not DDP_TRAIN.exists(), reason=f"{DDP_TRAIN} is not built")
def test_Script_OneAndTwoRanks_PrintsBothTables():
    ended = subprocess.run(
        [*SCRIPT, "--trainer", DDP_TRAIN, "--ranks", "1,2", "--steps", "3", "--", "--model", "tiny"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("| 100 % |") >= 2 and "| 2 | 12 |" in ended.stdout and "| 2 | 8 |" in ended.stdout


@pytest.mark.parametrize(
    "flags, status, reason",
    [
        (["--ranks", "1,5"], 2, "cannot be shared by 5 ranks"),
        (["--steps", "1"], 2, "2 at least"),
        (["--ranks", "0"], 2, "--ranks"),
        (["--", "--batch-size", "2"], 2, '--batch-size after "--": --batch and --global-batch set it'),
        (["--", "--spawn=2"], 2, '--spawn after "--": --ranks says how many'),
        (["--trainer", "/no/such"], 1, "/no/such"),
    ],
)
def test_Script_BadInput_IsSaid(flags, status, reason):
    ended = subprocess.run([*SCRIPT, *flags], capture_output=True, text=True, timeout=100)
    assert ended.returncode == status and reason in ended.stderr.splitlines()[-1]
