"""scripts/study failures: its counting, what it stores and draws, its input, and a rank that is really killed."""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
from dataclasses import replace

import pytest
from conftest import MACHINE, ROOT
from gloo_bypass_tools.report import machine, marked_tables
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study.printed import failure_runs as stored
from gloo_bypass_tools.study.printed import failures

PAGE = ROOT / "docs/studies/failures"
SCRIPT = (ROOT / "scripts/study", "failures")
DDP_TRAIN = pathlib.Path(os.environ.get("DDP_TRAIN", ROOT / "build/trainer/ddp_train"))


def line(generation, step, samples, epoch=0):
    return {"generation": generation, "step": step, "epoch": epoch, "samples": samples}


def test_Uses_StepsDoneAgain_CountOnce():
    log = [line(0, 1, [1, 2]), line(0, 2, [3]), line(0, 2, [4]), line(1, 2, [3, 4])]
    assert failures.uses_of(log) == {(0, 1): 1, (0, 2): 1, (0, 3): 1, (0, 4): 1}


def test_Row_LostAndRepeatedSamples_AreCounted():
    log = [line(0, 1, [1, 2]), line(0, 2, [2, 3]), line(0, 3, [4])]
    records = [
        {"event": "step", "step": 1, "t_step_s": 0.25},
        {"event": "step", "step": 2, "t_step_s": 0.75},
        {
            "event": "restart",
            "generation": 1,
            "world_size": 2,
            "end_seconds": 1.0,
            "start_seconds": 2.0,
            "repeated_steps": 1,
            "step": 1,
        },
        {"event": "step", "generation": 1, "step": 2, "t_step_s": 0.5},
    ]
    row = failures.row_of("TCP", records, log)
    assert row.restarts == (stored.Restart(2, 1.0, 2.0, 1, 0.5),) and row.restarts[0].lost_s == 3.5
    assert (row.step_s, row.samples, row.lost, row.twice) == (0.5, 2, 1, 1)


def run_of(*rows):
    when = datetime.date(2026, 11, 29)
    return stored.StoredRun("f" * 40, when, machine.stored(MACHINE), 0.1, 0.02, 4, 2, 30, 10, "1@12", (), rows)


def row(transport="TCP", start_s=2.0, step_s=0.5):
    return stored.Row(transport, 32, step_s, 0, 0, (stored.Restart(3, 1.0, start_s, 1, 0.5),))


def test_Table_HasSpreadsAndWhatItCostsInSteps():
    one = stored.table(run_of(row())).splitlines()[-1]
    assert one == "| TCP | 3 | 1.00 s | 2.00 s | 1 in 0.50 s | 3.50 s | 7.0 |"
    several = stored.table(run_of(row(), row(start_s=4.0, step_s=1.0), row("DPDK"))).splitlines()[2:]
    assert (
        "| 3.00 s (2.00 to 4.00) | 1 in 0.50 s (0.50 to 0.50) | 4.50 s (3.50 to 5.50) | 6.2 (5.5 to 7.0) |"
        in several[0]
    )
    assert len(several) == 2 and several[1].startswith("| DPDK | 3 |")


def test_Samples_OfAllRuns_AreAddedUp():
    text = stored.samples_line(run_of(row(), replace(row(), lost=2, twice=1)))
    assert text.startswith("- TCP: 2 runs of 30 steps of 32 samples, a step 0.50 s (0.50 to 0.50);")
    assert text.endswith("samples lost 2, used twice in an epoch 1.")


def test_StoredRun_IsReadBack(tmp_path):
    (tmp_path / "a-run.json").write_text(stored.text_of(run_of(row(), row("UDP"))))
    assert stored.read(tmp_path / "a-run.json") == run_of(row(), row("UDP"))


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda record: record.update(kill="1@12,2@20"), "another number of restarts"),
        (lambda record: record.update(rows=[]), "'rows' is empty"),
        (lambda record: record["rows"][0].update(step_s=0), "rows[0]: 'step_s' is 0, not above 0"),
        (lambda record: record["rows"][0]["restarts"][0].pop("ranks"), "restarts[0]: no 'ranks'"),
        (lambda record: record.update(colour="red"), "'colour' is unknown"),
    ],
)
def test_StoredRun_Damaged_IsNamed(tmp_path, change, reason):
    change(record := json.loads(stored.text_of(run_of(row()))))
    (tmp_path / "a-run.json").write_text(json.dumps(record))
    with pytest.raises(RecordError) as found:
        stored.read(tmp_path / "a-run.json")
    assert reason in str(found.value) and "a-run.json" in str(found.value)


