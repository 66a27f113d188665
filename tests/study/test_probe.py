"""The probe beside a rank: where a rank's bytes are counted, when samples are taken, and the kernel's words about connections."""

import json
import os
import subprocess
import sys
import time

import pytest
from conftest import ROOT
from gloo_bypass_study import rank_probe

PROBE = ROOT / "scripts" / "gloo_bypass_study" / "rank_probe.py"
METRICS = """# HELP gloo_bypass_port_sent_bytes_total Bytes
# TYPE gloo_bypass_port_sent_bytes_total counter
gloo_bypass_port_sent_bytes_total{transport="DPDK"} 700
gloo_bypass_port_received_bytes_total{transport="DPDK"} 900
gloo_bypass_wire_sent_bytes_total{transport="DPDK"} 1
gloo_bypass_wire_received_bytes_total{transport="DPDK"} 2
gloo_bypass_srtt_seconds{peer="1"} 0.25
"""
# A rank that writes its counters where the environment says, once the probe has begun.
RANK = f"""import os, time
path = os.environ["GLOO_BYPASS_METRICS"].removeprefix("file:")
open(path, "w").write({METRICS!r})
time.sleep(0.3)
"""


def probed(folder, program, environment, interval="0.05"):
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GLOO_")}
    done = subprocess.run([sys.executable, PROBE, "--output", folder, "--interval", interval, "--", sys.executable, "-c", program],
                          env=kept | {"RANK": "1"} | environment, timeout=60, check=False)
    return done.returncode, json.loads((folder / "probe-1.json").read_text())


def test_probe_bypassRank_HasTheBytesThatItsTransportCounts(tmp_path):
    status, record = probed(tmp_path, RANK, {"GLOO_DEVICE_TRANSPORT": "DPDK"})
    assert status == 0
    assert record["traffic"] == {"source": "the transport's own counters", "received_bytes": 900, "sent_bytes": 700}
    assert (record["samples"][-1]["received_bytes"], record["samples"][-1]["sent_bytes"]) == (900, 700)
    assert not list(tmp_path.glob("*.prom"))


def test_probe_metricsOfTheUser_AreReadAndKept(tmp_path):
    path = tmp_path / "own-1.prom"
    path.write_text(METRICS)
    _, record = probed(tmp_path, "pass", {"GLOO_DEVICE_TRANSPORT": "RDMA", "GLOO_BYPASS_METRICS": f"file:{tmp_path}/own-%r.prom"})
    assert record["traffic"]["sent_bytes"] == 700 and path.exists()


def test_probe_metricsElsewhere_LeaveTheBytesOut(tmp_path):
    _, record = probed(tmp_path, "pass", {"GLOO_DEVICE_TRANSPORT": "DPDK", "GLOO_BYPASS_METRICS": "http://127.0.0.1:auto"})
    assert record["traffic"]["sent_bytes"] is None and record["samples"][0]["sent_bytes"] is None


def test_probe_rankOverTcp_HasTheInterfacesBytes(tmp_path):
    _, record = probed(tmp_path, "pass", {"GLOO_DEVICE_TRANSPORT": "TCP", "GLOO_SOCKET_IFNAME": "lo"})
    assert record["traffic"]["source"] == "the kernel's counters of lo" and record["samples"][0]["received_bytes"] >= 0


def test_probe_processThatHasEnded_IsNotSampled():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert rank_probe.process_use(ended.pid) is None and rank_probe.process_use(os.getpid())[1] > 0
    finally:
        ended.wait()


def test_probe_samples_AreAtWholeIntervalsOfTheRun(tmp_path):
    before = time.time()
    _, record = probed(tmp_path, "import time; time.sleep(0.5)", {})
    assert before <= record["began_unix_s"] <= before + 60
    times = [sample["at_s"] for sample in record["samples"]]
    # However late each is, none moves those after it: never more of them than intervals have passed.
    assert all(at >= 0.05 * index - 0.001 for index, at in enumerate(times)) and len(times) > 2


@pytest.mark.parametrize("text, found", [("", {}), ("a 1\nb{x=\"1\"} 2\nb{x=\"2\"} 3\n# a 9\nc 0.5\n", {"a": 1, "b": 5})])
def test_metrics_text_IsSummedOverLabels(text, found):
    assert rank_probe.metrics_of(text) == found


def test_transportTraffic_packetsAlone_CountWhereThereIsNoPort(tmp_path):
    environment = {}
    traffic = rank_probe.TransportTraffic(environment, tmp_path, 3, 1.0)
    assert traffic.bytes() == (None, None)
    traffic.path.write_text("gloo_bypass_wire_sent_bytes_total 5\ngloo_bypass_wire_received_bytes_total 6\n")
    assert traffic.bytes() == (6, 5)
    assert environment == {"GLOO_BYPASS_METRICS": f"file:{tmp_path}/metrics-3.prom", "GLOO_BYPASS_METRICS_INTERVAL_MS": "250"}
