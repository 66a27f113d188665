"""scripts/study techniques: the arithmetic of its tables, its input, and two small trainings over emulated links."""

import os
import pathlib
import subprocess

import pytest
from conftest import ROOT
from gloo_bypass_tools.study.commands import model_flags
from gloo_bypass_tools.study.printed import technique_entries as entries
from gloo_bypass_tools.study.printed import techniques

SCRIPT = (ROOT / "scripts/study", "techniques")
BUILD = pathlib.Path(os.environ.get("STUDY_BUILD", ROOT / "build"))


def run_of(losses, seconds=1.0, sent=1000, point="p"):
    return techniques.Run(
        point,
        "open",
        "TCP",
        [
            [{"event": "start"}]
            + [
                {
                    "event": "step",
                    "step": number + 1,
                    "loss_mean": loss,
                    "t_step_s": seconds,
                    "bytes_sent": sent,
                    "t_ar_s": 0.1,
                }
                for number, loss in enumerate(losses)
            ]
        ],
    )


def test_Run_Totals_AreOfAllStepsAndMeansLeaveTheFirstOut():
    run = techniques.Run(
        "p",
        "open",
        "TCP",
        [
            [
                {"event": "step", "step": n + 1, "loss_mean": 1.0, "t_step_s": s, "bytes_sent": b, "t_ar_s": 0}
                for n, (s, b) in enumerate([(9, 900), (1, 100), (1, 0), (3, 100), (1, 0)])
            ]
        ],
    )
    assert run.seconds[-1] == 15 and run.bytes[-1] == 1100
    assert run.mean_seconds() == 1.5 and run.mean_bytes() == 50


def test_RanksThatDoNotWait_AreCountedWheneverTheirStepsEnd():
    """The slow rank's first step ends after the fast one's fourth."""
    fast, slow = (
        [{"event": "step", "loss_mean": None, "loss": loss, "t_step_s": seconds, "bytes_sent": 100} for loss in losses]
        for losses, seconds in (([9, 7, 5, 3, 1], 1.0), ([8, 6, 4, 2, 0], 4.5))
    )
    run = techniques.Run("p", "slow rank", "TCP", [fast, slow])
    assert [step["loss_mean"] for step in run.steps] == [8, 4, 4.5, 5, 1]
    assert run.seconds == pytest.approx([2, 4, 5, 13.5, 22.5]) and run.bytes[-1] == 500


def test_Entries_HavePointsThatCanBeNamed():
    for study in entries.STUDIES.values():
        assert not any("," in point for point in study.points) and set(study.ranks) <= set(study.points)


def test_CommonLoss_IsThatOfWhoLearntLeast():
    fast, slow = run_of([5, 4, 3, 2, 1, 0, 0]), run_of([6, 6, 5, 5, 4, 4, 4])
    target = techniques.common_loss([fast, slow])
    assert target == pytest.approx(4.4)
    assert fast.reaching(target) == (5, 5.0, 5000) and slow.reaching(target) == (7, 7.0, 7000)


def test_ModelFlags_AreTheTinyModelUnlessFlagsChoose():
    assert model_flags(["--steps", "3"]) == ["--model", "tiny"]
    for flags in (["--model", "gpt2"], ["--model=gpt2"], ["--model-config", "c.json"]):
        assert model_flags(flags) == []
        assert model_flags(flags, entries.EIGHT_BLOCKS) == []
    assert model_flags([], entries.EIGHT_BLOCKS) == list(entries.EIGHT_BLOCKS)


def test_Waiting_IsAShareOfTheSteps_WhereRanksShareAModel():
    def rank(waits):
        return [
            {
                "event": "step",
                "loss_mean": 5,
                "t_step_s": 2.0,
                "t_wait_s": wait,
                "t_barrier_s": 0.1,
                "bytes_sent": 1,
                "t_ar_s": 0,
            }
            for wait in waits
        ]

    run = techniques.Run("p", "open", "TCP", [rank([1.9] + [0.3] * 5), rank([0] + [0.7] * 5)])
    assert run.waiting == pytest.approx(0.3)
    lines = techniques.table([run_of([5] * 6), run]).splitlines()
    assert "| waiting |" in lines[0] and "| 1.00 x | | 5.000" in lines[2] and "| 0.50 x | 30 % | 5.000" in lines[3]
    assert len({line.count("|") for line in lines}) == 1 and run_of([5] * 6).waiting is None


def test_Table_StandsAgainstTheFirstPoint():
    lines = techniques.table([run_of([5] * 6, seconds=2.0), run_of([5] * 6, seconds=0.5, point="q")]).splitlines()
    assert "| 1.00 x |" in lines[2] and "| q | TCP | 1.0 kB | 500 ms | 4.00 x | 5.000 | 5 steps | 2.50 s |" in lines[3]


def test_TooFewSteps_AreRefused():
    with pytest.raises(ValueError):
        run_of([1] * (techniques.WINDOW - 1))


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["compression", "--links", "moon"], "'moon' is none of"),
        (["compression", "--points", "zip"], "'zip' is none of"),
        (["nothing"], "invalid choice"),
        (["sharding", "--steps", "2"], "5 at least"),
    ],
)
def test_BadInput_IsOneLineAndStatusTwo(arguments, reason):
    ended = subprocess.run([*SCRIPT, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and reason in ended.stderr.splitlines()[-1]


@pytest.mark.skipif(not (BUILD / "trainer/ddp_train").exists(), reason="the trainer is not built")
def test_EveryPoint_IsKnownToTheTrainer():
    text = subprocess.run([BUILD / "trainer/ddp_train", "--help"], capture_output=True, text=True, timeout=60).stdout
    flags = {
        flag
        for study in entries.STUDIES.values()
        for point in study.points.values()
        for flag in point.split()
        if flag.startswith("--")
    }
    assert flags and not {flag for flag in flags if flag not in text}


@pytest.mark.skipif(
    not (BUILD / "tools/fabric/fabric").exists() or not (BUILD / "trainer/ddp_train").exists(),
    reason="the fabric or the trainer is not built",
)
def test_TwoPoints_AreMeasuredAndWritten(tmp_path):
    ended = subprocess.run(
        [
            *SCRIPT,
            "compression",
            "--points",
            "none,topk 1 %",
            "--links",
            "open",
            "--steps",
            "6",
            "--build",
            BUILD,
            "--output",
            tmp_path / "out",
            "--",
            "--seq-length",
            "16",
        ],
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [line for line in ended.stdout.splitlines() if line.startswith(("| none", "| topk"))]
    assert [float(row.split("|")[3].split()[0]) > 100 for row in rows] == [True, False]  # kB a step
    assert len((tmp_path / "out/open.csv").read_text().splitlines()) == 13
    assert "svg" in (tmp_path / "out/open.svg").read_text()
