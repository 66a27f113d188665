"""Ranks in real containers: this machine's root file system under an overlay and the programs of this build, so that no
image is made.

Skipped, with the reason, where podman cannot run a container.
"""

import json
import os
import shutil
import signal
import subprocess

import pytest

from gloo_bypass_tools.containers.engine import ContainerError, Engine

BUILD = os.environ.get("CONTAINERS_BUILD", "")
LABEL_FILTER = ("--filter", "label=gloo-bypass.run")


def why_not():
    if not shutil.which("podman"):
        return "podman is not installed: scripts/install-packages containers"
    engine = Engine("podman")
    network = f"gloo-bypass-probe-{os.getpid()}"
    try:
        engine.answer("network", "create", network)
        try:
            engine.answer("run", "--rm", *engine.limits(), "--network", network, "--rootfs", "/:O", "/bin/true",
                          limit_s=60)
        finally:
            engine.answer("network", "rm", network)
    except ContainerError as error:
        return f"podman cannot run a container here: {error}"
    return ""


@pytest.fixture(scope="module", autouse=True)
def podman():
    reason = why_not()
    if reason:
        pytest.skip(reason)


def things():
    """Names of all containers, networks and volumes that carry a run's label."""
    names = []
    for words in (("ps", "--all", "--format", "{{.Names}}"), ("network", "ls", "--format", "{{.Name}}"),
                  ("volume", "ls", "--format", "{{.Name}}")):
        done = subprocess.run(["podman", *words, *LABEL_FILTER], capture_output=True, text=True, check=True, timeout=60)
        names += done.stdout.split()
    return set(names)


def train(command, transport):
    """The last record of a short training of two ranks, each in its container; the build folder is their /data."""
    status, _, err = command.ranks(transport, "--engine", "podman", "--rootfs", "/", "--data", BUILD, "--timeout", 120,
                                   "--program", "/data/trainer/ddp_train",
                                   program=["--model", "tiny", "--steps", 3, "--metrics", "/results/metrics.jsonl"])
    logs = "".join(f"\n{path.name}: {path.read_text()}" for path in sorted(command.output.glob("*.log")))
    assert status == 0, err + logs
    record = json.loads((command.output / "results" / "metrics.jsonl").read_text().splitlines()[-1])
    assert record["transport"] == {"TCP": "TCP"}.get(transport, "DPDK")
    return record


@pytest.fixture(scope="module")
def tcp_digest(tmp_path_factory):
    from conftest import Command
    return train(Command(tmp_path_factory.mktemp("tcp") / "output", os.environ["PATH"]), "TCP")["sha256"]


def needs_trainer():
    if not BUILD or not os.path.exists(os.path.join(BUILD, "trainer", "ddp_train")):
        pytest.skip("this build has no trainer")


@pytest.mark.parametrize("transport", ["DPDK", "DPDK-netdev"])
def test_Containers_OverDpdk_ParametersEqualTcps(command, transport, request):
    needs_trainer()
    if os.environ.get("CONTAINERS_NO_DPDK"):
        pytest.skip(os.environ["CONTAINERS_NO_DPDK"])
    before = things()
    assert train(command, transport)["sha256"] == request.getfixturevalue("tcp_digest")
    assert things() <= before


def test_Containers_RankFails_StatusIsOneAndNothingIsLeft(command):
    before = things()
    status, out, err = command.ranks("TCP", "--engine", "podman", "--rootfs", "/", "--program", "/bin/sh",
                                     program=["-c", "echo here; echo kept > /results/of-$RANK; test $RANK != 1"])
    assert status == 1 and "rank 1 failed first" in err
    assert out.splitlines()[-1] == "here"
    assert (command.output / "results" / "of-0").read_text() == "kept\n"
    assert things() <= before


def test_Containers_Interrupted_NothingIsLeft(command):
    before = things()
    with command.start("--transport", "DPDK", "--output", command.output, "--engine", "podman", "--rootfs", "/",
                       "--program", "/bin/sh", "--", "-c", "echo up; sleep 600") as process:
        while process.stdout.readline() not in ("up\n", ""):
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert things() <= before


def test_Rank_EachTransport_HasOnlyTheCapabilitiesGranted(command):
    """What the kernel says, not what was asked for: none; over a network interface NET_ADMIN, NET_RAW and IPC_LOCK
    (bits 12 to 14)."""
    for transport, expected in (("TCP", 0), ("DPDK-netdev", 0b111 << 12)):
        command.output = command.output.with_name(transport)
        status, out, err = command.ranks(transport, "--ranks", 1, "--engine", "podman", "--rootfs", "/", "--program",
                                         "/bin/grep", program=["^CapEff", "/proc/self/status"])
        assert status == 0, err
        assert int(out.split()[-1], 16) == expected
