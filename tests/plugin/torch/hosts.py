"""Hosts for tests: network namespaces on one Ethernet, host 0 at one switch and all others at another, each with its
own memif directory. Ranks are numbered host by host, as torchrun does."""

import os
import shutil
import subprocess
from pathlib import Path

from ranks import Ranks

INTERFACE = "host0"
SECOND, SECOND_PREFIX = "second0", "10.80.0"
APART_PREFIX = "10.79.0"  # of interfaces that lead to no other host


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
    """`with Hosts(2) as hosts, hosts.ranks("train.py", 2) as ranks: ranks.succeed()`: two hosts with two ranks each.
    `own_name`: each host has a name, node0 and so on, known to all; it is also the host's own name, and on the host
    itself it leads to this address. Such a host also has an interface apart0, first in the list, that leads to no other
    host."""

    def __init__(self, count, own_name=None, mtu=1500):
        self.count, self.own_name, self.mtu, self.prefix = count, own_name, mtu, f"gbh{os.getpid()}"

    def name(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        return f"10.78.0.{host + 1}"

    def address6(self, host):
        return f"fd78::{host + 1}"

    def memif_directory(self, host):
        return f"/tmp/{self.name(host)}"

    def __enter__(self):
        try:
            switch = self.name("switch")
            run("ip", "netns", "add", switch)
            run("ip", "-n", switch, "link", "add", "trunk0", "type", "veth", "peer", "name", "trunk1")
            for end in range(2):
                run("ip", "-n", switch, "link", "add", f"bridge{end}", "type", "bridge")
                run("ip", "-n", switch, "link", "set", f"bridge{end}", "up")
                run(
                    "ip",
                    "-n",
                    switch,
                    "link",
                    "set",
                    f"trunk{end}",
                    "master",
                    f"bridge{end}",
                    "mtu",
                    str(self.mtu),
                    "up",
                )
            for host in range(self.count):
                run("ip", "netns", "add", self.name(host))
                if self.own_name:
                    self.name_host(host)
                run(
                    "ip",
                    "-n",
                    switch,
                    "link",
                    "add",
                    f"port{host}",
                    "type",
                    "veth",
                    "peer",
                    "name",
                    INTERFACE,
                    "netns",
                    self.name(host),
                )
                run(
                    "ip",
                    "-n",
                    switch,
                    "link",
                    "set",
                    f"port{host}",
                    "master",
                    f"bridge{min(host, 1)}",
                    "mtu",
                    str(self.mtu),
                    "up",
                )
                for words in (
                    ["addr", "add", f"{self.address(host)}/24", "dev", INTERFACE],
                    ["addr", "add", f"{self.address6(host)}/64", "dev", INTERFACE, "nodad"],
                    ["link", "set", "lo", "up"],
                    ["link", "set", INTERFACE, "mtu", str(self.mtu), "up"],
                ):
                    run("ip", "-n", self.name(host), *words)
            if self.mtu > 1500:
                self.send_single_frames()
        except BaseException:
            self.__exit__()
            raise
        return self

    def name_host(self, host):
        rows = [f"{self.own_name if other == host else self.address(other)} node{other}" for other in range(self.count)]
        file = self.own_files(host) / "hosts"  # the namespace's /etc/hosts
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(["127.0.0.1 localhost", *rows]) + "\n")
        # PyTorch from 2.0 on looks up the names of addresses, and no resolver can be reached from here.
        (self.own_files(host) / "nsswitch.conf").write_text("hosts: files\n")
        run("ip", "-n", self.name(host), "link", "add", "apart0", "type", "veth", "peer", "name", "nobody0")
        for words in (
            ["addr", "add", f"{APART_PREFIX}.{host + 1}/24", "dev", "apart0"],
            ["link", "set", "nobody0", "up"],
            ["link", "set", "apart0", "up"],
        ):
            run("ip", "-n", self.name(host), *words)

    def own_files(self, host):
        return Path("/etc/netns") / self.name(host)

    def inside(self, host):
        """The prefix that runs a command on the host."""
        words = ["ip", "netns", "exec", self.name(host)]
        if self.own_name:
            words += ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"node{host}"]
        return words

    def __exit__(self, *unused):
        for host in range(self.count):
            shutil.rmtree(self.own_files(host), ignore_errors=True)
            shutil.rmtree(self.memif_directory(host), ignore_errors=True)
        for end in [*range(self.count), "switch"]:
            subprocess.run(["ip", "netns", "del", self.name(end)], capture_output=True, timeout=60, check=False)

    def send_single_frames(self):
        """Sends single frames, so that each meets every link's MTU: what a veth pair takes in one piece passes whatever
        its size."""
        for host in range(self.count):
            run("ip", "netns", "exec", self.name(host), "ethtool", "-K", INTERFACE, "tx-udp-segmentation", "off")

    def set_link(self, host, *words):
        """`ip link set` of the host's interface."""
        run("ip", "-n", self.name(host), "link", "set", INTERFACE, *words)

    def set_switch_port(self, host, *words):
        """`ip link set` of the host's switch port."""
        run("ip", "-n", self.name("switch"), "link", "set", f"port{host}", *words)

    def set_trunk(self, *words):
        """`ip link set` of both ends of the link between the switches."""
        for end in range(2):
            run("ip", "-n", self.name("switch"), "link", "set", f"trunk{end}", *words)

    def delete_interface(self, host, interface=INTERFACE):
        run("ip", "-n", self.name(host), "link", "del", interface)

    def sent_bytes(self, host, interface=INTERFACE):
        """By the host's interface, headers included."""
        file = f"/sys/class/net/{interface}/statistics/tx_bytes"
        return int(run("ip", "netns", "exec", self.name(host), "cat", file))

    def add_second_network(self):
        """Between the first two hosts; its interfaces are SECOND."""
        run(
            "ip",
            "-n",
            self.name(0),
            "link",
            "add",
            SECOND,
            "type",
            "veth",
            "peer",
            "name",
            SECOND,
            "netns",
            self.name(1),
        )
        for host in range(2):
            run("ip", "-n", self.name(host), "addr", "add", f"{SECOND_PREFIX}.{host + 1}/24", "dev", SECOND)
            run("ip", "-n", self.name(host), "link", "set", SECOND, "up")

    def drop_arriving_udp(self, host, interface, share=1.0):
        chance = ["-m", "statistic", "--mode", "random", "--probability", str(share)]
        rule = ["iptables", "-A", "INPUT", "-p", "udp", "-i", interface, *chance, "-j", "DROP"]
        run("ip", "netns", "exec", self.name(host), *rule)

    def limit_rate(self, interface, rate):
        """Limits the rate at which the first two hosts send on it: "100mbit"."""
        for host in range(2):
            run(
                "ip",
                "netns",
                "exec",
                self.name(host),
                "tc",
                "qdisc",
                "replace",
                "dev",
                interface,
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                "64k",
                "limit",
                "256k",
            )

    def ranks(self, program, per_host, environment=None, per_rank=None, **options):
        """`environment`: besides what a user of several machines sets, MASTER_ADDR; `per_rank`: more, by rank."""
        size = self.count * per_host
        own = per_rank or {}
        return Ranks(
            program,
            size,
            environment={"MASTER_ADDR": self.address(0), **(environment or {})},
            per_rank={
                rank: {"GLOO_BYPASS_MEMIF_DIRECTORY": self.memif_directory(rank // per_host), **own.get(rank, {})}
                for rank in range(size)
            },
            prefixes=[self.inside(rank // per_host) for rank in range(size)],
            **options,
        )
