"""Child processes, where a signal's handler raises an exception."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import ROOT
from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.rank_processes import free_port

INTERRUPTIONS = 2000
LIMIT_S = 30.0
# Popen's own poll() is left with its lock taken about once in eight times.
LEAST_S, MOST_S = 20e-6, 200e-6


class Alarm(Exception):
    pass


@pytest.fixture
def alarm():
    def ring(_number, _frame):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def poll_again_and_again(process):
    while True:
        process.poll()


@pytest.mark.parametrize(
    "look",
    [poll_again_and_again, lambda process: process.wait(LIMIT_S), lambda process: process.wait()],
    ids=["poll", "wait with a limit", "wait"],
)
def test_Child_LooksLeftByASignal_CanBeAwaited(alarm, look):
    process = processes.start(["sleep", "600"], subprocess.DEVNULL)
    moments = random.Random(1)
    try:
        for _ in range(INTERRUPTIONS):
            with pytest.raises(Alarm):
                alarm(moments.uniform(LEAST_S, MOST_S))
                look(process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait(LIMIT_S) == -signal.SIGKILL


def test_Child_SignalThatAnotherThreadGets_EndsTheWait(alarm):
    """It interrupts no system call of the thread that waits."""
    alarm(0)
    process = processes.start(["sleep", LIMIT_S], subprocess.DEVNULL)

    def ring():
        time.sleep(0.3)  # the wait has begun; if it has not, the test is easier
        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)

    thread = threading.Thread(target=ring)
    try:
        with pytest.raises(Alarm):
            thread.start()
            process.wait()
    finally:
        thread.join()
        process.kill()
    assert process.wait() == -signal.SIGKILL


def test_Child_EndedAndFetchedElsewhere_HasEnded():
    process = processes.start(["true"], subprocess.DEVNULL)
    os.waitpid(process.pid, 0)
    assert process.poll() == 0 and process.wait(LIMIT_S) == 0


def test_Child_StillRunning_WaitEndsAtItsLimit():
    process = processes.start(["sleep", "600"], subprocess.DEVNULL)
    try:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL


@pytest.mark.usefixtures("alarm")
def test_Ask_LeftByASignal_LeavesNoProcess(tmp_path):
    with pytest.raises(Alarm):
        # Not before it has its input: the signal is not to come while it is being started.
        script = f"read line; echo $$ > {tmp_path}/pid; kill -ALRM $PPID; exec sleep 600"
        processes.ask(["sh", "-c", script], LIMIT_S, text="go\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_Ask_WithText_HasOutputErrorsAndStatus():
    done = processes.ask(["sh", "-c", "cat; echo wrong >&2; exit 3"], LIMIT_S, text="said")
    assert (done.returncode, done.stdout, done.stderr) == (3, "said", "wrong\n")


@pytest.mark.parametrize("ignored, status, said", [(True, 0, "goes on\n"), (False, 128 + signal.SIGHUP, "")])
def test_InterruptOnce_HangUp_EndsTheCommandUnlessItIsIgnored(ignored, status, said):
    """As nohup has it."""
    program = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        "from gloo_bypass_tools.common import failures, processes\n"
        "def body():\n"
        "    processes.interrupt_once()\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print('goes on')\n"
        "sys.exit(failures.exit_status('x', body))\n"
    )
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        done = processes.ask([sys.executable, "-c", program], LIMIT_S)
    finally:
        signal.signal(signal.SIGHUP, hang_up)
    assert (done.returncode, done.stdout) == (status, said)


def test_InterruptOnce_SignalWhileAProcessStarts_EndsBoth(tmp_path):
    program = (
        "import os, signal, subprocess, sys\n"
        f"sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        "from gloo_bypass_tools.common import failures, processes\n"
        "def in_child():\n"
        f"    open('{tmp_path}/pid', 'w').write(str(os.getpid()))\n"
        "    os.kill(os.getppid(), signal.SIGTERM)\n"
        "def body():\n"
        "    processes.interrupt_once()\n"
        "    processes.start(['sleep', '600'], subprocess.DEVNULL, before_exec=in_child)\n"
        "sys.exit(failures.exit_status('x', body))\n"
    )
    done = processes.ask([sys.executable, "-c", program], LIMIT_S)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "x: ended by SIGTERM\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_FreePort_OfARank_IsNotOneThatConnectionsGet():
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 <= free_port() < first for _ in range(20)) or first <= 2048
