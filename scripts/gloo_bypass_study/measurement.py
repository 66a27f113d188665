"""A study, run by run. A run that fails is written down and said, and the others go on; after each the folder is complete as far as it
goes.
"""

import os
from dataclasses import asdict

from fabric_run import place
from gloo_bypass_report import machine
from gloo_bypass_report.records import RecordError
from gloo_bypass_report.stages import Stages, telling

from . import cells, prediction, processor_share, reading, sweep_cells, sweep_reading, sweeps, training, training_reading

SCHEMA = "gloo-bypass/study/1"
# fabric-run has the limit itself, and ends its ranks in order.
GRACE_S = 60.0
ANALYSIS_LIMIT_S = 1800.0
TCP_BUFFERS = "/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"


def kernel_tcp():
    """What bounds TCP's windows here: default congestion control and buffers. New network namespaces begin with these."""
    return {"congestion_control": machine.text_of("/proc/sys/net/ipv4/tcp_congestion_control").strip() or machine.UNKNOWN,
            **{path.rpartition("/")[2]: " ".join(machine.text_of(path).split()) for path in TCP_BUFFERS}}


class StudyMeasurement(Stages):
    """One study into one results folder. Single-threaded; owns its children while a run lasts. Which cells there are, and how one is
    measured, is the subclass's: cells() and measure(cell, name, slug, output), which returns a record or raises RecordError.
    """

    def __init__(self, root, plan, study, programs, folder, display, repeat_command):
        super().__init__(root, folder, display, {
            "schema": SCHEMA, "study": study.name, "plan": plan.as_record(), "machine": machine.describe(root), "kernel_tcp": kernel_tcp(),
            "environment": telling(os.environ), "repeat_command": repeat_command, "runs": []})
        self.plan, self.study, self.programs = plan, study, programs

    def run_stages(self):
        listed = self.cells()
        for repeat in range(1, self.plan.repeats + 1):
            for number, cell in enumerate(listed, start=1):
                self.run_cell(cell, repeat, f"{number} of {len(listed)}")

    def run_cell(self, cell, repeat, place):
        slug = f"{repeat}-{cell.slug}"
        name = f"repeat {repeat}, {place}: {cell.about}"
        output = self.folder.place(f"raw/{slug}").absolute()
        try:
            found = self.measure(cell, name, slug, output)
        except RecordError as error:
            self.fail(name, str(error), self.folder.place(f"logs/{slug}.log"))
            self.save()
            return
        if found is not None:
            self.record["runs"].append({"cell": asdict(cell), "repeat": repeat, "folder": f"raw/{slug}", **found})
            self.save()


class EdgeMeasurement(StudyMeasurement):
    """Of one slow edge, by all_reduce_perf."""

    def cells(self):
        return cells.cells_of(self.plan)

    def measure(self, cell, name, slug, output):
        plan, perf = self.plan, output.with_suffix(".json")
        model_s = prediction.model_of(plan, self.study, cell).schedule_s
        command = cells.command_of(plan, self.study, cell, model_s, self.programs, output, perf)
        limit_s = cells.run_limit_s(plan, model_s, cell.transport) + GRACE_S + (place.GUEST_START_S if cell.transport == "RDMA" else 0.0)
        if not self.stage(name, slug, command, limit_s, dict(os.environ)):
            return None
        return reading.run_of(output, perf, plan, cell)


class TrainingMeasurement(StudyMeasurement):
    """Of training, by ddp_train under capture. The capture is analysed after the run, so that this takes no time from the ranks, and then
    removed: at published size one has gigabytes."""

    def cells(self):
        return training.cells_of(self.plan)

    def measure(self, cell, name, slug, output):
        plan, variant = self.plan, self.study.variant(cell.variant)
        command = training.command_of(plan, variant, cell, self.programs, output)
        return self.captured(name, slug, command, training.run_limit_s(plan, variant), output,
                             lambda: training_reading.run_of(output, plan, variant, cell, training.steps_of(plan, variant)))

    def captured(self, name, slug, command, limit_s, output, read):
        """What `read` makes of the run, once its capture is analysed; None where a program failed."""
        if not self.stage(name, slug, command, limit_s + GRACE_S, dict(os.environ)):
            return None
        capture = output / "capture.pcapng"
        analysed = self.stage(f"{name}: analysis", f"{slug}-analysis", [self.programs.analyser, capture, "--json", output / "analysis.json"],
                              ANALYSIS_LIMIT_S, dict(os.environ))
        if not analysed:
            return None
        found = read()
        capture.unlink(missing_ok=True)
        return found


class SweepMeasurement(TrainingMeasurement):
    """Of one parameter, by either program."""

    def cells(self):
        return sweep_cells.cells_of(self.plan)

    def measure(self, cell, name, slug, output):
        plan, study = self.plan, self.study
        limit_s = sweep_cells.run_limit_s(plan, study, cell)
        with processor_share.limited(study.variant(cell.variant).processor_share, sweeps.STRAGGLER) as limit:
            command = sweep_cells.command_of(plan, study, cell, self.programs, output, limit.flags)
            if study.workload == sweeps.TRAIN:
                return self.captured(name, slug, command, limit_s, output, lambda: sweep_reading.run_of(output, plan, study, cell, limit.way))
            if not self.stage(name, slug, command, limit_s + GRACE_S, dict(os.environ)):
                return None
            return sweep_reading.run_of(output, plan, study, cell)
