"""The fabric and the ranks as processes, from start to end, inside the enclosure."""

import json
import signal
import subprocess
import time
from pathlib import Path

from rank_processes import POLL_S, Ranks, StillRunning, interrupted, last_lines

from .failures import FabricRunError

# A fabric makes its sockets and interfaces; DPDK takes a second of that on a busy machine.
READY_S = 60.0
# The fabric prints its counters and goes.
END_S = 10.0


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
        while True:
            ended = self.ended()  # before the log is read: what it said at its end is there then
            if b"fabric: ready" in self.log.read_bytes():
                return
            if ended:
                raise FabricRunError(self.last_error() or f"the fabric {described(self.process.returncode)}", self.failure_status())
            if time.monotonic() > deadline:
                raise FabricRunError(f"the fabric was not ready within {READY_S:g} s")
            time.sleep(POLL_S)

    def start(self):
        """Its time began when it was ready."""

    def ended(self):
        return self.process.poll() is not None

    def why_ended(self):
        """That it ended too early, in a line; '' while it runs."""
        return f"the fabric ended before the ranks ({described(self.process.returncode)}); see {self.log}" if self.ended() else ""

    def end(self, _devices=None):
        """Its counters. Raises FabricRunError if it did not end in order."""
        interrupted(self.process, END_S)
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


class FabricRanks(Ranks):
    """All ranks' processes. Leaving the context ends those that still run."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for rank in self.running():
            rank.process.kill()
            rank.process.wait()

    def wait_beside(self, links, timeout_s):
        """Until all have ended. Raises FabricRunError unless all ended well and in time, and before the links."""
        def check():
            if why := links.why_ended():
                raise FabricRunError(why)
        try:
            failed = self.wait(timeout_s, check)
        except StillRunning as error:
            raise FabricRunError(str(error)) from None
        if failed is not None:
            raise FabricRunError(f"rank {failed.number} failed first, {described(failed.status)}; the end of {failed.log}:{failed.end_of_log()}",
                                 128 - failed.status if failed.status < 0 else failed.status)
