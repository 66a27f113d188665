"""Progress as plain lines, with nothing but Python's own library: for a log, and for a guest where every import takes
seconds."""

import sys
import time
from contextlib import contextmanager

from gloo_bypass_tools.report import machine, wording


def show_start(program, described, more=""):
    """The machine that is measured, and a warning where it is busy. `described`: by machine.describe_system()."""
    load = described["load_before"]
    print(f"{machine.in_words(described)}, {machine.quiet_in_words(load)}{more}", flush=True)
    if load > machine.QUIET_LOAD:
        print(f"{program}: other programs are running: figures would be of a busy machine", file=sys.stderr)


def show_progress(text):
    print(f"  {text}", file=sys.stderr, flush=True)


class LineDisplay:
    """Says which stage runs and how it ended. Single-threaded, one stage at a time."""

    @contextmanager
    def stage(self, name, total=None):
        """Shows a stage while the body runs; a line remains of it. `total` counts what advance() reports."""
        started = time.monotonic()
        self.begin(name, total)
        ended = "failed"
        try:
            yield self
            ended = "done"
        except KeyboardInterrupt:
            ended = "stopped"
            raise
        finally:
            self.end(name, ended, wording.duration(time.monotonic() - started))

    def begin(self, name, total):
        self.line(f"{name} ...")

    def end(self, name, ended, duration):
        self.line(f"{ended:<7} {name:<26} {duration:>12}")

    def advance(self, completed=None, total=None, note=""):
        """How far the present stage is: not shown."""

    def line(self, text, style=""):
        print(text, flush=True)
