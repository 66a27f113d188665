"""scripts/study --continue: kept results, repeated measurements, and refusals."""

import fcntl
import json
import os
import shutil
import subprocess
import time

import pytest
from conftest import ROOT, right_to_namespaces
from gloo_bypass_tools.report import machine
from gloo_bypass_tools.report.command import shown
from gloo_bypass_tools.study import command, continuation, rendering

BUILD = os.environ.get("STUDY_BUILD")

ARGUMENTS = ("edge-latency", "--variants", "base", "--segments", "default", "--losses", "0", "--repeats", 2)


@pytest.fixture(scope="module")
def undrawn(tmp_path_factory):
    """A whole study's folder, without its page. Made by the first test that needs it."""
    return tmp_path_factory.mktemp("undrawn") / "results"


@pytest.fixture
def cut_off(study, doubled, monkeypatch, undrawn):
    """A study's folder without its `missing` last runs, as an interruption leaves it: half a run, too."""

    def make(missing, **changes):
        results = doubled()
        if not undrawn.exists():
            with monkeypatch.context() as patches:
                patches.setattr(rendering, "render", lambda folder: ())
                patches.setattr(rendering, "show", lambda *_: None)
                study(*ARGUMENTS, "--output", undrawn)
        shutil.copytree(undrawn, results)
        record = json.loads((results / "results.json").read_text())
        for run in record["runs"][len(record["runs"]) - missing :]:
            (results / run["folder"] / "half").write_text("written")
        record["runs"] = record["runs"][: len(record["runs"]) - missing]
        (results / "results.json").write_text(json.dumps(record | {"state": "interrupted"} | changes))
        return results

    return make


def about(record):
    return [(run["repeat"], run["cell"]["transport"]) for run in record["runs"]]


@pytest.mark.parametrize("missing", [1, 3])
def test_continue_RunsAreMissing_OnlyTheseAreMade(study, cut_off, missing):
    results = cut_off(missing)
    before = json.loads((results / "results.json").read_text())
    kept = {run["folder"]: (results / run["folder"]).stat().st_ino for run in before["runs"]}
    status, output, _ = study("--continue", results)
    record = json.loads((results / "results.json").read_text())
    assert status == 0 and f"2 cells, 2 times, {missing} of these 4 runs missing: about 1 min" in output
    assert about(record) == [(repeat, transport) for repeat in (1, 2) for transport in ("TCP", "DPDK")]
    assert record["state"] == "complete" and len(record["continued"]) == 1
    assert {folder: (results / folder).stat().st_ino for folder in kept} == kept, "was measured again"
    assert not list(results.glob("raw/*/half"))
    assert sorted(stage["log"] for stage in record["stages"]) == sorted(
        f"logs/{slug}.log"
        for slug in ("1-base-default-TCP", "1-base-default-DPDK", "2-base-default-TCP", "2-base-default-DPDK")
    )
    assert record["repeat_command"] == before["repeat_command"]
    assert record["machine"]["load_before"] >= before["machine"]["load_before"]
    assert "gone on with" in (results / "index.html").read_text()


def test_continue_RunsFailed_AreTriedAgain(study, doubled):
    results = doubled({"DPDK": "fail"})
    assert study(*ARGUMENTS, "--output", results)[0] == 1
    os.environ["FAULTS"] = "{}"
    status, output, _ = study("--continue", results)
    record = json.loads((results / "results.json").read_text())
    assert status == 0 and "2 of these 4 runs missing" in output
    assert record["failures"] == [] and len(record["runs"]) == 4 and all(one["succeeded"] for one in record["stages"])


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_continue_NothingMissing_ChangesNothing(study, doubled):
    results = doubled()
    study(*ARGUMENTS, "--output", results)
    before = contents(results)
    status, output, _ = study("--continue", results)
    assert (status, output.splitlines()[-1]) == (0, f"nothing is missing in {shown(results)}")
    assert contents(results) == before


