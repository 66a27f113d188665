"""Progress on a terminal, and plain lines where there is none (a log, a pipe)."""

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gloo_bypass_tools.report.lines import LineDisplay


def console_for_output():
    """A console that does not break lines at 80 columns if the output is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


COLOURS = {"done": "green", "failed": "red", "stopped": "yellow"}


class Display(LineDisplay):
    """Says which stage runs, and on a terminal how far it is."""

    def __init__(self, console=None):
        self.console = console or console_for_output()
        self._progress = None
        self._task = None

    def begin(self, name, total):
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description:<26}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}", style="dim"),
                console=self.console,
                transient=True,
            )
            self._task = self._progress.add_task(escape(name), total=total, note="")
            self._progress.start()
        else:
            self.console.print(f"{name} ...")

    def end(self, name, ended, duration):
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        self.console.print(f"[{COLOURS[ended]}]{ended:<7}[/] {escape(name):<26} {duration:>12}")

    def advance(self, completed=None, total=None, note=""):
        """The present stage has come so far; shown on a terminal only."""
        if self._progress is None:
            return
        # Of what is None the progress stays as it was.
        self._progress.update(self._task, completed=completed, total=total, **({"note": escape(note)} if note else {}))

    def line(self, text, style=""):
        self.console.print(text, style=style, markup=False, soft_wrap=True)
