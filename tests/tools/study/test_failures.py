"""scripts/study failures: its counting, its input, and a rank that is really killed."""

import os
import pathlib
import subprocess

import pytest
from conftest import ROOT
from gloo_bypass_tools.study.printed import failures, markdown

SCRIPT = (ROOT / "scripts/study", "failures")
DDP_TRAIN = pathlib.Path(os.environ.get("DDP_TRAIN", ROOT / "build/trainer/ddp_train"))


def line(generation, step, samples, epoch=0):
    return {"generation": generation, "step": step, "epoch": epoch, "samples": samples}


def test_Uses_StepsDoneAgain_CountOnce():
    log = [line(0, 1, [1, 2]), line(0, 2, [3]), line(0, 2, [4]), line(1, 2, [3, 4])]
    assert failures.uses_of(log) == {(0, 1): 1, (0, 2): 1, (0, 3): 1, (0, 4): 1}


def test_Rows_LostAndRepeatedSamples_AreCounted():
    log = [line(0, 1, [1, 2]), line(0, 2, [2, 3]), line(0, 3, [4])]
    records = [
        {
            "event": "restart",
            "world_size": 2,
            "end_seconds": 1.0,
            "start_seconds": 2.0,
            "repeated_steps": 1,
            "lost_seconds": 3.0,
            "step": 1,
        },
        {"event": "step", "step": 2, "t_step_s": 0.5},
    ]
    lines, audit = failures.rows("TCP", records, log)
    assert markdown.line(lines[0]) == "| TCP | 2 | 1.00 s | 2.00 s | 1 in 0.50 s | 3.50 s |" and len(lines) == 1
    assert audit.endswith("lost 1, used twice in an epoch 1")


@pytest.mark.parametrize(
    "flags, reason",
    [
        (["--kill", "1"], "no list of RANK@STEP"),
        (["--kill", "1@99"], "the run has 60 steps"),
        (["--", "--steps", "9"], '--steps after "--": it is an option of the study'),
        (["--transports", "PIGEON"], "'PIGEON' is none of"),
    ],
)
def test_Script_BadInput_IsSaid(flags, reason):
    ended = subprocess.run([*SCRIPT, *flags], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and reason in ended.stderr.splitlines()[-1]


@pytest.mark.skipif(not DDP_TRAIN.exists(), reason=f"{DDP_TRAIN} is not built")
def test_Script_RankKilled_NoSampleIsLost():
    ended = subprocess.run(
        [
            *SCRIPT,
            "--ranks",
            "3",
            "--steps",
            "60",
            "--kill",
            "1@12",
            "--transports",
            "TCP",
            "--build",
            DDP_TRAIN.parents[1],
        ],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert ended.returncode == 0, ended.stderr
    assert "| TCP | 2 |" in ended.stdout and "60 steps of 24 samples; lost 0, used twice in an epoch 0" in ended.stdout
