"""Makes gloo_bypass_tools.study importable, and what a run leaves behind in the shape that the programs write."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from gloo_bypass_tools.fabric_run import enclosure  # noqa: E402
from gloo_bypass_tools.fabric_run.failures import FabricRunError  # noqa: E402
from gloo_bypass_tools.study import catalogue, command, commands, rank_probe  # noqa: E402
from gloo_bypass_tools.study.plan import Cell, plan_of  # noqa: E402

STUDY = catalogue.STUDIES["edge-latency"]
MACHINE = {
    "processor": "A Processor <script>",
    "cores": 2,
    "memory_gib": 8.0,
    "operating_system": "Debian",
    "kernel": "6.1",
    "virtualisation": "none",
    "load_before": 0.1,
    "commit": "abc",
    "packages": {},
    "date": "2026-01-01 00:00 UTC",
}


def right_to_namespaces():
    """Why this machine cannot have a fabric; empty if it can."""
    try:
        enclosure.check_tools()
        enclosure.check_right()
    except FabricRunError as error:
        return str(error)
    return ""


def plan_for(**changes):
    values = {"variants": ("base", "300ms"), "losses": (0.0, 1.0), "lossy": ("300ms",), "repeats": 1}
    return plan_of(STUDY, "small", **values | changes)


def perf_report(plan, transport, times_s, wrong=0):
    """What all_reduce_perf --json writes."""
    return {
        "schema": "gloo-bypass/all_reduce_perf/1",
        "parameters": {"algorithm": "ring", "iterations": 1, "rounds": len(times_s)},
        "ranks": [{"rank": rank} for rank in range(plan.ranks)],
        "results": [
            {
                "size": plan.bytes,
                "count": plan.bytes // 4,
                "transports": [
                    {"transport": transport, "round_slowest_us": [1e6 * one for one in times_s], "wrong": wrong}
                ],
            }
        ],
    }


def probe(rank, connections=(), counters=None):
    samples = [
        {"at_s": 0.0, "cpu_s": 0.1, "resident_bytes": 1000, "received_bytes": 0, "sent_bytes": 0, "connections": []},
        {
            "at_s": 2.0,
            "cpu_s": 1.1,
            "resident_bytes": 5000,
            "received_bytes": 9,
            "sent_bytes": 9,
            "connections": list(connections),
        },
    ]
    return {
        "schema": rank_probe.SCHEMA,
        "rank": rank,
        "status": 0,
        "seconds": 2.0,
        "tcp": counters or {},
        "samples": samples,
        "samples_left_out": 0,
    }


def edge(start, end, **changes):
    return {
        "from": start,
        "to": end,
        "offered": 100,
        "offered_bytes": 1000,
        "delivered": 98,
        "delivered_bytes": 980,
        "mean_delay_ms": 300.0,
        "max_queue_bytes": 10,
        "lost_randomly": 2,
        "lost_in_burst": 0,
        "lost_in_queue": 0,
        "lost_while_down": 0,
    } | changes


def write_run(folder, plan, cell, times_s=(1.0, 2.0), wrong=0):
    """A run's folder and the benchmark's file beside it, as fabric-run and the ranks leave them."""
    folder.mkdir(parents=True)
    perf = commands.report_beside(folder)
    perf.write_text(json.dumps(perf_report(plan, cell.transport, times_s, wrong)))
    devices = (
        [{"host": f"r{rank}", "completer_retry_err": rank, "sent_pkts": 10 * rank} for rank in range(plan.ranks)]
        if cell.transport == "RDMA"
        else []
    )
    (folder / "fabric.json").write_text(
        json.dumps(
            {
                "schema": "gloo-bypass/fabric/1",
                "seconds": 5.0,
                "late_us": {"p99": 3.0},
                "devices": devices,
                "edges": [edge("r3", "r2"), edge("r0", "r3", lost_randomly=0)],
            }
        )
    )
    next_rank = {
        "local": "10.77.0.5:1",
        "peer": "10.77.0.4:2",
        "control": "cubic",
        "cwnd": 700,
        "mss": 1448,
        "rtt_ms": 300.1,
        "bytes_sent": 10**7,
        "bytes_retrans": 2896,
        "retrans": 2,
    }
    other = next_rank | {"peer": "10.77.0.2:9", "cwnd": 10_000}
    for rank in range(plan.ranks):
        (folder / f"probe-{rank}.json").write_text(
            json.dumps(probe(rank, (other, next_rank), {"TcpExt.TCPTimeouts": 3}))
        )
        (folder / f"stats-{rank}.json").write_text(
            json.dumps(
                {
                    "retransmits": 9,
                    "retransmit_timeouts": 1,
                    "tail_loss_probes": 2,
                    "packets_sent": 50,
                    "open_channels": [
                        {
                            "peer_rank": 2,
                            "congestion_window_bytes": 5_000_000,
                            "smoothed_rtt_us": 300_200.0,
                            "retransmits": 7,
                            "retransmit_timeouts": 0,
                            "tail_loss_probes": 1,
                            "packets_sent": 40,
                            "repair_frames_sent": 6,
                            "wire_bytes_sent": 99,
                        }
                    ],
                }
            )
        )
    return folder


def run_record(variant, transport, segment, times_s, loss=0.0):
    """A run in the format of results.json."""
    sender = (
        {"control": "cubic", "cwnd_max": 700, "mss": 1448, "retransmitted": 2, "timeouts": 0}
        if transport == "TCP"
        else None
    )
    return {
        "cell": Cell(variant, transport, segment, loss).as_record(),
        "repeat": 1,
        "folder": "raw/none",
        "times_s": list(times_s),
        "fabric": {"slow": edge("r3", "r2", lost=2), "edges": [], "late_p99_us": 3.0, "seconds": 5.0},
        "ranks": [{"rank": 0, "cpu_percent": 50.0, "peak_bytes": 5000}],
        "tcp": sender,
        "bypass": None
        if sender
        else {"window_bytes": 5_000_000, "retransmitted": 7, "repair_frames": 6, "timeouts": 0},
    }


def write_training_run(folder, events=3, complete=True, digests=("a" * 64, "a" * 64), step_s=2.0, transport="TCP"):
    """A run's folder of two trainers, as fabric-run, the trainers, the probes and the analyser leave it."""
    folder.mkdir(parents=True)
    step = {
        "event": "step",
        "step": 1,
        "t_step_s": step_s,
        "t_forward_s": 1.0,
        "t_backward_s": 1.0,
        "t_optimizer_s": 0.1,
        "t_barrier_s": 0.0,
        "t_ar_s": 0.5,
        "t_ar_exposed_s": 0.1,
        "tokens_per_s": 1.0,
        "model_flops_per_s": 1.0,
        "loss": 3.0,
        "loss_mean": None,
        "bytes_sent": 1,
        "bytes_received": 1,
    }
    for rank, digest in enumerate(digests):
        steps = [step | {"step": n} for n in range(events)]
        lines = [
            {"event": "start", "transport": transport, "parameters": 1},
            *steps,
            {
                "event": "summary",
                "rank": rank,
                "world_size": 2,
                "sha256": digest,
                "bytes_source": "x",
                "threads": 1,
                "peak_memory_mb": 1.0,
            },
        ]
        (folder / f"metrics-{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / f"probe-{rank}.json").write_text(json.dumps(probe(rank)))
    (folder / "fabric.json").write_text(json.dumps({"seconds": 5.0, "edges": [edge("r0", "r1")]}))
    (folder / "analysis.json").write_text(
        json.dumps(
            {
                "schema": "gloo-bypass/capture/1",
                "captures": [
                    {
                        "bytes": 9,
                        "duration_s": 3.0,
                        "directions": [],
                        "matrix": {
                            phase: {"directions": [{"from": "10.77.0.2", "to": "10.77.0.3", "bytes": 9}]}
                            for phase in ("before", "training", "after")
                        },
                        "bytes_by_kind": {"tcp_payload": 100, "tcp_repeated": 3000},
                        "steps": [
                            {"step": n, "bytes": 5, "duration_s": 1.0, "complete": complete} for n in range(events)
                        ],
                    }
                ],
            }
        )
    )
    return folder


# T_ar by hand: of 16 MiB over 4 ranks, 300 ms: schedule 3.6 s (TCP), 0.92 s (DPDK); floor 0.6 s.
RUNS = [
    run_record("base", "TCP", "default", (0.3, 0.5)),
    run_record("base", "DPDK", "default", (0.2, 0.2)),
    run_record("300ms", "TCP", "default", (4.0, 4.4)),
    run_record("300ms", "DPDK", "default", (1.0, 1.1)),
    run_record("300ms", "TCP", "two", (2.0, 2.0)),
    run_record("300ms", "DPDK", "two", (0.7, 0.8)),
    run_record("300ms", "DPDK", "default", (2.5, 2.5), loss=1.0),
]


def study_folder(path, runs=None, **changes):
    from gloo_bypass_tools.report.results import ResultsFolder

    folder = ResultsFolder.create(path)
    folder.write_json(
        "results.json",
        {
            "schema": "gloo-bypass/study/1",
            "study": STUDY.name,
            "state": "complete",
            "plan": plan_for().as_record(),
            "machine": MACHINE,
            "failures": [],
            "kernel_tcp": {"congestion_control": "cubic", "tcp_rmem": "1 2 3", "tcp_wmem": "1 2 3"},
            "environment": {},
            "stages": [],
            "repeat_command": "scripts/study edge-latency",
            "runs": RUNS if runs is None else runs,
        }
        | changes,
    )
    return folder


@pytest.fixture(autouse=True)
def coarse_plots(monkeypatch):
    """Drawing takes most of the time; the pictures' contents do not depend on the resolution."""
    from gloo_bypass_tools.report import plots

    monkeypatch.setattr(plots, "DOTS_PER_IN", 40)


@pytest.fixture
def doubled(monkeypatch, tmp_path):
    """scripts/study with a double of fabric-run, existing programs, and a guest that is this machine, or ends with a
    status instead."""
    from gloo_bypass_tools.study import command

    def make(faults=None, guest='while [ "$1" != -- ]; do shift; done; shift; exec "$@"'):
        guest_double = tmp_path / "rdma-guest"
        guest_double.write_text(f"#!/bin/sh\n{guest}\n")
        guest_double.chmod(0o755)
        monkeypatch.setattr(command.place, "choose", lambda *_: (command.place.IN_GUEST, "asked for"))
        double = tmp_path / "fabric-run"
        double.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fabric_run_double.py")} "$@"\n')
        double.chmod(0o755)
        monkeypatch.setenv("FAULTS", json.dumps(faults or {}))
        monkeypatch.setattr(
            command,
            "programs_of",
            lambda options: commands.Programs(
                double,
                "/bin/true",
                "/bin/true",
                sys.executable,
                "probe.py",
                "/bin/true",
                "/bin/true",
                guest_double,
                ROOT / "scripts" / "study",
            ),
        )
        monkeypatch.setattr(command.enclosure, "check_tools", lambda: None)
        monkeypatch.setattr(command.enclosure, "check_right", lambda: None)
        return tmp_path / "results"

    return make


@pytest.fixture
def study(capsys):
    """Runs scripts/study in this process: (exit status, standard output, standard error)."""

    def run(*arguments):
        try:
            status = command.main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = ended.code
        return status, *capsys.readouterr()

    return run
