"""Frames of interfaces of the kernel as they come in, to one pcapng file, by dumpcap."""

import json
import re
import subprocess
import time

from gloo_bypass_tools.common.processes import POLL_S, ask, errors_of, interrupted, last_lines, start, wait_for_line
from gloo_bypass_tools.fabric_run import network
from gloo_bypass_tools.fabric_run.failures import FabricRunError

DUMPCAP = "dumpcap"
REORDERCAP = "reordercap"
PROGRAMS = (DUMPCAP, REORDERCAP)
LEAST_BYTES_A_SECOND = 1e6
READY_S = 60.0
BUFFER_MIB = 16
# What its threads have read and it has not written yet; its default, 1,000 frames, is one READ of 1 MiB.
QUEUE_BYTES = 256 << 20
WRITTEN = re.compile(r"Packets: (\d+)")
LOST = re.compile(r"Packets received/dropped on interface .*: (\d+)/(\d+)")


class KernelCapture:
    """Records from the moment that it is made until end(). `prefix`: words that lead into the interfaces' namespace;
    `senders`: of each interface the MAC address of what sends from its other end."""

    def __init__(self, prefix, senders, output, snap_bytes):
        self.path, self.log = output / "capture.pcapng", output / "capture.log"
        self.prefix, self.interfaces = prefix, set(senders)
        # Only what comes in: each frame enters once. Not by "inbound": libpcap filters the first block of an
        # interface's frames in user space, where that holds for none. Told before the interfaces, the other options
        # hold for all of them.
        words = [*prefix, DUMPCAP, "-B", BUFFER_MIB, "-C", QUEUE_BYTES, *(["-s", snap_bytes] if snap_bytes else [])]
        for interface, mac in senders.items():
            words += ["-i", interface, "-f", f"ether src {mac}"]
        words += ["-w", self.path]
        with open(self.log, "wb") as log:
            self.process = start(words, log)
        self.wait_until_ready()
        self.came_before = self.came_in()

    def came_in(self):
        """Frames that the kernel has counted at the interfaces."""
        shown = json.loads(network.answer(*self.prefix, "ip", "-s", "-j", "link", "show"))
        return sum(one["stats64"]["rx"]["packets"] for one in shown if one["ifname"] in self.interfaces)

    def wait_until_ready(self):
        try:
            if not wait_for_line(self.process, self.log, b"File: ", READY_S):
                raise FabricRunError(f"--capture: {self.last_error()}")
        except TimeoutError:
            self.process.kill()
            raise FabricRunError(f"--capture: {DUMPCAP} was not ready within {READY_S:g} s; see {self.log}") from None

    def ended(self):
        return self.process.poll() is not None

    def last_error(self):
        said = [line for line in last_lines(self.log, 8) if line.strip()]
        return said[-1].removeprefix("dumpcap: ") if said else f"{DUMPCAP} ended with status {self.process.returncode}"

    def put_in_order(self, limit_s):
        """A thread of dumpcap reads each interface, so that frames lie in the file a little out of order."""
        ordered = self.path.with_suffix(".partial")
        try:
            done = ask([REORDERCAP, self.path, ordered], max(limit_s, self.path.stat().st_size / LEAST_BYTES_A_SECOND))
            why = errors_of(done)[0] if done.returncode != 0 else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        if why:
            ordered.unlink(missing_ok=True)
            raise FabricRunError(f"--capture: {self.path} could not be put in the order of time: {why}")
        ordered.rename(self.path)

    def wait_until_written(self, frames, limit_s):
        """It looks for frames a few times a second, and forgets at its end those it has not looked at."""
        deadline = time.monotonic() + limit_s
        while not self.ended() and time.monotonic() < deadline:
            if int(WRITTEN.findall("Packets: 0" + self.log.read_text(errors="replace"))[-1]) >= frames:
                return
            time.sleep(POLL_S)

    def end(self, limit_s):
        """How many frames are in the file, and how many that came in are not: by the kernel's count of the interfaces,
        since dumpcap does not know of all that it has not read."""
        came = self.came_in() - self.came_before
        self.wait_until_written(came, limit_s)
        if not interrupted(self.process, limit_s):
            raise FabricRunError(
                f"--capture: {DUMPCAP} did not end within {limit_s:g} s; {self.path} may lack its last frames"
            )
        self.put_in_order(limit_s)
        counts = [(int(kept), int(lost)) for kept, lost in LOST.findall(self.log.read_text(errors="replace"))]
        kept, lost = (sum(one) for one in zip(*counts)) if counts else (0, 0)
        return {"file": str(self.path), "frames": kept, "lost": max(lost, came - kept)}
