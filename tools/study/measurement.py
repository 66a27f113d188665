"""A study, run by run. A run that fails is written down and said, and the others go on; after each the folder is
complete as far as it goes.
"""

import contextlib
import hashlib
import os
import shutil
from dataclasses import asdict
from pathlib import Path

from gloo_bypass_tools.report import machine
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.stages import Stages, telling
from gloo_bypass_tools.study import (
    cells,
    guest_part,
    processor_share,
    reading,
    sweep_cells,
    sweep_reading,
    sweeps,
    training,
    training_reading,
)

SCHEMA = "gloo-bypass/study/1"
# fabric-run has the limit itself, and ends its ranks in order.
GRACE_S = 60.0
CAPTURE = "capture.pcapng"
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
    """One study into one results folder. Single-threaded; owns its children while a run lasts. Which cells there are,
    how long one may take, and how one is measured, is the subclass's: all_cells(), limit_s(cell), guest_memory_mib(),
    measure(cell, name, slug, output), what it alone knows of the run, None where a program failed, and read(cell,
    output), the record of the files that were left, or RecordError. `left_out`: transports that are not measured, and
    why; `in_guest`: this is the guest, and its part of the study.
    """

    def __init__(self, root, plan, study, programs, folder, display, repeat_command, left_out=(), in_guest=False):
        super().__init__(
            root,
            folder,
            display,
            {
                "schema": SCHEMA,
                "study": study.name,
                "plan": plan.as_record(),
                "machine": machine.describe_system() if in_guest else machine.describe(root),
                "kernel_tcp": kernel_tcp(),
                "environment": telling(os.environ),
                "repeat_command": repeat_command,
                "programs": {} if in_guest else digests_of(programs),
                "files": {flag: digest_of(path) for flag, path in getattr(plan, "files", ())},
                "runs": [],
            },
        )
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
        return [cell for cell in self.all_cells() if cell.transport not in self.not_measured]

    def missing(self):
        """(repeat, cell) of all runs that the record has not."""
        done = [(run["repeat"], run["cell"]) for run in self.record["runs"]]
        return [
            (repeat, cell)
            for repeat in range(1, self.plan.repeats + 1)
            for cell in self.cells()
            if (repeat, asdict(cell)) not in done
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
        cells.report_beside(output).unlink(missing_ok=True)
        try:
            known = self.measure(cell, name, slug, output)
            found = None if known is None else self.read(cell, output) | known
        except RecordError as error:
            self.fail(name, str(error), self.folder.place(f"logs/{slug}.log"))
            self.save()
            return
        if found is not None:
            (output / CAPTURE).unlink(missing_ok=True)
            self.record["runs"].append({"cell": asdict(cell), "repeat": repeat, "folder": f"raw/{slug}", **found})
            self.save()


class EdgeMeasurement(StudyMeasurement):
    """Of one slow edge, by all_reduce_perf."""

    def all_cells(self):
        return cells.cells_of(self.plan)

    def guest_memory_mib(self):
        return guest_part.memory_for_reduces(self.plan.ranks, self.plan.bytes)

    def model_s(self, cell):
        return self.study.model(self.plan, self.study, cell).schedule_s

    def limit_s(self, cell):
        return cells.run_limit_s(self.plan, self.model_s(cell), cell.transport) + GRACE_S

    def measure(self, cell, name, slug, output):
        command = cells.command_of(
            self.plan, self.study, cell, self.model_s(cell), self.programs, output, cells.report_beside(output)
        )
        return {} if self.stage(name, slug, command, self.limit_s(cell), dict(os.environ)) else None

    def read(self, cell, output):
        return reading.run_of(output, cells.report_beside(output), self.plan, cell)


class TrainingMeasurement(StudyMeasurement):
    """Of training, by ddp_train under capture. The capture is analysed after the run, so that this takes no time from
    the ranks, and then removed: at published size one has gigabytes."""

    def all_cells(self):
        return training.cells_of(self.plan)

    def limit_s(self, cell):
        return training.run_limit_s(self.plan, self.study.variant(cell.variant), cell.transport) + GRACE_S

    def guest_memory_mib(self):
        return guest_part.memory_for_training(
            max(self.study.variant(name).ranks for name in self.plan.variants), self.plan.guest_model
        )

    def measure(self, cell, name, slug, output):
        plan, variant = self.plan, self.study.variant(cell.variant)
        command = training.command_of(plan, variant, cell, self.programs, output)
        return self.captured(name, slug, command, self.limit_s(cell), output)

    def captured(self, name, slug, command, limit_s, output):
        """The run, and the analysis of its capture."""
        if not self.stage(name, slug, command, limit_s, dict(os.environ)):
            return None
        analysed = self.stage(
            f"{name}: analysis",
            f"{slug}-analysis",
            [self.programs.analyser, output / CAPTURE, "--json", output / "analysis.json"],
            ANALYSIS_LIMIT_S,
            dict(os.environ),
        )
        return {} if analysed else None

    def read(self, cell, output):
        variant = self.study.variant(cell.variant)
        return training_reading.run_of(output, self.plan, variant, cell, training.steps_of(self.plan, variant))


class SweepMeasurement(TrainingMeasurement):
    """Of one parameter, by either program."""

    def all_cells(self):
        return sweep_cells.cells_of(self.plan)

    def limit_s(self, cell):
        return sweep_cells.run_limit_s(self.plan, self.study, cell) + GRACE_S

    def guest_memory_mib(self):
        if self.study.workload == sweeps.TRAIN:
            return super().guest_memory_mib()
        points = [self.study.variant(name) for name in self.plan.variants]
        return max(guest_part.memory_for_reduces(point.ranks, point.bytes or self.plan.bytes) for point in points)

    def measure(self, cell, name, slug, output):
        plan, study = self.plan, self.study
        with processor_share.limited(study.variant(cell.variant).processor_share, sweeps.STRAGGLER) as limit:
            command = sweep_cells.command_of(plan, study, cell, self.programs, output, limit.flags)
            if study.workload == sweeps.TRAIN:
                known = self.captured(name, slug, command, self.limit_s(cell), output)
                return None if known is None else known | {"limited_by": limit.way}
            return {} if self.stage(name, slug, command, self.limit_s(cell), dict(os.environ)) else None

    def read(self, cell, output):
        return sweep_reading.run_of(output, self.plan, self.study, cell)
