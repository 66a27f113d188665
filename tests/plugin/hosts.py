"""Hosts of tests: network namespaces on one Ethernet, each with a memif directory of its own. Ranks are numbered host
by host, as torchrun does."""
import os
import shutil
import subprocess

from ranks import Ranks

INTERFACE = "host0"


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def why_not():
    """Why this machine cannot have hosts; empty: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Hosts(1):
            return ""
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot make network namespaces here: {error}"


class Hosts:
    """`with Hosts(2) as hosts, hosts.ranks("train.py", 2) as ranks: ranks.succeed()`: two hosts with two ranks each."""

    def __init__(self, count):
        self.count, self.prefix = count, f"gbh{os.getpid()}"

    def name(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        return f"10.78.0.{host + 1}"

    def memif_directory(self, host):
        return f"/tmp/{self.name(host)}"

    def __enter__(self):
        try:
            switch = self.name("switch")
            run("ip", "netns", "add", switch)
            run("ip", "-n", switch, "link", "add", "bridge0", "type", "bridge")
            run("ip", "-n", switch, "link", "set", "bridge0", "up")
            for host in range(self.count):
                run("ip", "netns", "add", self.name(host))
                run("ip", "-n", switch, "link", "add", f"port{host}", "type", "veth", "peer", "name", INTERFACE,
                    "netns", self.name(host))
                run("ip", "-n", switch, "link", "set", f"port{host}", "master", "bridge0", "up")
                for words in (["addr", "add", f"{self.address(host)}/24", "dev", INTERFACE],
                              ["link", "set", "lo", "up"], ["link", "set", INTERFACE, "up"]):
                    run("ip", "-n", self.name(host), *words)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        for host in range(self.count):
            shutil.rmtree(self.memif_directory(host), ignore_errors=True)
        for end in [*range(self.count), "switch"]:
            subprocess.run(["ip", "netns", "del", self.name(end)], capture_output=True, timeout=60, check=False)

    def sent_bytes(self, host):
        """By the host's interface, headers included."""
        file = f"/sys/class/net/{INTERFACE}/statistics/tx_bytes"
        return int(run("ip", "netns", "exec", self.name(host), "cat", file))

    def ranks(self, program, per_host, environment=None, **options):
        """`environment`: besides what a user of several machines sets, MASTER_ADDR."""
        size = self.count * per_host
        return Ranks(program, size, environment={"MASTER_ADDR": self.address(0), **(environment or {})},
                     per_rank={rank: {"GLOO_BYPASS_MEMIF_DIRECTORY": self.memif_directory(rank // per_host)}
                               for rank in range(size)},
                     prefixes=[["ip", "netns", "exec", self.name(rank // per_host)] for rank in range(size)], **options)
