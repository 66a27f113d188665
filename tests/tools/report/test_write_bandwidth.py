"""ib_write_bw between two processes; a test double plays it."""

import json
import os
import time

import pytest
from gloo_bypass_tools.common import rank_processes
from gloo_bypass_tools.report import records, write_bandwidth
from program_doubles import make_program


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    def run(fault=None, *arguments):
        make_program(tmp_path / "bin" / "ib_write_bw", {"ib_write_bw": fault})
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        status = write_bandwidth.main(
            [
                "--device",
                "rxe0",
                "--gid-index",
                "1",
                "--tcp-port",
                str(rank_processes.free_port()),
                "--json",
                str(tmp_path / "out.json"),
                *arguments,
            ]
        )
        return status, capsys.readouterr().err

    return run


def test_both_directions_together_are_halved_and_told_in_bytes(tmp_path, measure):
    assert measure() == (0, "")
    assert records.read_write_bandwidth(tmp_path / "out.json") == pytest.approx(0.1)
    assert json.loads((tmp_path / "out.json").read_text())["message_bytes"] == 2**20


@pytest.mark.parametrize(
    "fault, said",
    [
        ("fail", "as server: Unable to find the Infiniband/RoCE device"),
        ("no table", "printed no line for 1048576 bytes"),
    ],
)
def test_failure_is_one_line_and_leaves_no_file(tmp_path, measure, fault, said):
    status, error = measure(fault)
    assert status == write_bandwidth.FAILED and error.count("\n") == 1 and said in error
    assert not (tmp_path / "out.json").exists()


def test_hanging_client_is_ended_at_the_limit(measure):
    started = time.monotonic()
    status, error = measure("hang", "--limit", "5")  # the server needs a part of it to listen
    assert status == write_bandwidth.FAILED and "took longer than 5 s" in error
    assert time.monotonic() - started < 60


def test_not_installed_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert write_bandwidth.main(["--device", "x", "--json", str(tmp_path / "out.json")]) == write_bandwidth.FAILED
    assert "apt install perftest" in capsys.readouterr().err
