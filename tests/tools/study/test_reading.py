"""Reading a run's files; and refusals."""

import json

import pytest
from conftest import STUDY, plan_for, write_run
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study import rank_probe, reading
from gloo_bypass_tools.study.plan import Cell


def run_of(folder, cell, **changes):
    return reading.run_of(folder, plan_for(**changes), STUDY, cell)


TCP, DPDK = (Cell("300ms", transport, "default", 0.0) for transport in ("TCP", "DPDK"))


def test_run_tcp_HasTimesAndTheWindowOfTheSlowEdge(tmp_path):
    found = run_of(write_run(tmp_path / "run", plan_for(), TCP), TCP)
    assert found["times_s"] == [1.0, 2.0]
    assert (
        found["tcp"]["cwnd_max"],
        found["tcp"]["control"],
        found["tcp"]["retransmitted"],
        found["tcp"]["timeouts"],
    ) == (700, "cubic", 2, 3)
    assert found["bypass"] is None
    assert found["fabric"]["slow"]["lost"] == 2
    assert found["ranks"][1] == {"rank": 1, "cpu_percent": pytest.approx(50.0), "peak_bytes": 5000}


def test_run_dpdk_HasTheCountersOfTheChannel(tmp_path):
    found = run_of(write_run(tmp_path / "run", plan_for(), DPDK), DPDK)
    assert found["tcp"] is None
    assert (found["bypass"]["window_bytes"], found["bypass"]["retransmitted"], found["bypass"]["of_channel"]) == (
        5_000_000,
        7,
        True,
    )
    assert found["bypass"]["repair_frames"] == 6


def test_run_dpdkClosedChannels_HasTheSums(tmp_path):
    folder = write_run(tmp_path / "run", plan_for(), DPDK)
    stats = json.loads((folder / "stats-3.json").read_text())
    (folder / "stats-3.json").write_text(json.dumps(stats | {"open_channels": []}))
    found = run_of(folder, DPDK)["bypass"]
    assert (found["retransmitted"], found["of_channel"], found["window_bytes"], found["repair_frames"]) == (
        9,
        False,
        None,
        None,
    )


RDMA = Cell("300ms", "RDMA", "default", 0.0)


def rdma_run(folder, devices=("r0", "r1", "r2", "r3")):
    """Over links of the kernel: netem's counters, and those of the RDMA devices."""
    folder = write_run(folder, plan_for(), RDMA)
    for stats in folder.glob("stats-*.json"):
        stats.write_text("{}")
    record = json.loads((folder / "fabric.json").read_text())
    del record["late_us"]
    record |= {"links": "netem", "kernel": "6.1.0", "processor": "QEMU TCG CPU"}
    for one in record["edges"]:
        one |= {"offered_bytes": None, "mean_delay_ms": None, "max_queue_bytes": None}
    record["devices"] = [
        {"host": host, "completer_retry_err": number, "sent_pkts": 10 * number} for number, host in enumerate(devices)
    ]
    (folder / "fabric.json").write_text(json.dumps(record))
    return folder


def test_run_rdma_HasTheRetriesOfBothDevicesAtTheSlowEdge(tmp_path):
    found = run_of(rdma_run(tmp_path / "run"), RDMA)
    assert found["times_s"] == [1.0, 2.0] and found["fabric"]["slow"]["lost"] == 2 and found["tcp"] is None
    assert found["fabric"]["netem"] == "Linux 6.1.0 on QEMU TCG CPU"
    assert (found["bypass"]["timeouts"], found["bypass"]["packets_sent"], found["bypass"]["retransmitted"]) == (
        5,
        30,
        None,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"hosts": [{"missed": 3, "no_memory": 1, "queue_full": 2, "nobody_there": 9}, {}]},
        {"missed": 6, "hosts": [{"missed": None}]},
    ],
)
def test_run_lostByTheFabricItself_IsTold(tmp_path, changes):
    folder = write_run(tmp_path / "run", plan_for(), TCP)
    assert run_of(folder, TCP)["lost_beside"] == 0
    record = json.loads((folder / "fabric.json").read_text())
    (folder / "fabric.json").write_text(json.dumps(record | changes))
    assert run_of(folder, TCP)["lost_beside"] == 6


def test_run_rdmaWithoutADevicesCounters_IsRefused(tmp_path):
    with pytest.raises(RecordError, match="no counters of the RDMA devices of r2 and r3"):
        run_of(rdma_run(tmp_path / "run", devices=("r0", "r1", "r3")), RDMA)


@pytest.mark.parametrize("wrong, said", [(5, "5 elements of the all-reduce are wrong"), (None, "nothing was checked")])
def test_run_wrongElements_IsRefused(tmp_path, wrong, said):
    with pytest.raises(RecordError, match=said):
        run_of(write_run(tmp_path / "run", plan_for(), TCP, wrong=wrong), TCP)


@pytest.mark.parametrize("changes", [{"bytes": 4096}, {"ranks": 2}, {"rounds": 3}])
def test_run_ofAnotherPlan_IsRefused(tmp_path, changes):
    folder = write_run(tmp_path / "run", plan_for(), TCP)
    with pytest.raises(RecordError, match="run.json"):
        run_of(folder, TCP, **changes)


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("fabric.json", "{}", "schema None"),
        (
            "fabric.json",
            '{"schema": "gloo-bypass/fabric/1", "seconds": 1, "edges": []}',
            "nothing crossed the edge from r3 to r2",
        ),
        ("probe-2.json", "{}", "not the probe of rank 2"),
        ("probe-0.json", "{", "not JSON"),
        ("fabric.json", None, "cannot be read"),
    ],
)
def test_run_damagedFile_IsNamed(tmp_path, name, text, said):
    folder = write_run(tmp_path / "run", plan_for(), TCP)
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    with pytest.raises(RecordError, match=f"{name}.*{said}"):
        run_of(folder, TCP)


# The output of iproute2 6.1 for a connection: one line, and one that begins with a blank.
SS = """ESTAB 0      0      10.77.0.5:53864   10.77.0.4:45859
\t bbr wscale:11,11 rto:504 rtt:151.528/75.7 ato:40 mss:1448 pmtu:1500 cwnd:21 bytes_sent:33448 bytes_retrans:2896 \
retrans:0/2 rcv_space:14480 snd_wnd:73728
ESTAB 0      0      10.77.0.5:1   10.77.0.2:2
\t cubic cwnd:10 ssthresh:7
"""


def test_connections_ssOutput_IsRead():
    first, second = rank_probe.connections(SS)
    assert first == {
        "local": "10.77.0.5:53864",
        "peer": "10.77.0.4:45859",
        "control": "bbr",
        "rtt_ms": 151.528,
        "mss": 1448,
        "cwnd": 21,
        "bytes_sent": 33448,
        "bytes_retrans": 2896,
        "retrans": 2,
        "rcv_space": 14480,
        "snd_wnd": 73728,
    }
    assert second == {"local": "10.77.0.5:1", "peer": "10.77.0.2:2", "control": "cubic", "cwnd": 10, "ssthresh": 7}


@pytest.mark.parametrize(
    "text", ["", "ESTAB\n", "\t bbr cwnd:1\n", "ESTAB 0 0 a b\nESTAB 0 0 c d\n", "ESTAB 0 0 a b\n\t\n\t cwnd:x\n"]
)
def test_connections_otherText_IsNoFailure(text):
    assert all("cwnd" not in one for one in rank_probe.connections(text))
