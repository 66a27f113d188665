"""scripts/study: options and refusals, runs that fail, Ctrl-C; and a small study with the programs themselves."""

import json
import os
import signal
import subprocess
import time

import pytest
from conftest import ROOT, RUNS, right_to_namespaces, study_folder
from gloo_bypass_tools.study import command

BUILD = os.environ.get("STUDY_BUILD")


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "required: NAME"),
        (("edge-colour",), "invalid choice: 'edge-colour'"),
        (("edge-latency", "--variants", "base,400ms"), "'400ms' is none of base, 100ms, 200ms, 300ms"),
        (("edge-latency", "--transports", "TCP,TCP"), "names one twice"),
        (("world-size", "--transports", "SCTP"), "'SCTP' is none of TCP, DPDK"),
        (("edge-latency", "--losses", "0,51"), "it must be a number from 0 to 50"),
        (("edge-latency", "--segments", "three"), "'three' is none of"),
        (("edge-latency", "--repeats", "0"), "from 1 to 100"),
        (("edge-latency", "--sysctl", "kernel.x=1"), "is not net.NAME=VALUE"),
        (("edge-latency", "--env", "x"), "is not NAME=VALUE"),
        (("edge-latency", "--bytes", "30"), "--bytes 30: it must be a multiple of 4, and 32"),
        (("edge-latency", "--variants", "base", "--losses", "1"), "nothing to measure"),
        (("edge-latency", "--build", "/nowhere"), "/nowhere/tools/fabric/fabric is missing: run scripts/build first"),
        (("draw", "/nowhere"), "/nowhere/results.json: cannot be read"),
    ],
)
def test_command_badInput_IsOneLineAndStatus2(study, arguments, said):
    status, output, errors = study(*arguments)
    assert status == 2 and output == ""
    assert said in errors.splitlines()[-1]


def test_command_noRight_SaysWhatToDo(study, doubled, monkeypatch):
    results = doubled()

    def refuse():
        raise command.FabricRunError("no right to make network namespaces here (x): run it as root")

    monkeypatch.setattr(command.enclosure, "check_right", refuse)
    status, _, errors = study("edge-latency", "--output", results)
    assert (status, errors) == (2, "study: no right to make network namespaces here (x): run it as root\n")
    assert not results.exists()


def test_command_folderThatExists_IsRefused(study, doubled):
    results = doubled()
    results.mkdir()
    status, _, errors = study("edge-latency", "--output", results)
    assert status == 2 and "exists already: choose another --output" in errors


def test_command_allRunsWell_WritesTablesAndStatus0(study, doubled):
    results = doubled()
    status, output, _ = study(
        "edge-latency", "--variants", "base,300ms", "--repeats", 2, "--output", results, "--losses", "0"
    )
    assert status == 0
    record = json.loads((results / "results.json").read_text())
    order = [(run["repeat"], run["cell"]["transport"]) for run in record["runs"]]
    assert order == [(repeat, transport) for repeat in (1, 2) for _ in range(4) for transport in ("TCP", "DPDK")]
    assert record["state"] == "complete" and (results / "index.html").exists()
    assert "300 ms" in output and "within 1.25 x of what Gloo's schedule allows" in output


@pytest.mark.parametrize(
    "fault, said", [("fail", "DPDK has the reason it failed"), ("wrong", "3 elements of the all-reduce are wrong")]
)
def test_command_oneTransportFails_OthersGoOn(study, doubled, fault, said):
    results = doubled({"DPDK": fault})
    status, output, _ = study(
        "edge-latency",
        "--variants",
        "300ms",
        "--segments",
        "default",
        "--losses",
        "0",
        "--repeats",
        2,
        "--output",
        results,
    )
    record = json.loads((results / "results.json").read_text())
    assert status == 1 and said in output
    assert [run["cell"]["transport"] for run in record["runs"]] == ["TCP", "TCP"] and len(record["failures"]) == 2
    assert said in (results / "index.html").read_text()


