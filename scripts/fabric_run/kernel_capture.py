"""Frames of interfaces of the kernel as they come in, to one pcapng file, by dumpcap."""

import re
import subprocess
import time

from rank_processes import POLL_S, interrupted, last_lines

from .failures import FabricRunError

DUMPCAP = "dumpcap"
REORDERCAP = "reordercap"
PROGRAMS = (DUMPCAP, REORDERCAP)
LEAST_BYTES_A_SECOND = 1e6
READY_S = 60.0
# It looks for frames four times a second, and forgets at its end those it has not looked at.
FLUSH_S = 1.0
BUFFER_MIB = 16
LOST = re.compile(r"Packets received/dropped on interface .*: (\d+)/(\d+)")


class KernelCapture:
    """Records from the moment that it is made until end(). `prefix`: words that lead into the interfaces' namespace."""

    def __init__(self, prefix, interfaces, output, snap_bytes):
        self.path, self.log = output / "capture.pcapng", output / "capture.log"
        # Only what comes in: each frame enters once. Told before the interfaces, options hold for all of them.
        words = [*prefix, DUMPCAP, "-q", "-f", "inbound", "-B", BUFFER_MIB, *(["-s", snap_bytes] if snap_bytes else [])]
        words += [word for interface in interfaces for word in ("-i", interface)] + ["-w", self.path]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_S
        while b"File: " not in self.log.read_bytes():
            if self.ended():
                raise FabricRunError(f"--capture: {self.last_error()}")
            if time.monotonic() > deadline:
                self.process.kill()
                raise FabricRunError(f"--capture: {DUMPCAP} was not ready within {READY_S:g} s; see {self.log}")
            time.sleep(POLL_S)

    def ended(self):
        return self.process.poll() is not None

    def last_error(self):
        said = [line for line in last_lines(self.log, 8) if line.strip()]
        return said[-1].removeprefix("dumpcap: ") if said else f"{DUMPCAP} ended with status {self.process.returncode}"

    def put_in_order(self, limit_s):
        """A thread of dumpcap reads each interface, so that frames lie in the file a little out of order."""
        ordered = self.path.with_suffix(".partial")
        try:
            done = subprocess.run([REORDERCAP, self.path, ordered], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                  timeout=max(limit_s, self.path.stat().st_size / LEAST_BYTES_A_SECOND), check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            ordered.unlink(missing_ok=True)
            raise FabricRunError(f"--capture: {self.path} could not be put in the order of time: {error}") from None
        if done.returncode != 0:
            ordered.unlink(missing_ok=True)
            why = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0]
            raise FabricRunError(f"--capture: {self.path} could not be put in the order of time: {why}")
        ordered.rename(self.path)

    def end(self, limit_s):
        """How many frames are in the file, and how many the kernel or dumpcap lost."""
        if not self.ended():
            time.sleep(FLUSH_S)
        if not interrupted(self.process, limit_s):
            raise FabricRunError(f"--capture: {DUMPCAP} did not end within {limit_s:g} s; {self.path} may lack its last frames")
        self.put_in_order(limit_s)
        counts = [(int(kept), int(lost)) for kept, lost in LOST.findall(self.log.read_text(errors="replace"))]
        return {"file": str(self.path), "frames": sum(kept for kept, _ in counts), "lost": sum(lost for _, lost in counts)}
