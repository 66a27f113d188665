"""Where a run takes place: on this machine, or in the guest of scripts/rdma-guest. The guest's kernel has netem and
SoftRoCE."""

import os
import subprocess
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.argument_types import split_at_dashes
from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.fabric_run.failures import FabricRunError

GUEST = program_places.script("rdma-guest")
HOST, IN_GUEST = "host", "guest"
PROBE_S = 30.0
# Booting, loading programs, taking away: beyond --timeout, on a busy machine.
GUEST_START_S = 300


# Each part that the links are made of, on an interface of a namespace that goes again at once.
NETEM_PROBE = """set -e
ip link add probe type ifb
ip link add bridge type bridge
tc qdisc add dev probe root handle 1: netem delay 1ms
tc qdisc add dev probe parent 1:1 tbf rate 1gbit burst 20000b limit 20000b
tc qdisc add dev probe ingress
tc filter add dev probe parent ffff: matchall action mirred egress redirect dev bridge
"""


def why_no_netem():
    enclosure.reach_administrators_programs()
    try:
        done = ask([*enclosure.unshare_words(), "sh", "-c", NETEM_PROBE], PROBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"netem could not be tried: {error}"
    if done.returncode == 0:
        return ""
    return f"this kernel ({os.uname().release}) does not make links with netem: {errors_of(done)[0]}"


def why_no_softroce():
    if os.geteuid() != 0:
        return "SoftRoCE devices are root's to make"
    if Path("/sys/module/rdma_rxe").exists():
        return ""
    try:
        loaded = ask(["modprobe", "rdma_rxe"], PROBE_S).returncode == 0
    except (OSError, subprocess.SubprocessError):
        loaded = False
    return "" if loaded else f"this kernel ({os.uname().release}) has no SoftRoCE (rdma_rxe)"


def lacking(roce):
    """Why such a run cannot be here, in a phrase; '' where it can."""
    return (why_no_softroce() if roce else "") or why_no_netem()


def guest_problem():
    """Why there is no guest, in a line; '' where there is one."""
    from gloo_bypass_tools.rdma_guest.command import missing

    return "; ".join(missing())


def choose(asked, netem, roce, guest_problem):
    """(HOST or IN_GUEST, why). `asked`: 'auto' or one of them; `guest_problem()` says in a line why the guest is not
    available, or nothing."""
    why = lacking(roce) if netem and asked != IN_GUEST else ""
    if asked == HOST and why:
        raise FabricRunError(f"--where host: {why}; --where guest runs it in a guest whose kernel has that", 2)
    if asked == HOST or asked == "auto" and not why:
        return HOST, ""
    problem = guest_problem()
    if problem:
        raise FabricRunError(f"{why + ', and ' if why else ''}the guest is not available: {problem}", 2)
    return IN_GUEST, why or "asked for"


def guest_command(arguments, output, timeout_s):
    """The command line of the guest; `arguments` are this run's own."""
    own, program = split_at_dashes(arguments)
    guest = [GUEST, "run", "--rxe", 0, "--timeout", int(timeout_s) + GUEST_START_S, "--writable", output.parent]
    run = [program_places.script("fabric-run"), *own, "--where", HOST, *program]
    return [str(word) for word in (*guest, "--", *run)]


def become_guest(arguments, output, timeout_s):
    """Replaces this process by the guest's, which shows the run's output and ends with its status."""
    from gloo_bypass_tools.rdma_guest.command import MOST_SECONDS

    most_s = MOST_SECONDS - GUEST_START_S
    if timeout_s > most_s:
        raise FabricRunError(f"--timeout {timeout_s:g}: in the guest it must be {most_s} at most", 2)
    if output.exists():
        raise FabricRunError(f"--output {output}: File exists: choose a folder that does not exist yet", 2)
    output.parent.mkdir(parents=True, exist_ok=True)
    command = guest_command(arguments, output, timeout_s)
    os.execv(command[0], command)