@pytest.mark.parametrize("state", ["running", "complete"])
def test_continue_CutOffBeforeThePage_ItIsDrawn(study, cut_off, state):
    """`running`: interrupted before the last entry in results.json, too. An earlier page shows fewer runs."""
    results = cut_off(0, state=state)
    (results / "index.html").write_text("of fewer runs")
    os.utime(results / "index.html", ns=(0, 0))
    status, output, _ = study("--continue", results)
    record = json.loads((results / "results.json").read_text())
    assert status == 0 and f"nothing is missing in {shown(results)} but its page, which is drawn" in output
    assert record["state"] == "complete" and about(record) == [
        (repeat, transport) for repeat in (1, 2) for transport in ("TCP", "DPDK")
    ]
    assert "published" in (results / "index.html").read_text() and (results / "summary.csv").exists()


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda record: record["machine"].update(commit="0123abc"), "its runs are of commit '0123abc', and here is"),
        (lambda record: record["machine"].update(cores=99), "its runs are of number of cores 99"),
        (lambda record: record.update(schema="x"), "schema 'x', not 'gloo-bypass/study/1'"),
        (lambda record: record["plan"].update(bytes=4096), "its command and its plan do not agree"),
        (lambda record: record.update(repeat_command="rm -r /"), "repeat_command is no command of scripts/study"),
        (lambda record: record.update(repeat_command="scripts/study '"), "repeat_command: No closing quotation"),
        (lambda record: record["runs"].append(record["runs"][0]), "runs[2] is none of this study's, or there twice"),
        (lambda record: record["runs"][0]["cell"].update(variant="400ms"), "runs[0] is none of this study's"),
        (lambda record: record["runs"].insert(1, 7), "runs[1] is none of this study's"),
        (
            lambda record: record["runs"][1].update(folder="raw/gone"),
            "'folder' is 'raw/gone', not raw/1-base-default-DPDK",
        ),
        (lambda record: record["runs"][1].update(folder="../.."), "'folder' is '../..', not raw/"),
        (lambda record: record["runs"][0].update(times_s=[0.1, 0.1]), "runs[0]: 'times_s' is not what the files in"),
        (lambda record: record["machine"].update(kernel="2.4"), "its runs are of kernel '2.4'"),
        (lambda record: record["programs"].update(fabric="0123"), "the build is not what its runs had: fabric: go on"),
        (
            lambda record: record["files"].update({"--data": "0"}),
            "the text, vocabulary or weights is not what its runs had: --data",
        ),
        (
            lambda record: record["machine"]["packages"].update({"libgloo-dev": "0"}),
            "with other versions of libgloo-dev: measure all of it anew",
        ),
        (lambda record: record["environment"].update(GLOO_X="1"), "the environment is not what its runs had: GLOO_X"),
        (
            lambda record: record["kernel_tcp"].update(tcp_rmem="1"),
            "the kernel's TCP is not what its runs had: tcp_rmem",
        ),
        (lambda record: record["stages"].append(7), "stages[4]: no 'log'"),
        (lambda record: record.pop("stages"), "stages"),
    ],
)
def test_continue_AnotherOrDamagedFolder_IsRefusedAndLeftAlone(study, cut_off, change, said):
    results = cut_off(2)
    record = json.loads((results / "results.json").read_text())
    change(record)
    (results / "results.json").write_text(json.dumps(record))
    before = (results / "results.json").read_bytes()
    status, output, errors = study("--continue", results)
    assert status == 2 and output == "" and said in errors and errors.count("\n") == 1, errors
    assert (results / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    "name, damage, said",
    [
        ("1-base-default-TCP/probe-2.json", lambda path: os.truncate(path, 40), "probe-2.json:1: not JSON"),
        ("1-base-default-TCP/fabric.json", lambda path: path.unlink(), "fabric.json: cannot be read"),
        (
            "1-base-default-TCP/fabric.json",
            lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {"late_us": None})),
            "1-base-default-TCP: one of its files is damaged",
        ),
        ("1-base-default-TCP.json", lambda path: os.truncate(path, 0), "1-base-default-TCP.json:1: not JSON"),
        ("1-base-default-DPDK/stats-3.json", lambda path: path.write_bytes(bytes(100)), "stats-3.json"),
        ("1-base-default-DPDK", shutil.rmtree, "1-base-default-DPDK is missing: move it back"),
    ],
)
def test_continue_DamagedFilesOfARun_AreNotTrusted(study, cut_off, name, damage, said):
    results = cut_off(2)
    damage(results / "raw" / name)
    before = contents(results)
    status, output, errors = study("--continue", results)
    assert status == 2 and output == "" and said in errors and errors.count("\n") == 1, errors
    assert contents(results) == before


