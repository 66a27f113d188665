"""Starts programs, watches them and ends them: no child outlives the command that started it.

A program runs in a process group of its own, with its output in a log. Whatever ends the wait (its exit, its
time limit, Ctrl-C, SIGTERM) ends the whole group, ranks that it started included.
"""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.1
# Time between the request to stop and the end by force: enough for a rank to remove its sockets and files.
GRACE_S = 5.0


class StageError(Exception):
    """A program failed; the text is one line that names the stage, the reason and the log."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended. `status` is its exit status, or None where the time limit ended it."""

    status: int | None
    seconds: float


def describe_status(status):
    if status < 0:
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"
    return f"exited with status {status}"


def last_line(log_path, limit=300):
    """The last line with something in it: usually the reason."""
    try:
        with open(log_path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16384))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    filled = [line.strip() for line in lines if line.strip()]
    return filled[-1][-limit:] if filled else ""


def group_signal(group, number):
    try:
        os.killpg(group, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def end_group(process):
    """Asks the group to stop, waits GRACE_S at most, then ends it by force."""
    group = process.pid
    if process.poll() is None and group_signal(group, signal.SIGTERM):
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            pass
    # Ranks may outlive their parent; the leader may ignore the request.
    group_signal(group, signal.SIGKILL)
    if process.poll() is None:
        process.wait()


def run(command, log_path, limit_s, environment=None, directory=None, on_tick=None):
    """Runs `command` to its end, at most `limit_s` seconds. Calls `on_tick()` about ten times a second.

    Returns its Outcome. Raises StageError where it cannot be started, and lets KeyboardInterrupt through
    once the whole group is ended.
    """
    log_path = Path(log_path)
    started = time.monotonic()
    with open(log_path, "ab") as log:
        log.write(("$ " + " ".join(map(str, command)) + "\n").encode())
        log.flush()
        try:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=environment, cwd=directory, start_new_session=True)
        except OSError as error:
            raise StageError(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        while True:
            try:
                status = process.wait(timeout=POLL_S)
                return Outcome(status, time.monotonic() - started)
            except subprocess.TimeoutExpired:
                pass
            if on_tick:
                on_tick()
            if time.monotonic() - started > limit_s:
                return Outcome(None, time.monotonic() - started)
    finally:
        end_group(process)


def require_success(stage, outcome, log_path):
    """Raises StageError for an outcome that is no success."""
    if outcome.status == 0:
        return
    reason = (f"was stopped after {outcome.seconds:.0f} s without an end" if outcome.status is None
              else describe_status(outcome.status))
    said = last_line(log_path)
    raise StageError(f"{stage} {reason}; log: {log_path}" + (f"; last line: {said}" if said else ""))


def interrupt_on(*numbers):
    """Makes these signals end the command as Ctrl-C does."""
    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)
