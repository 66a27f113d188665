"""scripts/study utilisation: its cells, the published model, what it stores and draws; and one run of it."""

import datetime
import json
import os
import pathlib
import subprocess
from dataclasses import replace

import pytest
from conftest import MACHINE, ROOT, right_to_namespaces
from gloo_bypass_tools.report import machine
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study.printed import utilisation as command
from gloo_bypass_tools.study.utilisation import cells, model, picture, stored, tables
from gloo_bypass_tools.study.utilisation.cells import Cell

SCRIPT = (ROOT / "scripts/study", "utilisation")
BUILD = pathlib.Path(os.environ.get("STUDY_BUILD", ROOT / "build"))
DDP, DILOCO, STREAMING, OVERLAPPED, FEW_BITS = cells.METHODS
CELL = Cell("near", 100.0, "TCP", DILOCO)


# ---- The arithmetic.


def test_Model_OfSumsThatAreWaitedFor_IsThePublishedFormula():
    method = cells.METHODS[DILOCO]
    exchanged_s = 8 * method.bytes / 100e6  # two ranks: 2 S (1 - 1/2) / W
    assert model.whole_s(method, 100.0, 0.0) == pytest.approx(10 + exchanged_s)
    assert model.whole_s(method, 100.0, 50.0) == pytest.approx(10 + exchanged_s + 0.1)
    assert model.whole_s(method, 100.0, 50.0, ranks=4) == pytest.approx(10 + 1.5 * exchanged_s + 0.3)


def test_Model_OfWhatOverlaps_CountsOnlyWhatIsWaitedFor():
    method = cells.METHODS[OVERLAPPED]  # five sums of 0.2 of all, each may take 5 steps of 0.2 s
    all_s = 8 * method.bytes / 100e6
    late_s = all_s / 5 - cells.OVERLAP * cells.STEP_S
    assert model.whole_s(method, 100.0, 0.0) == pytest.approx(11 + 5 * late_s)
    assert model.whole_s(method, 1000.0, 0.0) == pytest.approx(11)
    ddp = cells.METHODS[DDP]
    assert model.whole_s(ddp, 1e6, 0.0) == pytest.approx(0.6, rel=1e-2)


def test_Utilisation_IsOfATrainingThatGoesOn():
    method = cells.METHODS[OVERLAPPED]
    assert cells.utilisation(method, 11.0) == 1 and cells.utilisation(method, 10.9) == 1
    assert cells.utilisation(method, 11.0 + 10.0) == 0.5  # 50 steps with all fragments, 10 s of waiting
    assert cells.utilisation(cells.METHODS[DDP], 6.0) == pytest.approx(0.1)


def test_Edges_HoldWhatIsUnderWay():
    assert cells.edges(CELL) == ["rate=100Mbit/s", "delay=0ms", "queue=1048576B"]
    assert cells.edges(Cell("lossy", 1000.0, "TCP", DDP))[2:] == ["queue=12500000B", "loss=1%"]


# ---- What is stored.


def run_with(whole_s, left_out=()):
    day, known = datetime.date(2026, 11, 27), machine.stored(MACHINE)
    return stored.Run("0123abc", day, known, {"congestion_control": "bbr"}, {}, 0.1, 0.02, tuple(left_out), whole_s)


def text_of(whole_s, left_out=()):
    return stored.text_of(run_with(whole_s, left_out))


def run_of(tmp_path, whole_s, left_out=()):
    path = tmp_path / "run.json"
    path.write_text(text_of(whole_s, left_out))
    return stored.read(path)


def test_StoredRun_IsWhatWasMeasured(tmp_path):
    run = run_of(tmp_path, {CELL: [20.0, 30.0], replace(CELL, transport="UDP"): [10.0]}, [("a", "b")])
    assert run.utilisations(CELL) == [0.5, 10 / 30] and run.utilisation(CELL) == pytest.approx(0.41667, rel=1e-3)
    assert run.of("transport") == ["TCP", "UDP"] and run.left_out == (("a", "b"),)
    assert run.utilisation(replace(CELL, transport="DPDK")) is None


def test_Columns_StandInOneOrder_WhateverWasMeasuredFirst(tmp_path):
    run = run_of(tmp_path, {replace(CELL, transport="UDP", rate_mbit=300.0): [20.0], CELL: [20.0]})
    assert run.of("transport") == ["TCP", "UDP"] and run.of("rate_mbit") == [100.0, 300.0]


def test_GoingOn_KeepsWhatTheFirstPartSays():
    other = replace(CELL, transport="UDP")
    before = run_with({CELL: [20.0]}, [(other.about, "failed"), ("something else", "failed")])
    now = command.measured(before, 0.5, {CELL: [20.0], other: [21.0]}, {replace(CELL, transport="DPDK"): "why"})
    assert now.others_cores == 0.5 and command.measured(before, None, {}, {}).others_cores == 0.02
    assert [what for what, _ in now.left_out] == ["something else", replace(CELL, transport="DPDK").about]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"rows": []}, "'rows' is empty"),
        ({"more": 1}, "'more' is unknown"),
        ({"rows": [vars(CELL) | {"whole_s": []}]}, "'whole_s' is empty"),
        ({"rows": [vars(CELL) | {"whole_s": [-1]}]}, "not above 0"),
        ({"rows": [vars(CELL) | {"whole_s": [1], "place": "moon"}]}, "'place' is 'moon'"),
        ({"ranks": 3}, "its ranks are not those that this program has"),
        ({"methods": {}}, "its methods are not those"),
        ({"rows": [vars(CELL) | {"whole_s": [1]}] * 2}, "one twice"),
    ],
)
def test_StoredRun_Damaged_IsRefused(tmp_path, changes, said):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json.loads(text_of({CELL: [20.0]})) | changes))
    with pytest.raises(RecordError, match=said):
        stored.read(path)


