"""scripts/fabric-run --transport RDMA: SoftRoCE's frames cross links of netem. Runs inside the guest, and leaves the
guest's own devices alone.

    FABRIC=... ALL_REDUCE_PERF=... ANALYSER=... pytest roce_links_test.py

Bounds on time are one-sided, so that a slow machine passes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
FABRIC_RUN = SCRIPTS / "fabric-run"
FABRIC, PERF, ANALYSER = (os.environ[name] for name in ("FABRIC", "ALL_REDUCE_PERF", "ANALYSER"))
LIMIT_S = 150
sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.model import framing, schedule  # noqa: E402

DELAY_S = 0.1


def words(output, *description):
    return [
        FABRIC_RUN,
        "--fabric",
        FABRIC,
        "--where",
        "host",
        "--transport",
        "RDMA",
        "--output",
        output,
        "--timeout",
        "120",
        *description,
    ]


def said(*command):
    return subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE, timeout=60).stdout


def network_state():
    return (
        said("ip", "rule"),
        [line.split()[:2] for line in said("ip", "-br", "link").splitlines()],
        sorted(os.listdir("/sys/class/infiniband")),
    )


def test_FabricRun_RdmaOverAFarEdge_TakesItsDelayAndIsCapturedAndLeavesNothing(tmp_path):
    before, output, report = network_state(), tmp_path / "run", tmp_path / "perf.json"
    edge = f"from=r1,to=r0,delay={DELAY_S:g}s"
    done = subprocess.run(
        [
            *words(output, "--ranks", "2", "--edge", edge, "--capture"),
            "--",
            PERF,
            "--transports",
            "{transport}",
            "-b",
            "4",
            "-e",
            "4",
            "-n",
            "1",
            "-w",
            "1",
            "--rounds",
            "2",
            "--json",
            report,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(report.read_text())["results"][0]["transports"][0]
    assert result["transport"] == "RDMA" and result["wrong"] == 0
    # The element goes once round the ring and back, so once over this edge at the least.
    assert all(time_us >= 1e6 * DELAY_S for time_us in result["round_slowest_us"])
    counters = json.loads((output / "fabric.json").read_text())
    edges = {(one["from"], one["to"]): one for one in counters["edges"]}
    assert edges["r1", "r0"]["delivered"] > 0 and edges["r0", "r1"]["delivered"] > 0
    assert [device["host"] for device in counters["devices"]] == ["r0", "r1"] and counters["devices"][1][
        "sent_pkts"
    ] > 0
    assert_capture(output, tmp_path / "figures.json", edges)
    assert network_state() == before


def assert_capture(output, figures, edges):
    said(ANALYSER, output / "capture.pcapng", "--json", figures)
    capture = json.loads(figures.read_text())["captures"][0]
    assert capture["bytes_by_kind"]["roce_payload"] > 0 and capture["backwards_frames"] == 0
    directions = {(one["from"], one["to"]): one["frames"] for one in capture["matrix"]["before"]["directions"]}
    assert set(directions) == {("10.77.0.3", "10.77.0.2"), ("10.77.0.2", "10.77.0.3")}
    # Each frame once, as it enters.
    assert (
        directions["10.77.0.3", "10.77.0.2"] <= edges["r1", "r0"]["offered"]
        and directions["10.77.0.2", "10.77.0.3"] <= edges["r0", "r1"]["offered"]
    )


def test_Study_PartOfTheGuest_MeasuresOverRdmaAndLeavesNothing(tmp_path):
    before, folder = network_state(), tmp_path / "guest"
    for name in ("raw", "logs"):
        (folder / name).mkdir(parents=True)
    plan = {
        "study": "edge-latency",
        "scale": "small",
        "transports": ["TCP", "RDMA"],
        "guest": ["RDMA"],
        "variants": [f"{1000 * DELAY_S:g}ms"],
        "segments": ["default"],
        "repeats": 1,
        "ranks": 2,
        "bytes": 65536,
        "rounds": 1,
        "warm_up": 0,
    }
    programs = {
        "fabric_run": FABRIC_RUN,
        "fabric": FABRIC,
        "all_reduce_perf": PERF,
        "python": "/usr/bin/python3",
        "probe": ROOT / "tools" / "study" / "rank_probe.py",
    }
    (folder / "order.json").write_text(
        json.dumps(
            {
                "schema": "gloo-bypass/study-order/1",
                "study": "edge-latency",
                "plan": plan,
                "programs": {name: str(path) for name, path in programs.items()},
            }
        )
    )
    done = subprocess.run(
        [SCRIPTS / "study", "in-guest", folder],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((folder / "results.json").read_text())
    assert record["state"] == "complete", record["failures"]
    (run,) = record["runs"]
    # The rank behind the slow edge cannot end before its own half has crossed it.
    assert run["cell"]["transport"] == "RDMA" and run["times_s"][0] >= DELAY_S and len(run["ranks"]) == 2
    assert run["fabric"]["netem"] and run["bypass"]["packets_sent"] > 0
    assert network_state() == before


# Rank 0 marks what it runs as a step of training.
MARKED = """mark() {
  [ "$RANK" = 0 ] || return 0
  "$PYTHON" -S -c 'import socket, sys
marker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
marker.bind(("", 40001))
marker.sendto(b"gloo-bypass step 1 %s\\n" % sys.argv[2].encode(), (sys.argv[1], 9999))' "$1" "$2"
}
markers=$1
shift
mark "$markers" first && "$@" && mark "$markers" last"""
EVENT_BYTES = 1 << 20


def test_FabricRun_RdmaWithStepMarkers_BytesBetweenThemAreTheRingsAndItsHeaders(tmp_path):
    output, figures = tmp_path / "run", tmp_path / "figures.json"
    # Nothing is sent again because a rank waited for a processor: 17 s.
    settings = ["--env", "GLOO_BYPASS_RDMA_TIMEOUT=22", "--env", f"PYTHON={sys.executable}"]
    perf = [
        PERF,
        "--transports",
        "{transport}",
        "-b",
        str(EVENT_BYTES),
        "-e",
        str(EVENT_BYTES),
        "-n",
        "1",
        "-w",
        "0",
        "-c",
        "0",
    ]
    done = subprocess.run(
        [*words(output, "--ranks", "2", "--capture", *settings), "--", "sh", "-c", MARKED, "sh", "{markers}", *perf],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counters = json.loads((output / "fabric.json").read_text())
    assert counters["capture"]["lost"] == 0 and all(one["completer_retry_err"] == 0 for one in counters["devices"])
    said(ANALYSER, output / "capture.pcapng", "--json", figures)
    (step,) = json.loads(figures.read_text())["captures"][0]["steps"]
    assert (step["step"], step["complete"]) == (1, True)
    # One all-reduce; three barriers and the ends of the connections are 0.06 % of it.
    path = next(one for one in framing.paths() if one.name == "RDMA, RoCEv2 1024")
    expected = framing.event_cost(path, 2, schedule.cut(EVENT_BYTES, 2).segments()).total
    assert 2 * EVENT_BYTES < expected and abs(step["bytes"] / expected - 1) < 0.005


def test_FabricRun_RdmaInterrupted_LeavesNothing(tmp_path):
    before = network_state()
    running = subprocess.Popen(
        [*words(tmp_path / "run", "--ranks", "2"), "--", "sleep", "100"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (tmp_path / "run" / "rank-1.log").exists():
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=LIMIT_S)
    finally:
        running.kill()
    assert running.returncode == 128 + signal.SIGINT and "ended by SIGINT" in errors
    assert network_state() == before
