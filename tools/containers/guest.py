"""The same run inside the guest of scripts/rdma-guest, which has SoftRoCE where this machine's kernel has none."""

import argparse
import os
from pathlib import Path

from gloo_bypass_tools.common.argument_types import split_at_dashes
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.containers.engine import ContainerError

# Booting, and an engine that takes a minute for what takes a second outside: the guest's processor is emulated.
START_LIMIT_S = 1800


def with_whole_paths(words):
    """The guest runs it in another folder."""
    parser = argparse.ArgumentParser(add_help=False)
    for flag in ("--data", "--rootfs"):
        parser.add_argument(flag, type=os.path.abspath)
    found, rest = parser.parse_known_args(words)
    return [*rest, *(word for name, path in vars(found).items() if path for word in (f"--{name}", path))]


def guest_command(arguments, output, timeout_s):
    """The command line of the guest; `arguments` are this run's own, --guest included."""
    own, program = split_at_dashes(arguments)
    own = [word for word in with_whole_paths(own) if word != "--guest"]
    guest = [ROOT / "scripts" / "rdma-guest", "run", "--timeout", int(timeout_s) + START_LIMIT_S]
    run = [ROOT / "containers" / "guest-storage", ROOT / "scripts" / "run-containers", *own, "--engine", "podman"]
    words = [*guest, "--writable", output.parent, "--", *run, "--output", output, *program]
    return [str(word) for word in words]


def become_guest(arguments, output, timeout_s):
    """Replaces this process by the guest's, which shows the run's output and ends with its status."""
    command = guest_command(arguments, output, timeout_s)
    if not Path(command[0]).exists():
        raise ContainerError(f"{command[0]} is missing")
    if output.exists():
        raise ContainerError(f"{output} exists already: choose another --output")
    output.parent.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.execv(command[0], command)
