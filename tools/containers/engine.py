"""podman and docker: the same commands, and what differs between them."""

import os
import resource
import shutil
import subprocess

from gloo_bypass_tools.common.failures import Failure
from gloo_bypass_tools.common.processes import ask

ANSWER_LIMIT_S = 120.0
# Podman asks for a million processes and files in every container. More than this no rank needs.
MOST_FILES, MOST_PROCESSES = 65536, 32768


class ContainerError(Failure):
    pass


def meaningful_line(text):
    """The line of an engine's message that names the cause: its last one with something in it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "fatal"))]
    return (errors or lines or ["no message"])[-1][:400]


def may_raise_limits():
    """Whether this process may raise a hard limit. A child tries it, so that nothing changes here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard == resource.RLIM_INFINITY:
        return True
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard + 1))
            os._exit(0)
        except (OSError, ValueError):
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def bounded(limit, most):
    hard = resource.getrlimit(limit)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


class Engine:
    """podman or docker, found and answering."""

    def __init__(self, name, runtime=None):
        self.name = name
        self.prefix = [name] + (["--runtime", runtime] if runtime and name == "podman" else [])
        self.run_options = ["--runtime", runtime] if runtime and name == "docker" else []
        self.confined = name == "podman" and os.geteuid() == 0 and not may_raise_limits()

    @property
    def is_podman(self):
        return self.name == "podman"

    def limits(self):
        """Options that keep podman from asking for limits above our own where it may not raise them."""
        if not self.confined:
            return []
        files, processes = bounded(resource.RLIMIT_NOFILE, MOST_FILES), bounded(resource.RLIMIT_NPROC, MOST_PROCESSES)
        return ["--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}"]

    def read_only(self):
        """Options for a root file system that cannot be written, but for an empty /tmp."""
        if self.is_podman:  # which would fill /run, /tmp and /var/tmp with copies of what lies there
            return ["--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp:rw,mode=1777,notmpcopyup"]
        return ["--read-only", "--tmpfs", "/tmp:rw,mode=1777"]

    def limit(self, text):
        """`text` as memlock=-1:-1; where limits may only be lowered, the highest that may be had."""
        if not self.confined:
            return text
        name = text.partition("=")[0]
        hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
        return f"{name}=-1:-1" if hard == resource.RLIM_INFINITY else f"{name}={hard}:{hard}"

    def answer(self, *words, limit_s=ANSWER_LIMIT_S):
        """The standard output of `podman WORDS...`. Raises ContainerError if it fails or takes too long."""
        try:
            done = ask([*self.prefix, *words], limit_s, start_new_session=True)
        except subprocess.TimeoutExpired as error:
            raise ContainerError(f"{self.name} {words[0]} has not answered for {limit_s:.0f} s") from error
        except OSError as error:
            raise ContainerError(f"cannot start {self.name}: {error.strerror}") from error
        if done.returncode != 0:
            raise ContainerError(f"{self.name} {words[0]} failed: {meaningful_line(done.stderr)}")
        return done.stdout

    def has_image(self, image):
        try:
            self.answer("image", "inspect", "--format", "{{.Id}}", image)
            return True
        except ContainerError:
            return False


def find_engine(wanted=None, runtime=None):
    """The engine that was asked for, else the first of podman and docker that answers."""
    names = [wanted] if wanted else ["podman", "docker"]
    reasons = []
    for name in names:
        if not shutil.which(name):
            reasons.append(f"{name} is not installed")
            continue
        engine = Engine(name, runtime)
        try:
            engine.answer("version")  # docker's fails without its daemon
            return engine
        except ContainerError as error:
            reasons.append(str(error))
    raise ContainerError(
        "no container engine: " + "; ".join(reasons) + "; scripts/install-packages containers installs podman"
    )
