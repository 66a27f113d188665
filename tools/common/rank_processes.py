"""The ranks of one run as processes: each with a log, awaited together, rank 0's output shown."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common.processes import POLL_S, ended_within, group_signal, last_lines, start

# When a rank has failed, the others say what they saw within this time, or never.
GRACE_S = 10.0
# Between the request to stop and the end by force: less than processes.GRACE_S, which a command over this one waits.
STOP_S = 3.0
TAIL_LINES = 8
PORT_TRIES = 100


def free_port():
    """A port that nothing listens on now, at any of this machine's addresses: for rank 0's store. Below those that the
    kernel gives to connections, one of which might take it before rank 0 does. Raises OSError where there is none."""
    first_of_kernels = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(PORT_TRIES):
        with socket.socket() as probe:
            with contextlib.suppress(OSError):
                probe.bind(("", random.randrange(1024, first_of_kernels) if first_of_kernels > 2048 else 0))
                return probe.getsockname()[1]
    raise OSError(f"no free port in {PORT_TRIES} tries")


def clean_environment():
    """This process's environment without settings that would change what is measured."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GLOO_") and name not in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    }


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

    def start(self, words, environment=None, before_exec=None):
        """The next rank. `before_exec` is called in it first, as processes.end_with_starter."""
        log = self.output / f"rank-{len(self)}.log"
        with open(log, "wb") as file:
            process = start(words, file, environment=environment, before_exec=before_exec)
        self.append(Rank(len(self), process, log))

    def running(self):
        return [rank for rank in self if rank.process.poll() is None]

    def end(self, limit_s=STOP_S):
        """Asks those that still run to stop, and ends by force what has not within the limit."""
        for rank in self.running():
            group_signal(rank.process.pid, signal.SIGTERM)
        self.end_unasked(limit_s)

    def end_unasked(self, limit_s):
        """Of processes that end by themselves now."""
        deadline = time.monotonic() + limit_s
        for rank in self.running():
            ended_within(rank.process, max(0.0, deadline - time.monotonic()))

    def wait(self, timeout_s, check=lambda: None):
        """Until all have ended, showing what rank 0 says: the rank that failed first, or None. `check` is called while
        some run, and may raise."""
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


class QuietRanks(Ranks):
    def show_rank_0(self):
        """Shows nothing: rank 0's output is for its log alone."""
