"""The fabric and the ranks as processes, from start to end, inside the enclosure."""

import json
from pathlib import Path

from gloo_bypass_tools.common.failures import BAD_INPUT, FAILED
from gloo_bypass_tools.common.processes import described, interrupted, last_lines, start, wait_for_line
from gloo_bypass_tools.common.rank_processes import Ranks, StillRunning
from gloo_bypass_tools.fabric_run.failures import FabricRunError

# A fabric makes its sockets and interfaces; DPDK takes a second of that on a busy machine.
READY_S = 60.0
# The fabric prints its counters and goes.
END_S = 10.0


class Fabric:
    """The fabric's process; what it says goes to a log."""

    def __init__(self, words, log, stats):
        self.log, self.errors, self.stats = log, log.with_suffix(".err"), stats
        with open(self.log, "wb") as output, open(self.errors, "wb") as errors:
            self.process = start([*words, "--stats", stats], output, errors)

    def wait_until_ready(self):
        try:
            if not wait_for_line(self.process, self.log, b"fabric: ready", READY_S):
                raise self.failure()
        except TimeoutError:
            raise FabricRunError(f"the fabric was not ready within {READY_S:g} s") from None

    def start(self):
        """Nothing to do: its time began when it was ready."""

    def ended(self):
        return self.process.poll() is not None

    def why_ended(self):
        """That it ended too early, in a line; '' while it runs."""
        if not self.ended():
            return ""
        return f"the fabric ended before the ranks ({described(self.process.returncode)}); see {self.log}"

    def end(self, _devices=None):
        """Its counters. Raises FabricRunError if it did not end in order."""
        interrupted(self.process, END_S)
        if self.process.returncode != 0:
            raise self.failure()
        return json.loads(Path(self.stats).read_text())

    def last_table(self):
        """What it printed at its end."""
        return self.log.read_text(errors="replace").rpartition("\n\n")[2]

    def failure(self):
        """The exception for its failure."""
        status = self.process.returncode
        said = last_lines(self.errors, 1) or [f"the fabric {described(status)}"]
        return FabricRunError(said[0].removeprefix("fabric: "), BAD_INPUT if status == BAD_INPUT else FAILED)


class FabricRanks(Ranks):
    """All ranks' processes. Leaving the context ends those that still run."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

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
            raise FabricRunError(
                f"rank {failed.number} failed first, {described(failed.status)}; the end of "
                f"{failed.log}:{failed.end_of_log()}",
                128 - failed.status if failed.status < 0 else failed.status,
            )
