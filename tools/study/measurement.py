"""A study, run by run. It records and reports a run that fails, and goes on with the others; after each run the folder
is complete as far as it goes.
"""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from gloo_bypass_tools.report import machine
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.stages import Stages, telling
from gloo_bypass_tools.study import commands, definition, guest_part, processor_share, reading, training_prediction
from gloo_bypass_tools.study.plan import cells_of, steps_of

SCHEMA = "gloo-bypass/study/1"
# fabric-run has the limit itself, and ends its ranks in order.
GRACE_S = 60.0
CAPTURE = "capture.pcapng"
# Of all frames' bytes: 128 of each frame of 1,500, whole acknowledgements, and 32 a frame that pcapng adds.
CAPTURED_SHARE = 0.14
ANALYSIS_LIMIT_S = 1800.0
BUILT = "fabric", "all_reduce_perf", "trainer", "analyser"
TCP_BUFFERS = "/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"


def kernel_tcp():
    """What bounds TCP's windows here: default congestion control and buffers. New network namespaces begin with
    these."""
    return {
        "congestion_control": machine.text_of("/proc/sys/net/ipv4/tcp_congestion_control").strip() or machine.UNKNOWN,
        **{path.rpartition("/")[2]: " ".join(machine.text_of(path).split()) for path in TCP_BUFFERS},
    }


def digests_of(programs):
    """SHA-256 of the programs that were built: a commit does not say what they were built from."""
    found = {}
    for name in BUILT:
        with contextlib.suppress(OSError):
            if path := getattr(programs, name):
                found[name] = digest_of(path)
    return found


def digest_of(path):
    """Of a file, or of all that a folder holds."""
    if Path(path).is_dir():
        inside = sorted(one for one in Path(path).rglob("*") if one.is_file())
        lines = (f"{one.relative_to(path)} {digest_of(one)}\n" for one in inside)
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class StudyMeasurement(Stages):
    """One study into one results folder. Single-threaded; owns its children while a run lasts. `left_out`: transports
    that are not measured, and why; `in_guest`: this is the guest, and its part of the study.
    """

    def __init__(self, root, plan, study, programs, folder, display, repeat_command, left_out=(), in_guest=False):
        record = {
            "schema": SCHEMA,
            "study": study.name,
            "plan": plan.as_record(),
            "machine": machine.describe_system() if in_guest else machine.describe(root),
            "kernel_tcp": kernel_tcp(),
            "environment": telling(os.environ),
            "repeat_command": repeat_command,
            "programs": {} if in_guest else digests_of(programs),
            "files": {flag: digest_of(path) for flag, path in plan.files or ()},
            "runs": [],
        }
        super().__init__(root, folder, display, record)
        self.plan, self.study, self.programs = plan, study, programs
        self.not_measured, self.in_guest = dict(left_out), in_guest

    def take_up(self, earlier):
        """Goes on from the record of the same study: what it has is kept, what failed is tried again."""
        # The page says so where any of it was measured on a busy machine.
        load = max(one["machine"].get("load_before") or 0.0 for one in (earlier, self.record))
        self.record |= {
            "runs": earlier["runs"],
            "machine": earlier["machine"] | {"load_before": load},
            "continued": earlier.get("continued", []) + [self.record["machine"]["date"]],
        }
        if guest_part.FOLDER in earlier:
            self.record[guest_part.FOLDER] = earlier[guest_part.FOLDER]
        missing = self.missing()
        again = {self.slug_of(repeat, cell) for repeat, cell in missing}
        if any(cell.transport in self.plan.guest for _, cell in missing):
            again.add(guest_part.FOLDER)
        self.record["stages"] = [
            stage for stage in earlier["stages"] if Path(stage["log"]).stem.removesuffix("-analysis") not in again
        ]

    def cells(self):
        return [cell for cell in cells_of(self.plan) if cell.transport not in self.not_measured]

    def missing(self):
        """(repeat, cell) of all runs that the record has not."""
        done = [(run["repeat"], run["cell"]) for run in self.record["runs"]]
        return [
            (repeat, cell)
            for repeat in range(1, self.plan.repeats + 1)
            for cell in self.cells()
            if (repeat, cell.as_record()) not in done
        ]

    @staticmethod
    def slug_of(repeat, cell):
        return f"{repeat}-{cell.slug}"

    def run_stages(self):
        for transport, why in self.not_measured.items():
            self.leave_out(transport, why)
        here = [cell for cell in self.cells() if (cell.transport in self.plan.guest) == self.in_guest]
        missing = self.missing()
        for repeat, cell in missing:
            if cell in here:
                self.run_cell(cell, repeat, f"{here.index(cell) + 1} of {len(here)}")
        there = [cell for _, cell in missing if cell.transport in self.plan.guest]
        if there and not self.in_guest:
            guest_part.run_there(self, there)

    def run_cell(self, cell, repeat, place):
        slug = self.slug_of(repeat, cell)
        name = f"repeat {repeat}, {place}: {cell.about}"
        output = self.folder.place(f"raw/{slug}").absolute()
        shutil.rmtree(output, ignore_errors=True)  # of a run that was cut off
        commands.report_beside(output).unlink(missing_ok=True)
        try:
            self.check_room(cell)
            known = self.measure(cell, repeat, name, slug, output)
            found = None if known is None else self.read(cell, output) | known
        except RecordError as error:
            self.fail(name, str(error), self.folder.place(f"logs/{slug}.log"))
            self.save()
            return
        finally:
            (output / CAPTURE).unlink(missing_ok=True)  # gigabytes at published size
        if found is not None:
            self.record["runs"].append({"cell": cell.as_record(), "repeat": repeat, "folder": f"raw/{slug}", **found})
            self.save()

    def check_room(self, cell):
        """RecordError where the disk has no room for the cell's capture."""
        if self.study.workload != definition.TRAIN:
            return
        point, free = self.study.variant(cell.variant), shutil.disk_usage(self.folder.path).free
        events = steps_of(self.plan, point) * training_prediction.event_bytes(self.plan, point, cell.transport).frames
        if free < CAPTURED_SHARE * events:
            sizes = f"about {CAPTURED_SHARE * events / 1e9:.2g} GB, and {free / 1e9:.2g} GB are free"
            raise RecordError(f"{self.folder.path}: the run's capture needs {sizes}: make room, or choose --output")

    def limit_s(self, cell):
        return commands.run_limit_s(self.plan, self.study, cell) + GRACE_S

    def measure(self, cell, repeat, name, slug, output):
        """Runs the cell's programs. Returns what the files of the run do not say; None where a program failed. The
        analysis of a capture follows the run, so that it takes no time from the ranks."""
        trained, share = self.study.workload == definition.TRAIN, self.study.variant(cell.variant).processor_share
        with processor_share.limited(share, definition.STRAGGLER) as limit:
            command = commands.command_of(self.plan, self.study, cell, self.programs, output, limit.flags, repeat)
            if not self.stage(name, slug, command, self.limit_s(cell), dict(os.environ)):
                return None
        if not trained:
            return {}
        words = [self.programs.analyser, output / CAPTURE, "--json", output / "analysis.json"]
        analysed = self.stage(f"{name}: analysis", f"{slug}-analysis", words, ANALYSIS_LIMIT_S, dict(os.environ))
        return {"limited_by": limit.way} if analysed else None

    def read(self, cell, output):
        """The record of the files that a run left; RecordError where they are not whole."""
        return reading.run_of(output, self.plan, self.study, cell)
