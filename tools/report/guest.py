"""A whole measurement inside the guest of scripts/rdma-guest: scripts/compare runs there, on this machine's files, and
writes into a results folder that it shares with this machine.
"""

import os
import subprocess
from dataclasses import asdict

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.report import machine, records
from gloo_bypass_tools.report.stages import Stages, telling

CHECK_LIMIT_S, FETCH_LIMIT_S = 60.0, 600.0
BOOT_LIMIT_S = 150.0
# Beyond the time that repeats are planned for, after which the guest counts as stuck.
OVERTIME_S = 300.0


def problem(program):
    """Why the guest of this program, scripts/rdma-guest, is not available, in a line; '' if it is."""
    try:
        done = processes.ask([program, "check"], CHECK_LIMIT_S)
    except OSError as error:
        return f"{program}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return "scripts/rdma-guest check did not end"
    if done.returncode == 0:
        return ""
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "; ".join(said) or f"scripts/rdma-guest check {processes.describe_status(done.returncode)}"


def fetch_kernel(program, log):
    """Downloads the guest's kernel where it is missing; problem() says afterwards whether that was enough."""
    try:
        processes.run([program, "fetch-kernel"], log, FETCH_LIMIT_S)
    except processes.StageError:
        pass


def arguments_of(plan, build, folder):
    """The command line with which scripts/compare carries out this plan there."""
    low, high, factor = plan.sizes
    options = {
        "--transports": ",".join(plan.transports),
        "--ranks": plan.ranks,
        "--sizes": f"{low}:{high}:{factor}",
        "--repeats": plan.repeats,
        "--minutes": plan.minutes,
        "--steps": plan.steps,
        "--warm-up": plan.warm_up,
        "--model": plan.model,
        "--batch-size": plan.batch_size,
        "--seq-length": plan.seq_len,
        "--seed": plan.seed,
        "--idle": plan.idle_s,
        "--build": build,
        "--measure-into": folder.path.resolve(),
    }
    words = ["--emulated", *(str(word) for pair in options.items() for word in pair)]
    words += [] if plan.training else ["--no-training"]
    words += [] if plan.benchmark else ["--no-benchmark"]
    return [*words, *(["--", *plan.trainer_arguments] if plan.trainer_arguments else [])]


class GuestMeasurement(Stages):
    """One measurement in the guest into one results folder. Single-threaded; owns the guest while it runs."""

    def __init__(self, program, build, plan, folder, display, place, repeat_command):
        self.of_host = {"place": place.as_record(), "host": machine.describe_system(), "repeat_command": repeat_command}
        own = {"plan": asdict(plan), "machine": machine.describe(ROOT), "environment": telling(os.environ)}
        super().__init__(ROOT, folder, display, own | self.of_host)
        self.program, self.build, self.plan = program, build, plan

    def run(self):
        """Returns whether nothing failed. KeyboardInterrupt passes through once the state is saved."""
        self.save()
        log = self.folder.place("logs/guest.log")
        limit_s = 60.0 * self.plan.minutes + OVERTIME_S
        compare = [ROOT / "scripts" / "compare", *arguments_of(self.plan, self.build, self.folder)]
        command = [self.program, "run", "--timeout", int(limit_s), "--", *compare]

        def tick():
            self.display.advance(note=processes.last_line(log, 70))

        # The folder is where the command runs, since the guest may write there.
        limits = {"limit_s": limit_s + BOOT_LIMIT_S, "environment": dict(os.environ)}
        here = self.folder.path
        return self.stage("measure in the guest", "guest", command, **limits, on_tick=tick, directory=here)

    def note_stage(self, stage, reason):
        """Where the stage was the guest, takes over what it has written there."""
        if stage["log"] != "logs/guest.log":
            return super().note_stage(stage, reason)
        own, software = self.record, {key: self.record["machine"][key] for key in ("commit", "packages")}
        try:
            found = records.json_object(self.folder.place("results.json"))
        except records.RecordError as error:
            found, reason = own, str(error)
        self.record = found | self.of_host
        if "elapsed_s" in found:  # else nothing was written there
            self.record["machine"] = software | found["machine"] | {"virtualisation": "QEMU, software emulation"}
        for failure in found["failures"]:
            self.display.line(f"in the guest: {failure['reason']}", style="red")
        if not stage["succeeded"]:
            if not found["failures"]:
                self.fail(stage["name"], reason, self.folder.place(stage["log"]))
            if found["state"] == "running":
                self.record["state"] = "failed"
        self.record["stages"] = [*(one for one in own["stages"] if one not in found["stages"]), stage, *found["stages"]]
        self.save()
        return None
