"""The namespaces that a run lives in, and that take all of it away at the end.

    fabric-run (outside)                waits, hands on signals
      unshare                           makes namespaces: network, mounts, processes; without root also users
        fabric-run --inside             process 1 of them: makes interfaces, starts the fabric and the ranks
          fabric, rank 0, rank 1, ...

When process 1 ends, for whatever reason, the kernel ends every process in its namespace, and with the last of them go
the network namespaces, interfaces and mounts. Nothing of it is visible outside, so nothing can be left behind; a killed
fabric-run takes its child with it (parent-death signals).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.common.failures import BAD_INPUT, exit_status
from gloo_bypass_tools.fabric_run.failures import FabricRunError

INSIDE = "--inside"
TRY_LIMIT_S = 60.0
# While unshare makes the namespaces: milliseconds.
START_POLL_S = 0.001
TOOLS = ("unshare", "setpriv", "nsenter", "mount", "hostname", "ip", "ethtool")


def reach_administrators_programs():
    """ip, tc and ethtool lie in folders that Debian leaves out of a user's PATH."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(dict.fromkeys([*folders, "/usr/local/sbin", "/usr/sbin", "/sbin"]))


def check_tools(*more):
    reach_administrators_programs()
    missing = [tool for tool in (*TOOLS, *more) if shutil.which(tool) is None]
    if missing:
        raise FabricRunError(f"{', '.join(missing)} not found: scripts/install-packages brings them", 2)


def unshare_words(own_network=True):
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", *(["--net"] if own_network else [])]
    words += ["--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    return words if os.geteuid() == 0 else [*words, "--user", "--map-root-user"]


def check_right():
    """Whether these namespaces, and an interface in them, can be made."""
    done = processes.ask([*unshare_words(), *"ip link add v0 type veth peer name v1".split()], TRY_LIMIT_S)
    if done.returncode != 0:
        why = processes.errors_of(done)[-1]
        raise FabricRunError(
            f"no right to make network namespaces here ({why}): run it as root, or where users may make user "
            "namespaces (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns); in a "
            "container with --cap-add SYS_ADMIN --cap-add NET_ADMIN"
        )


def has_child(pid):
    """Whether it has forked; also where the kernel does not say (CONFIG_PROC_CHILDREN)."""
    try:
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    except OSError:
        return True


def run_inside(folder, arguments, own_network=True):
    """This command again, in the namespaces; `folder` is an empty one that it may mount something on. Its exit
    status."""
    words = [*unshare_words(own_network), sys.executable, sys.argv[0], INSIDE, folder, *arguments]
    # A signal waits until there is whom to hand it on to, process 1 (unshare keeps to itself what comes before it has
    # forked that), and there until the command can handle it: the kernel takes from process 1 what it has no handler
    # for.
    signal.pthread_sigmask(signal.SIG_BLOCK, processes.ENDING)
    # A session of its own: Ctrl-C reaches this process only, which hands it on.
    process = processes.Child(words, stdin=subprocess.DEVNULL, start_new_session=True)

    def hand_on(number, _frame):
        # unshare has them blocked still; its child, in the same group, ends in order and says so.
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass

    while process.poll() is None and not has_child(process.pid):
        time.sleep(START_POLL_S)
    processes.handle(processes.ENDING, hand_on)
    status = process.wait()
    return 128 - status if status < 0 else status


def make_output(folder):
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        why = f"--output {folder}: {error.strerror}: choose a folder that does not exist yet"
        raise FabricRunError(why, BAD_INPUT) from error


def run_command(program, results, parse, run_within, run_outside, arguments=None, failures=(OSError,)):
    """main() of a command that starts itself again within the namespaces: `run_outside(options, arguments)` here,
    `run_within(options, folder)` there. `results`: how its default output folder begins. Its exit status; what ended it
    is one line on stderr. `failures`: exceptions with the status 1."""
    arguments = sys.argv[1:] if arguments is None else arguments
    inside = arguments[:1] == [INSIDE]
    if not inside:
        # One name for both: the default has the time in it.
        chosen = program_places.results() / time.strftime(f"{results}-%Y%m%d-%H%M%S")
        arguments = ["--output", str(chosen), *arguments]
    options = parse(arguments[2:] if inside else arguments)
    options.output = options.output.absolute()

    def body():
        processes.interrupt_once()
        return run_within(options, arguments[1]) if inside else run_outside(options, arguments)

    return exit_status(program, body, failures)
