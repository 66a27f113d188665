"""Makes gloo_bypass_tools.report importable, and provides synthetic measurements in the programs' formats."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

DIGEST = "4d338943973d0e13b5cf0703ba08473e31463cde65acefd341807b2c5f159497"


def step_record(step, step_s=3.0, all_reduce_s=1.0, loss=10.9, forward_s=0.6):
    return {
        "event": "step",
        "step": step,
        "epoch": 0,
        "loss": loss,
        "loss_mean": loss,
        "buckets": 7,
        "gradient_bytes": 327650304,
        "bytes_source": "tcp_info",
        "tokens": 1024,
        "t_step_s": step_s,
        "t_forward_s": forward_s,
        "t_backward_s": 1.5,
        "t_optimizer_s": 0.3,
        "t_barrier_s": 0.001,
        "t_ar_s": all_reduce_s,
        "t_ar_exposed_s": all_reduce_s / 2,
        "oh_ar": all_reduce_s / step_s,
        "bytes_sent": 327650304,
        "bytes_received": 327650304,
        "tokens_per_s": 1024 / step_s,
        "model_flops_per_s": 1.5e11,
    }


def training_records(transport="TCP", rank=0, steps=3, digest=DIGEST, step_s=3.0, all_reduce_s=1.0, forward_s=0.6):
    start = {
        "event": "start",
        "rank": rank,
        "world_size": 2,
        "transport": transport,
        "parameters": 81912576,
        "steps": steps,
    }
    summary = {
        "event": "summary",
        "rank": rank,
        "world_size": 2,
        "sha256": digest,
        "bytes_source": "tcp_info",
        "threads": 1,
        "peak_memory_mb": 1500.0,
        "transport": transport,
    }
    # The first step is slow, as a warm-up step is.
    body = [
        step_record(n, step_s * (3 if n == 1 else 1), all_reduce_s, 11.0 - 0.1 * n, forward_s)
        for n in range(1, steps + 1)
    ]
    return [start, *body, summary]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def reduce_result(size, times_us):
    """One size; times_us maps a transport to its median."""
    return {
        "size": size,
        "count": size // 4,
        "transports": [
            {
                "transport": transport,
                "time_us": 1.1 * us,
                "p50_us": us,
                "p99_us": 2 * us,
                "min_us": us / 2,
                "max_us": 3 * us,
                "round_time_us": [us],
                "algbw_gb_s": size / us / 1e3,
                "busbw_gb_s": size / us / 1e3,
                "wrong": 0,
                "ratio_p50": 1,
                "ratio_time": 1,
                "cpu_seconds_of_rank": [0.1, 0.1],
                "cpu_percent": 50.0,
            }
            for transport, us in times_us.items()
        ],
    }


def benchmark_report(results=None, idle=None):
    report = {
        "schema": "gloo-bypass/all_reduce_perf/1",
        "parameters": {"algorithm": "ring", "iterations": 20, "rounds": 5},
        "ranks": [{"rank": 0}, {"rank": 1}],
    }
    return report | ({"results": results} if results is not None else {}) | ({"idle": idle} if idle is not None else {})


def idle_entry(transport, percent):
    return {
        "transport": transport,
        "seconds": 5.0,
        "ranks": [
            {
                "rank": rank,
                "seconds": 5.0,
                "cpu_seconds": 0.01,
                "cpu_percent": percent,
                "rss_bytes": 1,
                "pss_bytes": 1,
                "rss_growth_bytes": 2**20,
                "pss_growth_bytes": 2**20,
            }
            for rank in (0, 1)
        ],
    }


def write_measurement(path, digests=("TCP", "DPDK"), state="complete", failures=(), tcp_forward_s=0.6):
    """A results folder as comparison.py leaves it; `digests` lists the trained transports, or maps them."""
    from gloo_bypass_tools.report.results import ResultsFolder

    folder = ResultsFolder.create(path)
    found = dict.fromkeys(digests, DIGEST) if not isinstance(digests, dict) else digests
    training = []
    for repeat in (1, 2):
        for transport, digest in found.items():
            files = []
            for rank in (0, 1):
                name = f"raw/training-{repeat}-{transport}-rank{rank}.jsonl"
                seconds = (3.0, 1.0) if transport == "TCP" else (2.5, 0.4)
                forward_s = tcp_forward_s if transport == "TCP" else 0.6
                write_lines(folder.place(name), training_records(transport, rank, 4, digest, *seconds, forward_s))
                files.append(name)
            training.append({"transport": transport, "repeat": repeat, "files": files})
    sizes = [4**k for k in range(1, 14)] + [40_000_000]
    results = [reduce_result(size, {"TCP": 97 + size / 1.2e3, "DPDK": 9 + size / 5e3}) for size in sizes]
    folder.place("raw/all-reduce.json").write_text(json.dumps(benchmark_report(results)))
    folder.place("raw/idle.json").write_text(
        json.dumps(benchmark_report(idle=[idle_entry("TCP", 0.1), idle_entry("DPDK", 0.3)]))
    )
    machine = {
        "processor": "A Processor <script>",
        "cores": 2,
        "memory_gib": 8.0,
        "operating_system": "Debian",
        "kernel": "6.1",
        "virtualisation": "none",
        "load_before": 0.1,
        "commit": "abc",
        "packages": {"g++": "12"},
        "date": "2026-01-01 00:00 UTC",
    }
    folder.write_json(
        "results.json",
        {
            "schema": "gloo-bypass/comparison/1",
            "state": state,
            "repeat_command": "scripts/compare --steps 4",
            "machine": machine,
            "environment": {},
            "failures": list(failures),
            "training": training,
            "all_reduce": ["raw/all-reduce.json"],
            "idle": ["raw/idle.json"],
            "stages": [{"name": "train", "seconds": 61.0, "succeeded": True, "log": "x", "command": "y"}],
            "plan": {
                "transports": ["TCP", "DPDK"],
                "ranks": 2,
                "model": "distilgpt2",
                "batch_size": 8,
                "seq_len": 64,
                "steps": 4,
                "warm_up": 1,
                "repeats": 2,
                "seed": 1,
                "sizes": [4, 2**26, 4],
                "idle_s": 5.0,
                "minutes": 9.0,
            },
        },
    )
    return folder


@pytest.fixture(autouse=True)
def coarse_plots(monkeypatch):
    """Drawing takes most of the time; the pictures' contents do not depend on the resolution."""
    from gloo_bypass_tools.report import plots

    monkeypatch.setattr(plots, "DOTS_PER_IN", 40)


@pytest.fixture
def measurement(tmp_path):
    return write_measurement(tmp_path / "results")


@pytest.fixture
def write_run(tmp_path):
    """Writes a stored run of programs, changed or not, and returns its path."""
    from program_runs import run_record

    def write(change=lambda record: None, name="run.json", **figures):
        record = run_record(**figures)
        change(record)
        path = tmp_path / name
        path.write_text(json.dumps(record))
        return path

    return write
