"""Changes of the links at their times: one `tc -batch` for a script of `fabric --netem`, told each change when its
moment has come.

A process for every change, as the script by itself has it, takes milliseconds to start, in the guest a good part of a
second: a link that is to be down for 200 ms would be down for twice as long, and every later moment come later. Times
are from start(), whatever the changes before took. Owned by one thread; the changes are made by another of its own.
"""

import subprocess
import threading
import time

from gloo_bypass_tools.common.processes import Child

END_S = 10.0


def changes_of(script):
    """[(seconds since the begin, tc's lines for its batch)] of the script's timed part: sleeps, and commands after
    each."""
    found, at_s = [], 0.0
    for line in script.splitlines():
        word, _, rest = line.partition(" ")
        if word == "sleep":
            at_s += float(rest.partition("#")[0])
            found.append((round(at_s, 6), []))
        elif word == "tc" and found:
            found[-1][1].append(rest)
    return found


class TimedChanges:
    """`prefix`: words that lead into the links' namespace; `log`: an open file for what tc says."""

    def __init__(self, prefix, changes, log):
        self.changes, self.stopped = changes, threading.Event()
        self.process = Child(
            [*prefix, "tc", "-batch", "-"],
            bufsize=0,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._carry_out, daemon=True)
        self.thread.start()

    def _carry_out(self):
        for at_s, lines in self.changes:
            if self.stopped.wait(max(0.0, self.began + at_s - time.monotonic())):
                return
            try:
                self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            except OSError:
                return  # tc has ended; failed() says so

    def failed(self):
        """How tc ended, if it did: it lasts as long as it is not stopped, and ends at a command that it cannot do. None
        while all is well."""
        return self.process.poll()

    def stop(self):
        self.stopped.set()
        self.thread.join(END_S)
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