def test_command_nothingMeasured_IsStatus1AndNamesTheLogs(study, doubled):
    results = doubled({"DPDK": "fail"})
    status, output, _ = study(
        "edge-latency", "--transports", "DPDK", "--variants", "base", "--repeats", 1, "--output", results
    )
    assert status == 1 and "nothing was measured; logs are in" in output


def test_command_interrupted_KeepsWhatThereIs(study, doubled, monkeypatch, tmp_path):
    results, pid_file = doubled({"DPDK": "hang"}), tmp_path / "pid"
    monkeypatch.setenv("PID_FILE", str(pid_file))
    from gloo_bypass_tools.common import processes

    waited = processes.time.monotonic

    def interrupt_when_it_hangs():
        if pid_file.exists() and pid_file.read_text():
            monkeypatch.setattr(processes.time, "monotonic", waited)
            raise KeyboardInterrupt
        return waited()

    monkeypatch.setattr(processes.time, "monotonic", interrupt_when_it_hangs)
    status, output, _ = study(
        "edge-latency", "--variants", "300ms", "--segments", "default", "--losses", "0", "--output", results
    )
    record = json.loads((results / "results.json").read_text())
    assert status == 130 and "everything started here has been ended" in output
    assert record["state"] == "interrupted" and [run["cell"]["transport"] for run in record["runs"]] == ["TCP"]
    assert (results / "index.html").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_command_draw_ShowsARecordedStudy(study, tmp_path):
    folder = study_folder(tmp_path / "study", runs=RUNS)
    status, output, _ = study("draw", folder.path)
    assert status == 0 and "3.89 s" in output and "75 % are TCP's" in output


def test_command_program_HelpsAndNamesEveryStudy():
    done = subprocess.run(
        [ROOT / "scripts" / "study", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and "edge-latency" in done.stdout and "edge-bandwidth" in done.stdout


@pytest.mark.skipif(not BUILD, reason="no build folder given in STUDY_BUILD")
def test_study_ofTheProgramsThemselves_MeasuresBothTransports(tmp_path):
    if problem := right_to_namespaces():
        pytest.skip(problem)
    results = tmp_path / "results"
    done = subprocess.run(
        [
            ROOT / "scripts" / "study",
            "edge-latency",
            "--ranks",
            "2",
            "--bytes",
            "64K",
            "--variants",
            "100ms",
            "--segments",
            "default",
            "--losses",
            "0",
            "--repeats",
            "1",
            "--rounds",
            "1",
            "--warm-up",
            "0",
            "--build",
            BUILD,
            "--output",
            results,
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((results / "results.json").read_text())
    found = {run["cell"]["transport"]: run for run in record["runs"]}
    # The rank behind the slow edge cannot end before its own half has crossed it, whoever began first. How much slower
    # is the machine's affair.
    assert all(run["times_s"][0] > 0.099 for run in found.values())
    assert found["TCP"]["tcp"]["cwnd_max"] > 0 and found["TCP"]["tcp"]["control"]
    assert found["DPDK"]["bypass"]["packets_sent"] > 0
    assert all(run["fabric"]["slow"]["mean_delay_ms"] > 99 for run in found.values())
    assert (results / "index.html").exists() and (results / "samples.csv").exists()


@pytest.mark.skipif(not BUILD, reason="no build folder given in STUDY_BUILD")
def test_study_interrupted_LeavesNothingRunning(tmp_path):
    if problem := right_to_namespaces():
        pytest.skip(problem)
    results = tmp_path / "results"
    process = subprocess.Popen(
        [
            ROOT / "scripts" / "study",
            "edge-latency",
            "--ranks",
            "2",
            "--bytes",
            "64K",
            "--variants",
            "300ms",
            "--transports",
            "TCP",
            "--rounds",
            "10000",
            "--build",
            BUILD,
            "--output",
            results,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 60
        while not list(results.glob("raw/*/rank-1.log")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0].decode()
    finally:
        process.kill()
    assert process.returncode == 130, output
    lines = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, timeout=20, check=True
    ).stdout.splitlines()
    assert not [line for line in lines if str(results) in line]
