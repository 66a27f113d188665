"""scripts/study --continue: what is kept, what is measured again, and what is refused."""
import fcntl
import json
import os
import shutil

import pytest
from gloo_bypass_tools.report import machine
from gloo_bypass_tools.study import command, rendering

ARGUMENTS = ("edge-latency", "--variants", "base", "--segments", "default", "--losses", "0", "--repeats", 2)


@pytest.fixture
def study(capsys):
    def run(*arguments):
        try:
            status = command.main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = ended.code
        return status, *capsys.readouterr()
    return run


@pytest.fixture
def cut_off(study, doubled, monkeypatch):
    """A study's folder whose `missing` last runs were not made, as an interruption leaves it: half a run, too."""
    def make(missing, faults=None, **changes):
        results = doubled(faults)
        with monkeypatch.context() as patches:
            patches.setattr(rendering, "render", lambda folder: ())
            patches.setattr(rendering, "show", lambda *_: None)
            study(*ARGUMENTS, "--output", results)
        record = json.loads((results / "results.json").read_text())
        for run in record["runs"][len(record["runs"]) - missing:]:
            (results / run["folder"] / "half").write_text("written")
        record["runs"] = record["runs"][:len(record["runs"]) - missing]
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
    assert sorted(stage["log"] for stage in record["stages"]) == sorted(f"logs/{slug}.log" for slug in (
        "1-base-default-TCP", "1-base-default-DPDK", "2-base-default-TCP", "2-base-default-DPDK"))
    assert record["repeat_command"] == before["repeat_command"]
    assert "gone on with" in (results / "index.html").read_text()


def test_continue_RunsFailed_AreTriedAgain(study, doubled):
    results = doubled({"DPDK": "fail"})
    assert study(*ARGUMENTS, "--output", results)[0] == 1
    os.environ["FAULTS"] = "{}"
    status, output, _ = study("--continue", results)
    record = json.loads((results / "results.json").read_text())
    assert status == 0 and "2 of these 4 runs missing" in output
    assert record["failures"] == [] and len(record["runs"]) == 4 and all(one["succeeded"] for one in record["stages"])


def test_continue_NothingMissing_ChangesNothing(study, cut_off):
    results = cut_off(0)
    before = (results / "results.json").read_bytes()
    status, output, _ = study("--continue", results)
    assert (status, output.splitlines()[-1].split(" in ")[0]) == (0, "nothing is missing")
    assert (results / "results.json").read_bytes() == before


@pytest.mark.parametrize("change, said", [
    (lambda record: record["machine"].update(commit="0123abc"), "its runs are of commit '0123abc', and here is"),
    (lambda record: record["machine"].update(cores=99), "its runs are of number of cores 99"),
    (lambda record: record.update(schema="x"), "schema 'x', not 'gloo-bypass/study/1'"),
    (lambda record: record["plan"].update(bytes=4096), "its command and its plan do not agree"),
    (lambda record: record.update(repeat_command="rm -r /"), "repeat_command is no command of scripts/study"),
    (lambda record: record.update(repeat_command="scripts/study '"), "repeat_command: No closing quotation"),
    (lambda record: record["runs"].append(record["runs"][0]), "runs[2] is none of this study's, or there twice"),
    (lambda record: record["runs"][0]["cell"].update(variant="400ms"), "runs[0] is none of this study's"),
    (lambda record: record["runs"].insert(1, 7), "runs[1] is none of this study's"),
    (lambda record: record["runs"][1].update(folder="raw/gone"), "raw/gone is missing: move it back"),
    (lambda record: record.pop("stages"), "stages")])
def test_continue_AnotherOrDamagedFolder_IsRefusedAndLeftAlone(study, cut_off, change, said):
    results = cut_off(2)
    record = json.loads((results / "results.json").read_text())
    change(record)
    (results / "results.json").write_text(json.dumps(record))
    before = (results / "results.json").read_bytes()
    status, output, errors = study("--continue", results)
    assert status == 2 and output == "" and said in errors and errors.count("\n") == 1, errors
    assert (results / "results.json").read_bytes() == before


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
    """A guest that ends in the middle leaves what it had; the next goes on from it."""
    results = doubled({"RDMA": "fail"})
    arguments = ("edge-latency", "--variants", "base", "--segments", "default", "--losses", "0", "--repeats", 1,
                 "--transports", "TCP,TCP-netem,RDMA", "--output", results)
    assert study(*arguments)[0] == 1
    os.environ["FAULTS"] = "{}"
    status, output, _ = study("--continue", results)
    record = json.loads((results / "results.json").read_text())
    assert status == 0 and "1 of these 3 runs missing" in output, output
    assert [run["cell"]["transport"] for run in record["runs"]] == ["TCP", "TCP-netem", "RDMA"]
    assert [run["folder"].split("/")[0] for run in record["runs"]] == ["raw", "guest", "guest"]
    shutil.rmtree(results / "guest/raw")
    assert "is missing" in study("--continue", results)[2]


def test_machine_HasWhatFoldersAreComparedBy():
    assert {"commit", "processor", "cores"} <= set(machine.describe(command.ROOT))
