"""scripts/study throughput: its links, what it stores and draws, and one link of it."""

import datetime
import json
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import MACHINE, ROOT, right_to_namespaces
from gloo_bypass_tools.report import machine
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study.printed import throughput as command
from gloo_bypass_tools.study.throughput import cells, stored, tables

SCRIPT = (ROOT / "scripts/study", "throughput")
BUILD = pathlib.Path(os.environ.get("STUDY_BUILD", ROOT / "build"))
PAGE = ROOT / "docs/studies/throughput"


def run_with(mbit_s, left_out=()):
    told = "0123abc", datetime.date(2026, 11, 28), machine.stored(MACHINE), {"congestion_control": "bbr"}, 0.1, 0.0
    return stored.Run(*told, tuple(left_out), mbit_s)


WHOLE = {
    ("far", "iperf3, 1 stream"): [500.0],
    ("far", "all-reduce, TCP"): [400.0, 420.0, 410.0],
    ("far", "all-reduce, DPDK"): [800.0],
    ("far", "all-reduce, UDP"): [40.0],
}


def test_Link_QueueHoldsWhatIsUnderWay():
    assert cells.LINKS["lossy"].settings == ["rate=1000Mbit/s", "delay=50ms", "queue=12500000B", "loss=1%"]
    assert cells.LINKS["50"].settings == ["rate=50Mbit/s", "delay=0ms", "queue=1048576B"]
    assert all(one.reduced_bytes % 4096 == 0 and one.reduced_bytes >= 2**20 for one in cells.LINKS.values())
    assert cells.LINKS["50"].reduced_bytes == 6250000 // 4096 * 4096


def test_Table_HasMediansAndShares_AndSaysWhatIsLess():
    text = tables.table(run_with(WHOLE))
    assert "| 1000 Mbit/s, 50 ms each way | 500 (50 %) | - | - | 410 (41 %) | 800 (80 %) | **40** (4.0 %) |" in text
    assert text.count("\n") == 2  # the links that were measured


def test_Run_IsReadAsWritten(tmp_path):
    path, run = tmp_path / "run.json", run_with(WHOLE, [("50 Mbit/s", "it failed")])
    path.write_text(stored.text_of(run))
    assert stored.read(path) == run and "Not measured: 50 Mbit/s: it failed." in tables.circumstances(run)


@pytest.mark.parametrize(
    "row, said",
    [
        ({"link": "moon", "what": "iperf3, 1 stream", "mbit_s": [1.0]}, "'link' is 'moon', none of open"),
        ({"link": "far", "what": "ping", "mbit_s": [1.0]}, "'what' is 'ping', none of iperf3"),
        ({"link": "far", "what": "iperf3, 1 stream", "mbit_s": []}, "'mbit_s' is empty"),
        ({"link": "far", "what": "iperf3, 1 stream", "mbit_s": [0]}, "mbit_s: '0' is 0, not above 0"),
        ({"link": "far"}, "no 'what'"),
    ],
)
def test_Run_ThatIsDamaged_IsRefused(tmp_path, row, said):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json.loads(stored.text_of(run_with(WHOLE))) | {"rows": [row]}))
    with pytest.raises(RecordError, match=r"run.json: rows\[0\].*") as refused:
        stored.read(path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--links", "moon"], "'moon' is none of"),
        (["--build", "/no/such"], "run scripts/build first"),
        (["--draw", "/no/such"], "/no/such/run.json"),
    ],
)
def test_BadInput_IsOneLineAndStatusTwo(arguments, reason):
    ended = subprocess.run([*SCRIPT, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and reason in ended.stderr.splitlines()[-1]


@pytest.mark.skipif(
    bool(right_to_namespaces()) or not (BUILD / "tools/fabric/fabric").exists() or not shutil.which("iperf3"),
    reason="no fabric, no iperf3, or no right to make namespaces",
)
def test_OneLink_IsMeasuredByIperfAndOverEachTransport(tmp_path):
    words = [*SCRIPT, "--links", "open", "--seconds", "1", "--build", BUILD]
    words += ["--json", tmp_path / "run.json", "--output", tmp_path / "logs"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stderr
    run = stored.read(tmp_path / "run.json")
    assert [key[1] for key in run.mbit_s] == list(cells.COLUMNS)
    assert all(0 < value <= 10_000 for values in run.mbit_s.values() for value in values)


def test_Page_InTheTree_HasTheTablesOfItsRun():
    text, run = (PAGE / command.PAGE).read_text(), stored.read(PAGE / command.RUN_FILE)
    assert tables.renewed(text, run, PAGE) == text, "scripts/study throughput --draw docs/studies/throughput"
