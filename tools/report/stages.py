"""A measurement's record, and the programs that it runs one after another as its stages."""

import os
import shlex
import time

from gloo_bypass_tools.common import processes

SCHEMA = "gloo-bypass/comparison/1"
# Lists of the record, which stages add to.
PARTS = ("stages", "failures", "left_out", "training", "all_reduce", "programs", "beside_write", "bound", "idle")
# Settings of the children that bear on the figures, to be named in the report.
TELLING_PREFIXES = ("GLOO_", "OMP_", "OPENBLAS_", "MKL_")


def telling(environment):
    return {key: value for key, value in sorted(environment.items()) if key.startswith(TELLING_PREFIXES)}


def shell_line(environment, words, root):
    """The command as one can paste it, with paths below the repository relative to it."""
    settings = [f"{key}={shlex.quote(value)}" for key, value in environment.items()]
    return " ".join([*settings, shlex.join(word.removeprefix(f"{root}{os.sep}") for word in words)])


class Stages:
    """Runs programs into one results folder. Single-threaded; owns its children while a stage runs. After every stage
    the folder is complete as far as it goes. What the stages are is the subclass's run_stages().
    """

    def __init__(self, root, folder, display, record):
        self.root, self.folder, self.display = root, folder, display
        self.record = {"schema": SCHEMA, "state": "running", **{part: [] for part in PARTS}, **record}

    def save(self):
        self.folder.write_json("results.json", self.record)

    def run(self):
        """All stages. Returns whether none failed. KeyboardInterrupt passes through once the state is saved."""
        try:
            self.save()
            self.run_stages()
            self.record["state"] = "failed" if self.record["failures"] else "complete"
        except KeyboardInterrupt:
            self.record["state"] = "interrupted"
            raise
        finally:
            self.save()
        return not self.record["failures"]

    def stage(self, name, slug, command, limit_s, environment, on_tick=None, total=None, directory=None):
        """Runs one program as a stage. Returns whether it succeeded; a failure is written down and said."""
        log = self.folder.place(f"logs/{slug}.log")
        before = time.monotonic()
        words = [str(word) for word in command]
        done, reason = False, f"{name} was interrupted"
        try:
            with self.display.stage(name, total=total):
                outcome = processes.run(words, log, limit_s, environment, directory or self.root, on_tick)
                processes.require_success(name, outcome, log)
            done = True
        except processes.StageError as error:
            reason = str(error)
        finally:
            shown = telling({key: value for key, value in environment.items() if os.environ.get(key) != value})
            stage = {"name": name, "seconds": round(time.monotonic() - before, 1), "succeeded": done}
            stage |= {"log": self.folder.relative(log), "command": shell_line(shown, words, self.root)}
            self.note_stage(stage, reason)
        return done

    def note_stage(self, stage, reason):
        """Writes down how a stage ended."""
        if not stage["succeeded"]:
            self.fail(stage["name"], reason, self.folder.place(stage["log"]))
        self.record["stages"].append(stage)
        self.save()

    def fail(self, name, reason, log):
        self.record["failures"].append({"stage": name, "reason": reason, "log": self.folder.relative(log)})
        self.display.line(reason, style="red")

    def leave_out(self, what, why):
        self.record["left_out"].append({"what": what, "why": why})
        self.display.line(f"{what} is left out: {why}", style="yellow")
        self.save()
