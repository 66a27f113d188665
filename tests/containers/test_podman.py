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
            engine.answer(
                "run", "--rm", *engine.limits(), "--network", network, "--rootfs", "/:O", "/bin/true", limit_s=60
            )
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
    for words in (
        ("ps", "--all", "--format", "{{.Names}}"),
        ("network", "ls", "--format", "{{.Name}}"),
        ("volume", "ls", "--format", "{{.Name}}"),
    ):
        done = subprocess.run(["podman", *words, *LABEL_FILTER], capture_output=True, text=True, check=True, timeout=60)
        names += done.stdout.split()
    return set(names)


def in_containers(command, transport, program, *arguments, options=()):
    """Ends well; the build folder is the ranks' /data."""
    status, _, err = command.ranks(
        transport,
        "--engine",
        "podman",
        "--rootfs",
        "/",
        "--data",
        BUILD,
        "--timeout",
        120,
        *options,
        "--program",
        program,
        program=arguments,
    )
    logs = "".join(f"\n{path.name}: {path.read_text()}" for path in sorted(command.output.glob("*.log")))
    assert status == 0, err + logs


def train(command, transport, *options):
    """The last record of a short training, with two ranks by default."""
    in_containers(
        command,
        transport,
        "/data/trainer/ddp_train",
        "--model",
        "tiny",
        "--steps",
        3,
        "--metrics",
        "/results/metrics.jsonl",
        options=options,
    )
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


def needs_dpdk():
    if os.environ.get("CONTAINERS_NO_DPDK"):
        pytest.skip(os.environ["CONTAINERS_NO_DPDK"])


@pytest.mark.parametrize("transport", ["DPDK", "DPDK-netdev"])
def test_Containers_OverDpdk_ParametersEqualTcps(command, transport, request):
    needs_trainer()
    needs_dpdk()
    before = things()
    assert train(command, transport)["sha256"] == request.getfixturevalue("tcp_digest")
    assert things() <= before


TWO_OF_TWO = ("--ranks", 4, "--ranks-per-container", 2)


def test_Containers_TwoOfTwoRanks_ParametersEqualTcps(command):
    needs_trainer()
    needs_dpdk()
    before, output = things(), command.output
    digests = {}
    for transport in ("TCP", "DPDK-auto"):
        command.output = output.with_name(transport)
        digests[transport] = train(command, transport, *TWO_OF_TWO)["sha256"]
    assert digests["TCP"] == digests["DPDK-auto"]
    assert things() <= before


# What a rank's container has sent on its interfaces, after the benchmark.
AND_SENT = """"$@" || exit
for interface in eth0 lo; do cat /sys/class/net/$interface/statistics/tx_bytes > /results/$interface-$RANK; done"""
ALL_REDUCE_BYTES = 4 << 20


def test_Containers_TwoOfTwoRanks_OnlyWhatGoesBetweenThemCrossesTheNetwork(command):
    needs_dpdk()
    if not BUILD or not os.path.exists(os.path.join(BUILD, "tools", "all_reduce_perf")):
        pytest.skip("this build has no all_reduce_perf")
    in_containers(
        command,
        "DPDK-auto",
        "/bin/sh",
        "-c",
        AND_SENT,
        "sh",
        "/data/tools/all_reduce_perf",
        "--transports",
        "DPDK",
        "-b",
        ALL_REDUCE_BYTES,
        "-e",
        ALL_REDUCE_BYTES,
        "-n",
        1,
        "-w",
        1,
        "-c",
        1,
        "--json",
        "/results/perf.json",
        options=TWO_OF_TWO,
    )
    (result,) = json.loads((command.output / "results" / "perf.json").read_text())["results"][0]["transports"]
    assert result["wrong"] == 0
    payload = 3 * 2 * 3 * ALL_REDUCE_BYTES // 4  # a rank's; in a ring one of a container's two sends to the other one
    for first in (0, 2):
        sent = {
            interface: max(
                int((command.output / "results" / f"{interface}-{rank}").read_text()) for rank in (first, first + 1)
            )
            for interface in ("eth0", "lo")
        }
        assert payload < sent["eth0"] < 1.2 * payload, sent
        assert sent["lo"] < payload / 10, sent


def test_Containers_RankFails_StatusIsOneAndNothingIsLeft(command):
    before = things()
    status, out, err = command.ranks(
        "TCP",
        "--engine",
        "podman",
        "--rootfs",
        "/",
        "--program",
        "/bin/sh",
        program=["-c", "echo here; echo kept > /results/of-$RANK; test $RANK != 1"],
    )
    assert status == 1 and "rank 1 failed first" in err
    assert out.splitlines()[-1] == "here"
    assert (command.output / "results" / "of-0").read_text() == "kept\n"
    assert things() <= before


def test_Containers_Interrupted_NothingIsLeft(command):
    before = things()
    with command.start(
        "--transport",
        "DPDK",
        "--output",
        command.output,
        "--engine",
        "podman",
        "--rootfs",
        "/",
        "--program",
        "/bin/sh",
        "--",
        "-c",
        "echo up; sleep 600",
    ) as process:
        while process.stdout.readline() not in ("up\n", ""):
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert things() <= before


def test_Rank_EachTransport_HasOnlyTheCapabilitiesGranted(command):
    """The kernel's view of the capabilities, not the request: none; over a network interface NET_ADMIN, NET_RAW and
    IPC_LOCK (bits 12 to 14)."""
    for transport, expected in (("TCP", 0), ("DPDK-netdev", 0b111 << 12)):
        command.output = command.output.with_name(transport)
        status, out, err = command.ranks(
            transport,
            "--ranks",
            1,
            "--engine",
            "podman",
            "--rootfs",
            "/",
            "--program",
            "/bin/grep",
            program=["^CapEff", "/proc/self/status"],
        )
        assert status == 0, err
        assert int(out.split()[-1], 16) == expected
