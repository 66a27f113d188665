"""Progress as plain lines, with nothing but Python's own library: for a log, and for a guest where every import takes
seconds."""

import time
from contextlib import contextmanager

from gloo_bypass_tools.report import wording


class LineDisplay:
    """Says which stage runs and how it ended. Single-threaded, one stage at a time; display.Display has the same
    methods."""

    @contextmanager
    def stage(self, name, total=None):
        """Shows a stage while the body runs. `total` is what a display with a bar needs."""
        started = time.monotonic()
        self.line(f"{name} ...")
        ended = "failed"
        try:
            yield self
            ended = "done"
        except KeyboardInterrupt:
            ended = "stopped"
            raise
        finally:
            self.line(f"{ended:<7} {name:<26} {wording.duration(time.monotonic() - started):>12}")

    def advance(self, completed=None, total=None, note=""):
        """How far the present stage is: not shown."""

    def line(self, text, style=""):
        print(text, flush=True)
