"""Child processes: started with their output in a log, watched, and ended. No child outlives the command that started
it.

Each child is in a process group of its own: Ctrl-C reaches the command alone, which ends its children in order.
"""

import ctypes
import math
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common.failures import BAD_INPUT, Failure, Interrupted

POLL_S = 0.05
# Before a second look at a process, then twice as long each time.
FIRST_PAUSE_S = 0.0005
# Between two calls of what shows progress.
TICK_S = 0.1
# Time between the request to stop and the end by force: enough for a rank to remove its sockets and files.
GRACE_S = 5.0
TAIL_BYTES = 16384
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# <linux/prctl.h>
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class StageError(Failure):
    """A program failed; the text is one line that names the stage, the reason and the log."""

    status = BAD_INPUT


class _Held:
    """Within it, what a signal's handler would raise waits in `interruption`."""

    current = None

    def __init__(self):
        self.interruption = None

    def __enter__(self):
        _Held.current = self

    def __exit__(self, *_):
        _Held.current = None


def _interrupt(error):
    """In a signal's handler."""
    if _Held.current is None:
        raise error
    _Held.current.interruption = error


class Child(subprocess.Popen):
    """A process whose waits may be left by an exception that a signal's handler raises.

    Popen's own poll() and wait(timeout) take a lock by hand. An exception between that and their `try` leaves it taken,
    and the next wait() never returns (seen with CPython 3.11). Here a look at the process takes no lock. Only its end
    is fetched under it, by a `with` statement.

    No wait blocks in the kernel for longer than POLL_S: a signal that arrives just before it blocks, or in another
    thread, does not end a system call, and its handler would run once the process ends.

    A signal that interrupts the command (interrupt_on, interrupt_once) while a process is being started ends that one
    first: nobody knows it yet.
    """

    def __init__(self, *arguments, **options):
        if threading.current_thread() is not threading.main_thread():  # which alone has handlers
            super().__init__(*arguments, **options)
            return
        fault, held = None, _Held()
        with held:
            try:
                super().__init__(*arguments, **options)
            except Exception as error:
                fault = error
        if held.interruption is not None:
            if fault is None:
                self.kill()
                self.__exit__(None, None, None)
            raise held.interruption
        if fault is not None:
            raise fault

    def poll(self):
        if self.returncode is None and self._has_ended():
            super().wait()
        return self.returncode

    def wait(self, timeout=None):
        deadline, pause = time.monotonic() + (math.inf if timeout is None else timeout), FIRST_PAUSE_S
        while self.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(min(pause, left))
            pause = min(2 * pause, POLL_S)
        return self.returncode

    def _has_ended(self):
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True  # fetched by somebody else: wait() knows what that means


@dataclass(frozen=True)
class Outcome:
    """How a program ended. `status` is its exit status, or None where the time limit ended it."""

    status: int | None
    seconds: float


def described(status):
    """How a process ended, as it follows its name: ended by SIGKILL; status 3."""
    if status >= 0:
        return f"status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def describe_status(status):
    """The same as a verb: was ended by SIGKILL; exited with status 3."""
    return f"{'was' if status < 0 else 'exited with'} {described(status)}"


def last_lines(path, count):
    """The last lines of a log, from its last 16 KiB."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()[-count:]


def last_line(log_path, limit=300):
    """The last line with something in it: usually the reason. '' where there is no log."""
    try:
        lines = last_lines(log_path, TAIL_BYTES)
    except OSError:
        return ""
    return next((line.strip()[-limit:] for line in reversed(lines) if line.strip()), "")


def end_with_starter():
    """In a child before exec: it is killed when the thread that started it ends, even where that was killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(words, output, errors=subprocess.STDOUT, environment=None, directory=None, before_exec=None):
    """`output`, `errors`: open files; by default both go to `output`. Raises OSError where it cannot be started."""
    return Child(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env=environment and {name: str(value) for name, value in environment.items()},
        cwd=directory,
        start_new_session=True,
        preexec_fn=before_exec,
    )


def ask(words, limit_s, text="", **options):
    """Runs a program to its end, with `text` as its input: a CompletedProcess with its output. Raises OSError where it
    cannot be started, subprocess.TimeoutExpired after `limit_s`."""
    words, pipe = [str(word) for word in words], subprocess.PIPE
    with Child(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", **options) as process:
        try:
            output, errors = process.communicate(text, timeout=limit_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def errors_of(done):
    """What a program that was asked said on stderr, a string a line; its status where it said nothing."""
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return said or [f"status {done.returncode}"]


def wait_for_line(process, log, text, limit_s):
    """Until `text` is in the log of a process that goes on. False where it ended without; raises TimeoutError."""
    deadline = time.monotonic() + limit_s
    while True:
        ended = process.poll() is not None  # before the log is read: what it said at its end is there then
        if text in Path(log).read_bytes():
            return True
        if ended:
            return False
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(POLL_S)


def interrupted(process, limit_s):
    """Ends a process as Ctrl-C does, or by force once the limit is over. Whether it ended by itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    return ended_within(process, limit_s)


def ended_within(process, limit_s):
    """Waits for its end, and makes it end once the limit is over. Whether it ended by itself."""
    try:
        process.wait(limit_s)
        return True
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def group_signal(group, number):
    try:
        os.killpg(group, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def end_group(process):
    """Asks the group to stop, waits GRACE_S at most, then ends it by force."""
    group = process.pid
    if process.poll() is None and group_signal(group, signal.SIGTERM):
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            pass
    # Ranks may outlive their parent; the leader may ignore the request.
    group_signal(group, signal.SIGKILL)
    if process.poll() is None:
        process.wait()


def run(command, log_path, limit_s, environment=None, directory=None, on_tick=None):
    """Runs `command` to its end, at most `limit_s` seconds. Calls `on_tick()` about ten times a second.

    Returns its Outcome. Raises StageError where it cannot be started, and lets KeyboardInterrupt through
    once the whole group is ended.
    """
    started = time.monotonic()
    with open(log_path, "ab") as log:
        log.write(("$ " + " ".join(map(str, command)) + "\n").encode())
        log.flush()
        try:
            process = start(command, log, environment=environment, directory=directory, before_exec=end_with_starter)
        except OSError as error:
            raise StageError(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        while True:
            try:
                status = process.wait(timeout=TICK_S)
                return Outcome(status, time.monotonic() - started)
            except subprocess.TimeoutExpired:
                pass
            if on_tick:
                on_tick()
            if time.monotonic() - started > limit_s:
                return Outcome(None, time.monotonic() - started)
    finally:
        end_group(process)


def require_success(stage, outcome, log_path):
    """Raises StageError unless the outcome is a success."""
    if outcome.status == 0:
        return
    reason = (
        f"was stopped after {outcome.seconds:.0f} s without an end"
        if outcome.status is None
        else describe_status(outcome.status)
    )
    said = last_line(log_path)
    raise StageError(f"{stage} {reason}; log: {log_path}" + (f"; last line: {said}" if said else ""))


def handle(numbers, handler):
    """Of those that end a command, but SIGHUP where it is ignored: nohup has it so. One that came while they were
    blocked (enclosure.run_inside) is handled now."""
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def interrupt_on(*numbers):
    """Makes these signals end the command as Ctrl-C does."""

    def interrupt(_number, _frame):
        _interrupt(KeyboardInterrupt())

    handle(numbers, interrupt)


def interrupt_once():
    """The first signal that asks for the end raises Interrupted. Later ones do not interrupt the clean-up, which takes
    a bounded time."""

    def interrupt(number, _frame):
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        _interrupt(Interrupted(number))

    handle(ENDING, interrupt)
