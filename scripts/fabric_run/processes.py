"""The fabric and the ranks as processes, from start to end, inside the enclosure."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .failures import FabricRunError

POLL_S = 0.05
# A fabric makes its sockets and interfaces; DPDK takes a second of that on a busy machine.
READY_S = 60.0
# When a rank has failed, the others say what they saw within this time, or never.
GRACE_S = 10.0
# The fabric prints its counters and goes.
END_S = 10.0
TAIL_LINES = 8


def last_lines(path, count):
    """Of a log, of its last 16 KiB."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 16384))
        return file.read().decode(errors="replace").splitlines()[-count:]


def described(status):
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"status {status}"


class Fabric:
    """The fabric's process; what it says goes to a log."""

    def __init__(self, words, log, stats):
        self.log, self.errors, self.stats = log, log.with_suffix(".err"), stats
        with open(self.log, "wb") as output, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen([*words, "--stats", str(stats)], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                            start_new_session=True)

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_S
        while b"fabric: ready" not in self.log.read_bytes():
            if self.ended():
                raise FabricRunError(self.last_error() or f"the fabric {described(self.process.returncode)}", self.failure_status())
            if time.monotonic() > deadline:
                raise FabricRunError(f"the fabric was not ready within {READY_S:g} s")
            time.sleep(POLL_S)

    def ended(self):
        return self.process.poll() is not None

    def end(self):
        """Its counters. Raises FabricRunError if it did not end in order."""
        if not self.ended():
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode != 0:
            raise FabricRunError(self.last_error() or f"the fabric {described(self.process.returncode)}", self.failure_status())
        return json.loads(Path(self.stats).read_text())

    def last_table(self):
        """What it printed at its end."""
        return self.log.read_text(errors="replace").rpartition("\n\n")[2]

    def last_error(self):
        said = last_lines(self.errors, 1)
        return said[0].removeprefix("fabric: ") if said else ""

    def failure_status(self):
        return 2 if self.process.returncode == 2 else 1


@dataclass
class Rank:
    number: int
    process: subprocess.Popen
    log: Path
    status: int | None = None


class Ranks:
    """All ranks' processes. Leaving the context ends those that still run."""

    def __init__(self, output):
        self.output = output
        self.ranks = []
        self.shown = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.kill()
                rank.process.wait()

    def start(self, number, words, environment):
        log = self.output / f"rank-{number}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        self.ranks.append(Rank(number, process, log))

    def wait(self, fabric, timeout_s):
        """Until all have ended, showing what rank 0 says. Raises FabricRunError unless all ended well and in time."""
        deadline = time.monotonic() + timeout_s
        first_failed = None
        while True:
            for rank in self.ranks:
                if rank.status is None and (status := rank.process.poll()) is not None:
                    rank.status = status
                    if status != 0 and first_failed is None:
                        first_failed = rank
                        deadline = min(deadline, time.monotonic() + GRACE_S)
            self.show_rank_0()
            if all(rank.status is not None for rank in self.ranks):
                break
            if fabric.ended():
                raise FabricRunError(f"the fabric ended before the ranks ({described(fabric.process.returncode)}); see {fabric.log}")
            if time.monotonic() > deadline:
                if first_failed is None:
                    running = ", ".join(str(rank.number) for rank in self.ranks if rank.status is None)
                    raise FabricRunError(f"stopped after --timeout {timeout_s:g} s: still running: rank {running}")
                break
            time.sleep(POLL_S)
        if first_failed is None:
            return
        said = "".join(f"\n  {line}" for line in last_lines(first_failed.log, TAIL_LINES))
        status = first_failed.status
        raise FabricRunError(f"rank {first_failed.number} failed first, {described(status)}; the end of {first_failed.log}:{said}",
                             128 - status if status < 0 else status)

    def show_rank_0(self):
        with open(self.ranks[0].log, "rb") as file:
            file.seek(self.shown)
            new = file.read()
        self.shown += len(new)
        sys.stdout.buffer.write(new)
        sys.stdout.buffer.flush()