def test_Table_MarksWhatIsLessThanOverTheFirstTransport(tmp_path):
    run = run_of(tmp_path, {CELL: [20.0, 21.0], replace(CELL, transport="UDP"): [30.0]})
    line = tables.table(run, "near").splitlines()[-1]
    assert [cell.strip() for cell in line.split("|")[3:6]] == ["48 to 50 %", "**33 %**", "43 %"]


def test_Circumstances_HaveTheBuffersOfTheRun():
    kernel_tcp = {"congestion_control": "cubic", "tcp_rmem": "1 2 3000", "tcp_wmem": "4 5 6000"}
    text = tables.circumstances(replace(run_with({CELL: [20.0]}), kernel_tcp=kernel_tcp, load_before=1.6))
    assert ", TCP with cubic, tcp_rmem 1 2 3000, tcp_wmem 4 5 6000, 2026-11-27; load 1.60 before" in text
    assert text.endswith("which is not quiet.")


def test_Draw_RenewsThePageAndThePicture(tmp_path):
    run_of(tmp_path, {CELL: [20.0]})
    page = tmp_path / "README.md"
    page.write_text("<!-- table: near -->\n<!-- end of table -->\n")
    ended = subprocess.run([*SCRIPT, "--draw", tmp_path], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "| 100 Mbit/s | local SGD, DiLoCo | 50 % | 43 % |" in page.read_text()
    first = (tmp_path / command.PICTURE).read_bytes()
    picture.write(stored.read(tmp_path / "run.json"), tmp_path / command.PICTURE)
    assert (tmp_path / command.PICTURE).read_bytes() == first


# ---- The command.


def needs_run(test):
    why = right_to_namespaces() or ("" if (BUILD / command.FABRIC).exists() else "the fabric is not built")
    why = why or ("" if (BUILD / command.PLUGIN).exists() else "the plug-in is not built")
    return pytest.mark.skipif(bool(why), reason=why or "there is all")(test)


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--places", "moon"], "'moon' is none of"),
        (["--methods", "9"], "--methods"),
        (["--rates", "0"], "--rates"),
        (["--rates", "100,100"], "'100,100' names one twice"),
        (["--methods", "1,1"], "names one twice"),
        (["--transports", "RDMA"], "'RDMA' is none of"),
        (["--build", "/no/such"], "run scripts/build first"),
        (["--draw", "/no/such"], "/no/such/run.json"),
    ],
)
def test_BadInput_IsOneLineAndStatusTwo(arguments, reason):
    ended = subprocess.run([*SCRIPT, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and reason in ended.stderr.splitlines()[-1]


@needs_run
def test_OneMethod_IsMeasured_AndWhatIsThereIsNotMeasuredAgain(tmp_path):
    path = tmp_path / "run.json"
    words = [
        *SCRIPT,
        "--places",
        "near",
        "--rates",
        "10000",
        "--methods",
        "1",
        "--transports",
        "DPDK",
        "--build",
        BUILD,
    ]
    words += ["--json", path, "--output"]
    ended = subprocess.run([*words, tmp_path / "one"], capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stderr
    assert "1 runs: " in ended.stdout and "| 10000 Mbit/s | DDP |" in ended.stdout
    run = stored.read(path)
    assert 0 < run.utilisation(Cell("near", 10000.0, "DPDK", DDP)) < 1
    again = subprocess.run([*words, tmp_path / "two"], capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and "0 runs: " in again.stdout and stored.read(path).whole_s == run.whole_s
    record = json.loads(path.read_text()) | {"commit": "0123abc"}
    path.write_text(json.dumps(record))
    other = subprocess.run([*words, tmp_path / "three"], capture_output=True, text=True, timeout=60)
    assert other.returncode == 2 and "it is of another commit: choose another file" in other.stderr
    assert json.loads(path.read_text()) == record


@needs_run
def test_WhatFails_IsSaid_AndItsLogsAreKept(tmp_path):
    (tmp_path / "build/tools/fabric").mkdir(parents=True)
    fabric = tmp_path / "build/tools/fabric/fabric"
    fabric.write_text("#!/bin/sh\nexit 3\n")
    fabric.chmod(0o755)
    words = [*SCRIPT, "--places", "near", "--rates", "100", "--methods", "1", "--transports", "TCP"]
    words += ["--build", tmp_path / "build", "--output", tmp_path / "out", "--json", tmp_path / "run.json"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "not measured: DDP at 100 Mbit/s" in ended.stderr
    assert (tmp_path / "out/1/log").exists() and not (tmp_path / "run.json").exists()


def test_Page_InTheTree_HasTheTablesOfItsRun():
    page = ROOT / "docs/studies/utilisation"
    text, run = (page / command.PAGE).read_text(), stored.read(page / command.RUN_FILE)
    assert tables.renewed(text, run, page) == text, "scripts/study utilisation --draw docs/studies/utilisation"
    assert tables.circumstances(run) in text and all(one in text for one in run.kernel_tcp.values())
