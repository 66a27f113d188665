"""The rank image and, for machines that reach no registry, the base image under it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.debian_mirror import apt_options, debian_mirror
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.containers.engine import ContainerError

CONTAINERFILE = ROOT / "containers" / "Containerfile"
BASE_IMAGE = "debian:bookworm"
SUITE = "bookworm"
BUILD_LIMIT_S, BASE_LIMIT_S = 7200.0, 900.0


def run_visibly(command, limit_s, what, environment=None):
    """Runs a long command with its output on our stderr; raises ContainerError if it fails."""
    try:
        process = processes.start(command, 2, environment=environment)
    except OSError as error:
        raise ContainerError(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        status = process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise ContainerError(f"{what} was stopped after {limit_s:.0f} s") from error
    finally:
        if process.poll() is None:
            processes.end_group(process)
    if status != 0:
        raise ContainerError(f"{what} failed with status {status}; what it said is above")


def make_base_image(engine):
    """debian:bookworm from this machine's Debian mirror by mmdebstrap, unless there is one."""
    if engine.has_image(BASE_IMAGE):
        return
    if not shutil.which("mmdebstrap"):
        raise ContainerError("mmdebstrap is not installed: run scripts/install-packages containers")
    with tempfile.TemporaryDirectory(prefix="gloo-bypass-base-") as folder:
        archive = Path(folder) / "base.tar"
        # This machine's settings of apt are for the making: in a container, an address in them may mean another
        # machine.
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", *apt_options()]
        command += ['--customize-hook=rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"', SUITE, str(archive), debian_mirror()]
        run_visibly(command, BASE_LIMIT_S, "mmdebstrap")
        engine.answer("import", archive, BASE_IMAGE, limit_s=BASE_LIMIT_S)


def build_rank_image(engine, image, extra_packages=()):
    command = [*engine.prefix, "build", "--file", str(CONTAINERFILE), "--target", "rank", "--tag", image]
    if extra_packages:
        command += ["--build-arg", "EXTRA_PACKAGES=" + " ".join(extra_packages)]
    # The mounts of RUN need BuildKit, which docker 20 has but does not use unasked.
    environment = dict(os.environ, DOCKER_BUILDKIT="1")
    run_visibly([*command, *engine.limits(), str(ROOT)], BUILD_LIMIT_S, f"{engine.name} build", environment)
