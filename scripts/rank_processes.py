"""The ranks of one run as processes: each with a log, awaited together, rank 0's output shown."""

import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05
# When a rank has failed, the others say what they saw within this time, or never.
GRACE_S = 10.0
TAIL_LINES = 8


def last_lines(path, count):
    """Of a log, of its last 16 KiB."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 16384))
        return file.read().decode(errors="replace").splitlines()[-count:]


def free_port():
    """One that nothing listens on now, at any of this machine's addresses: where rank 0 may have its store."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def interrupted(process, limit_s):
    """Ends a process as Ctrl-C does, or by force once the limit is over. Whether it ended by itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(limit_s)
        return True
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


class StillRunning(Exception):
    """The time is over, and no rank has failed. The text names those that run."""


@dataclass
class Rank:
    number: int
    process: subprocess.Popen
    log: Path
    status: int | None = None

    def end_of_log(self):
        """Its last lines, each on a line of its own, behind a colon."""
        return "".join(f"\n  {line}" for line in last_lines(self.log, TAIL_LINES))


class Ranks(list):
    """`output`: the folder of their logs."""

    def __init__(self, output):
        super().__init__()
        self.output = output
        self.shown = 0

    def start(self, words, environment=None):
        """The next rank. A session of its own: Ctrl-C reaches this program only, which ends the ranks in order."""
        log = self.output / f"rank-{len(self)}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        self.append(Rank(len(self), process, log))

    def running(self):
        return [rank for rank in self if rank.process.poll() is None]

    def wait(self, timeout_s, check=lambda: None):
        """Until all have ended, showing what rank 0 says: the rank that failed first, or None. `check` is called while some run, and may raise."""
        deadline = time.monotonic() + timeout_s
        first_failed = None
        while True:
            for rank in self:
                if rank.status is None and (status := rank.process.poll()) is not None:
                    rank.status = status
                    if status != 0 and first_failed is None:
                        first_failed = rank
                        deadline = min(deadline, time.monotonic() + GRACE_S)
            self.show_rank_0()
            if all(rank.status is not None for rank in self):
                return first_failed
            check()
            if time.monotonic() > deadline:
                if first_failed is None:
                    running = ", ".join(str(rank.number) for rank in self if rank.status is None)
                    raise StillRunning(f"stopped after --timeout {timeout_s:g} s: still running: rank {running}")
                return first_failed
            time.sleep(POLL_S)

    def show_rank_0(self):
        with open(self[0].log, "rb") as file:
            file.seek(self.shown)
            new = file.read()
        self.shown += len(new)
        sys.stdout.buffer.write(new)
        sys.stdout.buffer.flush()