def test_draw_DamagedRecord_IsNamed(study, cut_off):
    results = cut_off(1)
    record = json.loads((results / "results.json").read_text())
    (results / "results.json").write_text(json.dumps(record | {"runs": [{}]}))
    status, _, errors = study("draw", results)
    assert status == 2 and "results.json: damaged, it lacks or garbles 'cell'" in errors and errors.count("\n") == 1


def test_continue_NoResults_IsRefused(study, cut_off, tmp_path):
    assert "/nowhere/results.json: cannot be read" in study("--continue", "/nowhere")[2]
    results = cut_off(1)
    (results / "results.json").write_text('{"schema": ')
    status, _, errors = study("--continue", results)
    assert status == 2 and "results.json:1: not JSON" in errors
    assert "goes without a study's name" in study("--continue", results, "edge-latency")[2]


def test_continue_WhileItIsMeasured_IsRefused(study, cut_off):
    results = cut_off(1)
    descriptor = os.open(results, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    status, _, errors = study("--continue", results)
    os.close(descriptor)
    assert status == 2 and "is being measured by another process" in errors
    assert study("--continue", results)[0] == 0


def test_continue_GuestCutOff_ItsRunsAreKept(study, doubled):
    """A guest that ends in the middle leaves its results; the next one continues from there."""
    results = doubled({"RDMA": "fail"})
    arguments = (
        "edge-latency",
        "--variants",
        "base",
        "--segments",
        "default",
        "--losses",
        "0",
        "--repeats",
        1,
        "--transports",
        "TCP,TCP-netem,RDMA",
        "--output",
        results,
    )
    assert study(*arguments)[0] == 1
    os.environ["FAULTS"] = "{}"
    status, output, _ = study("--continue", results)
    record = json.loads((results / "results.json").read_text())
    assert status == 0 and "1 of these 3 runs missing" in output, output
    assert [run["cell"]["transport"] for run in record["runs"]] == ["TCP", "TCP-netem", "RDMA"]
    assert [run["folder"].split("/")[0] for run in record["runs"]] == ["raw", "guest", "guest"]
    assert record["guest"]["machine"]["cores"] and study("--continue", results)[1].startswith("nothing is missing")
    # The guest's part is whole; one of this machine is not.
    record["runs"] = record["runs"][1:]
    (results / "results.json").write_text(json.dumps(record))
    assert study("--continue", results)[0] == 0
    assert json.loads((results / "results.json").read_text())["guest"] == record["guest"]
    shutil.rmtree(results / "guest/raw")
    assert "is missing" in study("--continue", results)[2]


def test_machine_HasWhatFoldersAreComparedBy():
    assert set(continuation.ALIKE) <= set(machine.describe(command.ROOT))


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(not BUILD, reason="no build folder given in STUDY_BUILD")
def test_study_killedAndContinuedAtOnce_IsAsAWholeOne(tmp_path):
    """With the programs themselves. A killed study leaves nothing running that would measure beside the next."""
    if problem := right_to_namespaces():
        pytest.skip(problem)
    whole = tmp_path / "whole"
    words = [
        ROOT / "scripts" / "study",
        "edge-latency",
        "--ranks",
        "2",
        "--bytes",
        "64K",
        "--variants",
        "base",
        "--segments",
        "default",
        "--losses",
        "0",
        "--repeats",
        "1",
        "--rounds",
        "2",
        "--build",
        BUILD,
        "--output",
    ]
    subprocess.run([*words, whole], capture_output=True, timeout=100, check=True)
    for attempt in range(3):  # the second run may end before this process gets a core
        cut = tmp_path / f"cut-{attempt}"
        with subprocess.Popen([*words, cut], stdout=subprocess.DEVNULL) as process:
            until, second = time.monotonic() + 60, cut / "raw/1-base-default-DPDK"
            while not second.exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            process.kill()
        if len(about(json.loads((cut / "results.json").read_text()))) == 1:
            break
    assert about(json.loads((cut / "results.json").read_text())) == [(1, "TCP")]
    done = subprocess.run([words[0], "--continue", cut], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and "1 of these 2 runs missing" in done.stdout, done.stdout + done.stderr
    record = json.loads((cut / "results.json").read_text())
    assert about(record) == [(1, "TCP"), (1, "DPDK")] and record["state"] == "complete"
    assert files_of(cut) == files_of(whole)
    assert record["runs"][0].keys() == record["runs"][1].keys()
