"""The ranks of one run: their network, volumes and containers, from the first to be made to the last to be removed.

Everything carries the run's label, by which close() finds all of it, whatever ended the run.
"""

import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path

from gloo_bypass_tools.common.rank_processes import Ranks, StillRunning, free_port
from gloo_bypass_tools.containers import seccomp
from gloo_bypass_tools.containers.engine import ContainerError
from gloo_bypass_tools.containers.recipes import MASTER_PORT, RESULTS_DIRECTORY, SHARED_DIRECTORY

LABEL = "gloo-bypass.run"
# Beyond the run's own limit: how long a container of several ranks lives on where nobody ends it.
ORPHAN_S = 60
# How long an engine's client may take to end after its container.
CLIENT_S = 5.0


@dataclass(frozen=True)
class Job:
    """What is to run. Without `image` the ranks see the root file system `rootfs` (podman only), and write to a
    copy."""

    recipe: object
    ranks: int  # a multiple of ranks_per_container
    program: list
    output: Path
    timeout_s: float
    image: str = ""
    rootfs: str = ""
    environment: dict = field(default_factory=dict)
    data: Path | None = None
    ranks_per_container: int = 1


class RankGroup:
    """Makes what the ranks share, starts them, waits for them. Use as a context: leaving it removes everything that was
    made."""

    def __init__(self, engine, job):
        self.engine = engine
        self.job = job
        self.id = "gloo-bypass-" + secrets.token_hex(4)
        self.ranks = Ranks(job.output)
        self.network = ""
        self.volumes = {}
        self.profile = []
        self.waiting = []  # containers that run no rank themselves: each waits while several are executed in it

    def __enter__(self):
        try:
            self.make_shared()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    # What the ranks share.

    def make_shared(self):
        if not self.job.recipe.host_network:
            self.network = self.id
            self.engine.answer("network", "create", "--label", f"{LABEL}={self.id}", self.network)
        self.make_volume("results", RESULTS_DIRECTORY)
        if self.job.recipe.shares_memif:
            self.make_volume("memif", SHARED_DIRECTORY)
        calls = self.job.recipe.granted("syscall")
        path = self.job.output / "seccomp.json"
        if calls and seccomp.write_profile(calls, path):
            self.profile = ["--security-opt", f"seccomp={path}"]

    def make_volume(self, purpose, mount_point):
        """A volume that takes its owner and mode from the image's folder; for a root file system podman gets the owner
        as an option."""
        name = f"{self.id}-{purpose}"
        owner = []
        if self.job.rootfs:
            user = self.job.recipe.user
            owner = ["--opt", f"o=uid={user},gid={user}"]
        self.volumes[mount_point] = name
        self.engine.answer("volume", "create", "--label", f"{LABEL}={self.id}", *owner, name)

    # The ranks.

    def container_of(self, number):
        """Named after the first rank in it."""
        return f"{self.id}-rank{number - number % self.job.ranks_per_container}"

    def environment_of(self, number):
        """Who the rank is, what the transport needs, then what the caller says."""
        master = "127.0.0.1" if self.job.recipe.host_network else self.container_of(0)
        own = {"RANK": number, "WORLD_SIZE": self.job.ranks, "MASTER_ADDR": master, "MASTER_PORT": self.master_port}
        return own | self.job.recipe.environment | self.job.environment

    def command_of(self, number):
        """The engine's command for a rank: a container of its own, or an exec in one that waits."""
        environment = [
            word for name, value in self.environment_of(number).items() for word in ("--env", f"{name}={value}")
        ]
        words = ["run", *self.container_words(number, environment)]
        if self.job.ranks_per_container > 1:
            words = ["exec", *environment, "--workdir", RESULTS_DIRECTORY, self.container_of(number)]
        return [*self.engine.prefix, *words, *self.job.program]

    def container_words(self, number, options=()):
        """What follows `run`, to the image."""
        recipe, name = self.job.recipe, self.container_of(number)
        words = [*self.engine.run_options, *options, "--name", name, "--label", f"{LABEL}={self.id}"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", *self.profile, *self.engine.read_only()]
        words += ["--log-driver", "none", "--user", f"{recipe.user}:{recipe.user}", *self.engine.limits()]
        words += ["--network", "host"] if recipe.host_network else ["--network", self.network, "--hostname", name]
        for capability in recipe.granted("capability"):
            words += ["--cap-add", capability]
        for device in recipe.granted("device"):
            words += ["--device", device]
        for limit in recipe.granted("limit"):
            words += ["--ulimit", self.engine.limit(limit)]
        for mount_point, volume in self.volumes.items():
            words += ["--volume", f"{volume}:{mount_point}"]
        if self.job.data:
            words += ["--volume", f"{self.job.data}:/data:ro"]
        if self.job.rootfs:
            return words + ["--workdir", RESULTS_DIRECTORY, "--rootfs", f"{self.job.rootfs}:O"]
        return words + ["--pull", "never", self.job.image]

    def start(self):
        self.master_port = free_port() if self.job.recipe.host_network else MASTER_PORT
        if self.job.ranks_per_container > 1:
            for number in range(0, self.job.ranks, self.job.ranks_per_container):
                sleep = ["sleep", int(self.job.timeout_s) + ORPHAN_S]
                self.engine.answer("run", *self.container_words(number, ["--detach"]), *sleep)
                self.waiting.append(self.container_of(number))
        for number in range(self.job.ranks):
            self.ranks.start(self.command_of(number))

    def wait(self):
        """Until all ranks have ended, showing what rank 0 says. Raises ContainerError unless all ended well and in
        time."""
        try:
            failed = self.ranks.wait(self.job.timeout_s)
        except StillRunning as error:
            raise ContainerError(str(error)) from None
        if failed is not None:
            raise ContainerError(
                f"rank {failed.number} failed first, with status {failed.status}; the end of "
                f"{failed.log}:{failed.end_of_log()}"
            )

    def collect(self):
        """Copies what the ranks left in /results into the output folder."""
        self.engine.answer(*self.copy_command())

    def quietly_collect(self):
        """The same of ranks that have failed, or still run."""
        self.stop()
        self.quietly(*self.copy_command())

    def copy_command(self):
        results = self.job.output / "results"
        results.mkdir(exist_ok=True)
        return "cp", f"{self.container_of(0)}:{RESULTS_DIRECTORY}/.", results

    # The end.

    def stop(self):
        """Ends the containers that still run, and the engine's clients that wait for them."""
        containers = self.waiting or [self.container_of(rank.number) for rank in self.ranks.running()]
        if not containers:
            return
        self.quietly("kill", *containers)
        self.waiting = []
        self.ranks.end_unasked(CLIENT_S)

    def close(self):
        self.stop()
        # By label, not by name: a client that was ended while it made its container may have made it nevertheless.
        containers = self.quietly("ps", "--all", "--quiet", "--filter", f"label={LABEL}={self.id}").split()
        if containers:
            self.quietly("rm", "--force", "--volumes", *containers)
        if self.volumes:
            self.quietly("volume", "rm", "--force", *self.volumes.values())
        if self.network:
            self.quietly("network", "rm", self.network)

    def quietly(self, *words):
        """For the clean-up: a failure is printed, and does not stop the rest."""
        try:
            return self.engine.answer(*words)
        except ContainerError as error:
            print(f"run-containers: while cleaning up: {error}", file=sys.stderr)
            return ""
