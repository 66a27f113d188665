"""The probe beside a rank: where it counts a rank's bytes, when it samples, and the kernel's text about connections."""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gloo_bypass_tools.study import rank_probe

PROBE = ROOT / "tools" / "study" / "rank_probe.py"
METRICS = """# HELP gloo_bypass_port_sent_bytes_total Bytes
# TYPE gloo_bypass_port_sent_bytes_total counter
gloo_bypass_port_sent_bytes_total{transport="DPDK"} 700
gloo_bypass_port_received_bytes_total{transport="DPDK"} 900
gloo_bypass_wire_sent_bytes_total{transport="DPDK"} 1
gloo_bypass_wire_received_bytes_total{transport="DPDK"} 2
gloo_bypass_srtt_seconds{peer="1"} 0.25
"""
# A rank that writes its counters where the environment says.
RANK = f"""import os
path = os.environ["GLOO_BYPASS_METRICS"].removeprefix("file:")
open(path, "w").write({METRICS!r})
"""


class Waited:
    """A process that exists until it was waited for so many times; the clock advances with these waits and with
    explicit additions."""

    def __init__(self, monkeypatch, times):
        self.pid, self.left, self.now, self.waits = os.getpid(), times, 100.0, []
        monkeypatch.setattr(rank_probe, "time", SimpleNamespace(monotonic=lambda: self.now, time=time.time))

    def wait(self, timeout):
        self.now += timeout
        self.waits.append(self.now)
        self.left -= 1
        if self.left == 0:
            return 0
        raise subprocess.TimeoutExpired("it", timeout)


def asked_of(folder, times, status=0):
    """A program that ends once the probe has queried connections so many times; each query belongs to a sample. With
    its environment."""
    programs = folder / "programs"
    programs.mkdir()
    for name, does in (("ss", 'echo >> "$QUESTIONS"'), ("ip", ":")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "QUESTIONS": str(folder / "questions"),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    program = f"""import os, sys, time
path, end = os.environ["QUESTIONS"], time.monotonic() + 50
while not (os.path.exists(path) and os.path.getsize(path) >= {times}):
    if time.monotonic() > end: sys.exit("nobody asks")
    time.sleep(0.01)
sys.exit({status})"""
    return program, environment


def probed(folder, program, environment, interval="0.05"):
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GLOO_")}
    done = subprocess.run(
        [sys.executable, PROBE, "--output", folder, "--interval", interval, "--", sys.executable, "-c", program],
        env=kept | {"RANK": "1"} | environment,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads((folder / "probe-1.json").read_text())


def test_probe_bypassRank_HasTheBytesThatItsTransportCounts(tmp_path):
    status, record = probed(tmp_path, RANK, {"GLOO_DEVICE_TRANSPORT": "DPDK"})
    assert status == 0
    assert record["traffic"] == {"source": "the transport's own counters", "received_bytes": 900, "sent_bytes": 700}
    assert not list(tmp_path.glob("*.prom"))


def test_probe_sampleOfABypassRank_HasWhatItsTransportHasWrittenByThen(tmp_path):
    traffic = rank_probe.TransportTraffic({}, tmp_path, 1, 1.0)
    probe = rank_probe.Probe("", traffic)
    probe.sample(os.getpid())
    traffic.path.write_text(METRICS)
    probe.sample(os.getpid())
    assert [(sample["received_bytes"], sample["sent_bytes"]) for sample in probe.samples] == [(None, None), (900, 700)]


def test_probe_metricsOfTheUser_AreReadAndKept(tmp_path):
    path = tmp_path / "own-1.prom"
    path.write_text(METRICS)
    _, record = probed(
        tmp_path, "pass", {"GLOO_DEVICE_TRANSPORT": "RDMA", "GLOO_BYPASS_METRICS": f"file:{tmp_path}/own-%r.prom"}
    )
    assert record["traffic"]["sent_bytes"] == 700 and path.exists()


def test_probe_metricsElsewhere_LeaveTheBytesOut(tmp_path):
    elsewhere = {"GLOO_DEVICE_TRANSPORT": "DPDK", "GLOO_BYPASS_METRICS": "http://127.0.0.1:auto"}
    _, record = probed(tmp_path, "pass", elsewhere)
    assert record["traffic"]["sent_bytes"] is None
    assert rank_probe.traffic_of(dict(elsewhere), tmp_path, 1, 1.0).bytes() == (None, None)


def test_probe_rankOverTcp_HasTheInterfacesBytesAndItsStatus(tmp_path):
    program, environment = asked_of(tmp_path, 2, status=7)
    status, record = probed(tmp_path, program, environment | {"GLOO_DEVICE_TRANSPORT": "TCP"})
    assert (status, record["status"], record["rank"]) == (7, 7, 1)
    assert record["traffic"]["source"] == "the kernel's counters of lo"
    assert (
        len(record["samples"]) > 1
        and record["samples"][0]["received_bytes"] >= 0
        and record["samples"][-1]["resident_bytes"] > 0
    )


def test_probe_processThatHasEnded_IsNotSampled():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert rank_probe.process_use(ended.pid) is None and rank_probe.process_use(os.getpid())[1] > 0
    finally:
        ended.wait()


def test_probe_samples_NoneIsAheadOfItsInterval(tmp_path):
    before = time.time()
    _, record = probed(tmp_path, *asked_of(tmp_path, 4))
    assert before <= record["began_unix_s"] <= before + 60
    assert len(record["samples"]) > 3 and all(
        sample["at_s"] >= 0.05 * index - 0.001 for index, sample in enumerate(record["samples"])
    )


@pytest.mark.parametrize("takes, between", [(0.0, 1), (0.3, 1), (2.6, 3)])
def test_probe_samples_AreAtWholeIntervalsHoweverLongOneTakes(monkeypatch, takes, between):
    process = Waited(monkeypatch, 5)
    probe = rank_probe.Probe("", None)
    taken = rank_probe.process_use
    monkeypatch.setattr(
        rank_probe, "process_use", lambda pid: setattr(process, "now", process.now + takes) or taken(pid)
    )
    assert rank_probe.sample_until_ended(probe, process, 1.0) == 0
    assert process.waits == pytest.approx([100.0 + between * count for count in range(1, 6)])
    assert [sample["at_s"] for sample in probe.samples] == pytest.approx(
        [between * count + takes for count in range(5)]
    )


@pytest.mark.parametrize("text, found", [("", {}), ('a 1\nb{x="1"} 2\nb{x="2"} 3\n# a 9\nc 0.5\n', {"a": 1, "b": 5})])
def test_metrics_text_IsSummedOverLabels(text, found):
    assert rank_probe.metrics_of(text) == found


def test_transportTraffic_packetsAlone_CountWhereThereIsNoPort(tmp_path):
    environment = {}
    traffic = rank_probe.TransportTraffic(environment, tmp_path, 3, 1.0)
    assert traffic.bytes() == (None, None)
    traffic.path.write_text("gloo_bypass_wire_sent_bytes_total 5\ngloo_bypass_wire_received_bytes_total 6\n")
    assert traffic.bytes() == (6, 5)
    assert environment == {
        "GLOO_BYPASS_METRICS": f"file:{tmp_path}/metrics-3.prom",
        "GLOO_BYPASS_METRICS_INTERVAL_MS": "250",
    }
