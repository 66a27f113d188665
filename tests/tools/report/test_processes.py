"""Real programs: their end is seen, their group ends with them, and a failure names stage, reason and log."""

import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from gloo_bypass_tools.common import processes

PYTHON = Path(__file__).resolve().parents[3] / "scripts"

WAIT_S = 60.0  # only a process that is never ended reaches it


def gone(pid):
    """Whether a process ends within WAIT_S; a zombie has ended."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_run_success_keeps_the_output(tmp_path):
    outcome = processes.run(["sh", "-c", "echo out; echo err >&2"], tmp_path / "log", 30)
    assert outcome.status == 0
    assert (tmp_path / "log").read_text() == "$ sh -c echo out; echo err >&2\nout\nerr\n"
    processes.require_success("stage", outcome, tmp_path / "log")


def test_run_failure_names_stage_status_last_line_and_log(tmp_path):
    outcome = processes.run(["sh", "-c", "echo the reason; echo; exit 3"], tmp_path / "log", 30)
    with pytest.raises(processes.StageError, match=r"train exited with status 3; log: .*log; last line: the reason"):
        processes.require_success("train", outcome, tmp_path / "log")


def test_run_killed_names_the_signal(tmp_path):
    outcome = processes.run(["sh", "-c", "kill -9 $$"], tmp_path / "log", 30)
    with pytest.raises(processes.StageError, match="was ended by SIGKILL"):
        processes.require_success("train", outcome, tmp_path / "log")


def test_run_starter_is_killed_the_child_ends(tmp_path):
    script = (
        f"import sys; sys.path.insert(0, {str(PYTHON)!r}); from gloo_bypass_tools.common import processes; "
        f"processes.run(['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 600'], '{tmp_path}/log', 600)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as starter:
        until = time.monotonic() + WAIT_S
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith("\n"):
            assert time.monotonic() < until and starter.poll() is None
            time.sleep(0.02)
        starter.kill()
    assert gone(int((tmp_path / "pid").read_text()))


def test_run_unknown_program_is_one_line(tmp_path):
    with pytest.raises(processes.StageError, match="cannot start /nonexistent: No such file"):
        processes.run(["/nonexistent"], tmp_path / "log", 30)


def test_run_past_its_limit_ends_the_whole_group(tmp_path, monkeypatch):
    def monotonic():
        """The limit is over once the group is complete, however long that takes."""
        complete = (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n")
        return time.monotonic() + (1e6 if complete else 0)

    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with monkeypatch.context() as patched:
        patched.setattr(processes, "time", types.SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
        outcome = processes.run(["sh", "-c", script], tmp_path / "log", 1000)
    assert outcome.status is None
    assert gone(int((tmp_path / "pid").read_text()))
    with pytest.raises(processes.StageError, match="without an end"):
        processes.require_success("train", outcome, tmp_path / "log")


def test_run_leader_that_leaves_a_rank_behind_has_it_ended(tmp_path):
    script = f"sleep 600 & echo $! > {tmp_path}/pid; exit 1"
    assert processes.run(["sh", "-c", script], tmp_path / "log", 30).status == 1
    assert gone(int((tmp_path / "pid").read_text()))


def test_run_interrupted_ends_the_whole_group(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 0.2)
    ready = threading.Event()

    def tick():
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"):
            ready.set()
            raise KeyboardInterrupt

    script = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait; wait"
    with pytest.raises(KeyboardInterrupt):
        processes.run(["sh", "-c", script], tmp_path / "log", 30, on_tick=tick)
    assert ready.is_set()
    assert gone(int((tmp_path / "pid").read_text()))


def test_last_line_of_a_missing_log_is_empty(tmp_path):
    assert processes.last_line(tmp_path / "none") == ""
    assert os.listdir(tmp_path) == []
