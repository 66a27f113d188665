"""Makes gloo_bypass_tools importable, and makes traces as their writers do."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from gloo_bypass_tools.execution_traces import trace  # noqa: E402
from gloo_bypass_tools.execution_traces.trace import Node, Trace  # noqa: E402


def compute(number, duration_us=10, waits_for=(), **more):
    return Node(
        number, f"compute {number}", trace.COMPUTE, list(waits_for), duration_us=duration_us, on_cpu=True, **more
    )


def reduce(number, size=8, waits_for=(), **more):
    more = {"operation": "ALL_REDUCE"} | more
    return Node(number, f"reduce {number}", trace.COLLECTIVE, list(waits_for), bytes=size, on_cpu=True, **more)


def message(kind, number, peer, size=8, waits_for=(), tag=0):
    return Node(number, f"{kind} {number}", kind, list(waits_for), peer=peer, bytes=size, tag=tag)


def span(name, begin_us, end_us, step, rank=0, **more):
    """As ddp_train writes one."""
    arguments = {"step": step} | more
    return {"ph": "X", "name": name, "pid": rank, "tid": 0, "ts": begin_us, "dur": end_us - begin_us, "args": arguments}


def training_step(step, at_us, rank=0):
    """1 ms: 300 us forward, 400 us backward with buckets at 450 and 650 us, the second one exposed to 690, 200 us of
    optimiser and 100 us of barrier."""
    return [
        span(f"ProfilerStep#{step}", at_us, at_us + 1000, step, rank),
        span("DistributedDataParallel.forward", at_us, at_us + 300, step, rank, micro_batch=0),
        span("backward", at_us + 300, at_us + 700, step, rank, micro_batch=0),
        span("gloo:all_reduce", at_us + 450, at_us + 500, step, rank, bucket=0, bytes=400),
        span("gloo:all_reduce", at_us + 650, at_us + 690, step, rank, bucket=1, bytes=800),
        span("exposed gloo:all_reduce", at_us + 650, at_us + 690, step, rank),
        span("Optimizer.step#AdamW.step", at_us + 700, at_us + 900, step, rank),
        span("gloo:barrier", at_us + 900, at_us + 1000, step, rank),
    ]


def training(ranks=2, steps=2, exchange="all_reduce", left_out=0):
    events = [
        one for rank in range(ranks) for step in range(1, steps + 1) for one in training_step(step, 1200.0 * step, rank)
    ]
    return {
        "distributedInfo": {
            "backend": "gloo",
            "rank": 0,
            "world_size": ranks,
            "transport": "TCP",
            "exchange": exchange,
        },
        "traceEvents": [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {}}, *events],
        "ranks": [{"rank": rank, "spans_left_out": left_out, "last_step": steps} for rank in range(ranks)],
    }


@pytest.fixture
def write_json(tmp_path):
    def write(document, name="trace.json"):
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return path

    return write


@pytest.fixture
def write_traces(tmp_path):
    """Writes lists of nodes, one a rank; the prefix."""

    def write(*ranks, name="run"):
        for rank, nodes in enumerate(ranks):
            (tmp_path / f"{name}.{rank}.et").write_bytes(trace.as_bytes(Trace(nodes), "a test"))
        return tmp_path / name

    return write