def test_Page_InTheTree_HasTheTablesOfItsRuns():
    text = (PAGE / marked_tables.PAGE).read_text()
    assert stored.renewed(text, PAGE) == text, "scripts/study failures --draw docs/studies/failures"
    names = {path.name.removesuffix(marked_tables.RUN) for path in PAGE.glob(f"*{marked_tables.RUN}")}
    assert names and names == set(marked_tables.names_of(text))


def test_Estimate_CountsRestartsAndStepsDoneAgain():
    given = argparse.Namespace(flags=["--model", "distilgpt2"], ranks=1, steps=30, checkpoint_every=10)
    given.kill = failures.kills_of("1@12,2@25")
    assert failures.estimate_s(given) == pytest.approx(3 * 6 + (30 + 2 + 5) * 2.4)
    given.flags = ["--model", "gpt2"]
    assert failures.estimate_s(given) is None


def test_Script_ARunThatFails_IsSaidAndTheOthersGoOn(study, monkeypatch, tmp_path):
    def measured(given, transport):
        if transport == "TCP":
            raise RuntimeError("TCP: not done within 600 s (--timeout)")
        return row(transport)

    monkeypatch.setattr(failures, "measured", measured)
    status, output, errors = study(
        "failures", "--kill", "1@12", "--transports", "TCP,UDP", "--json", tmp_path / "x.json"
    )
    assert status == 1 and errors.count("not measured: TCP: not done within 600 s") == 1
    assert "| UDP | 3 |" in output and "| TCP" not in output and len(stored.read(tmp_path / "x.json").rows) == 1


def test_Script_FileThatCannotBeWritten_PrintsTheTableFirst(study, monkeypatch):
    monkeypatch.setattr(failures, "measured", lambda _, transport: row(transport))
    status, output, errors = study("failures", "--kill", "1@12", "--transports", "TCP", "--json", "/dev/full")
    assert status == 1 and "| TCP | 3 |" in output and errors.splitlines()[-1].endswith("No space left on device")


@pytest.mark.parametrize(
    "flags, reason",
    [
        (["--kill", "1"], "no list of RANK@STEP"),
        (["--kill", "1@99"], "the run has 60 steps"),
        (["--", "--steps", "9"], '--steps after "--": it is an option of the study'),
        (["--transports", "PIGEON"], "'PIGEON' is none of"),
        (["--repeats", "0"], "--repeats"),
        (["--json", __file__], "is there already: choose another file"),
        (["--draw", "/no/such"], "/no/such/README.md: No such file"),
    ],
)
def test_Script_BadInput_IsSaid(flags, reason):
    ended = subprocess.run([*SCRIPT, *flags], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and reason in ended.stderr.splitlines()[-1]


@pytest.mark.skipif(not DDP_TRAIN.exists(), reason=f"{DDP_TRAIN} is not built")
def test_Script_RankKilled_NoSampleIsLost(tmp_path):
    words = ["--ranks", "3", "--steps", "60", "--kill", "1@12", "--transports", "TCP", "--repeats", "2"]
    words += ["--build", DDP_TRAIN.parents[1], "--json", tmp_path / "a-run.json"]
    ended = subprocess.run([*SCRIPT, *words], capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("2 runs: about ") and "| TCP | 2 |" in ended.stdout
    assert "2 runs of 60 steps of 24 samples" in ended.stdout and "lost 0, used twice in an epoch 0" in ended.stdout
    assert len(stored.read(tmp_path / "a-run.json").rows) == 2
    (tmp_path / "README.md").write_text("<!-- table: a -->\n<!-- end of table -->\n")
    drawn = subprocess.run([*SCRIPT, "--draw", tmp_path], capture_output=True, text=True, timeout=60)
    assert drawn.returncode == 0 and "| TCP | 2 |" in (tmp_path / "README.md").read_text(), drawn.stderr
