"""Makes gloo_bypass_tools.model importable."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))


def benchmark_report(ranks, times_us, algorithm="ring"):
    """The JSON of all_reduce_perf; times_us maps a transport to {size: median}."""
    sizes = sorted({size for one in times_us.values() for size in one})
    return {
        "schema": "gloo-bypass/all_reduce_perf/1",
        "parameters": {"algorithm": algorithm, "iterations": 20, "rounds": 5},
        "ranks": [{"rank": rank} for rank in range(ranks)],
        "results": [
            {
                "size": size,
                "count": size // 4,
                "transports": [
                    {
                        "transport": name,
                        "time_us": one[size],
                        "p50_us": one[size],
                        "p99_us": one[size],
                        "min_us": one[size],
                        "max_us": one[size],
                        "round_time_us": [one[size]],
                        "algbw_gb_s": 1.0,
                        "busbw_gb_s": 1.0,
                        "wrong": 0,
                        "ratio_p50": 1,
                        "ratio_time": 1,
                        "cpu_seconds_of_rank": [0.1] * ranks,
                        "cpu_percent": 50.0,
                    }
                    for name, one in times_us.items()
                    if size in one
                ],
            }
            for size in sizes
        ],
    }


@pytest.fixture
def model(capsys):
    """Runs scripts/model in this process: (exit status, standard output, standard error)."""
    from gloo_bypass_tools.model import command

    def run(*arguments):
        try:
            status = command.main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = ended.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def answer(model):
    """The JSON of a subcommand that succeeds."""

    def run(*arguments):
        status, output, errors = model(*arguments, "--json", "-")
        assert status == 0 and errors == ""
        return json.loads(output)

    return run


@pytest.fixture(autouse=True)
def coarse_plots(monkeypatch):
    """Drawing takes most of the time; the pictures' contents do not depend on the resolution."""
    from gloo_bypass_tools.report import plots

    monkeypatch.setattr(plots, "DOTS_PER_IN", 40)
