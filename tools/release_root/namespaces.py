"""Mount and process namespaces, with util-linux's unshare: nothing stays mounted or running when the command ends,
however it ends.

As root the namespaces suffice. Other users get a user namespace as well, in which they are root; their ranges in
/etc/subuid and /etc/subgid stand for the other users of the root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.release_root.failures import RootError

TRY_LIMIT_S = 30
ENDS_WITHIN_S = 10.0  # what SIGTERM does not end in this time is killed


def prefix():
    """The words before a command that is to run in namespaces of its own, as root of them."""
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return words if os.geteuid() == 0 else [*words, "--user", "--map-root-user", "--map-auto"]


def check():
    if not shutil.which("unshare"):
        raise RootError("unshare is not installed: it is in Debian's package util-linux")
    try:
        done = processes.ask([*prefix(), "true"], TRY_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise RootError(f"unshare did not answer within {TRY_LIMIT_S} s") from error
    if done.returncode != 0:
        advice = "run this as root, or give this user ranges in /etc/subuid and /etc/subgid and install uidmap"
        if os.geteuid() == 0:
            advice = "this container lacks the right to mount"
        raise RootError(f"no namespaces can be made here ({processes.errors_of(done)[-1]}): {advice}")


def run(command, limit_s=None, **options):
    """Runs a command in namespaces and returns its exit status. An exception here, a signal's among them, or the time
    limit (subprocess.TimeoutExpired) ends it and all that it started."""
    with processes.Child([*prefix(), *map(str, command)], **options) as process:
        try:
            return process.wait(timeout=limit_s)
        except BaseException:
            end(process)
            raise


def end(process):
    """unshare itself does not heed SIGTERM; the command does. Killed, it takes the whole process namespace along."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)
    processes.ended_within(process, ENDS_WITHIN_S)
