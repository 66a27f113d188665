"""Links of the kernel's netem, and the place of a run with them: tests that need no such kernel. tests/guest runs them
in the kernel."""

import json
import sys
import time
import types

import pytest

from fabric_programs import ROOT, fabric, fabric_run, one_line

sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.fabric_run import netem_links, place, roce, timed_changes  # noqa: E402
from gloo_bypass_tools.fabric_run.failures import FabricRunError  # noqa: E402


@pytest.mark.parametrize(
    "transport, words, said",
    [
        ("RDMA", ["--links", "switch"], "--links switch: frames of SoftRoCE do not cross the switch"),
        ("RDMA", ["--samples"], "--samples: only the fabric's switch has that"),
        ("RDMA", ["--memory", "64"], "--memory: only the fabric's switch has that"),
        ("TCP", ["--snap", "64"], "--snap: it is of --capture, which is not there"),
        ("RDMA", ["--sysctl", "net.ipv4.tcp_sack=1"], "ranks over RDMA have no network namespaces of their own"),
        ("RDMA", ["--rendezvous", "fabric"], "ranks over RDMA have no network namespaces of their own"),
        ("DPDK", ["--rendezvous", "fabric"], "ranks over DPDK have no network namespaces of their own"),
        (
            "DPDK",
            ["--links", "netem"],
            "--links netem: memif's frames are not the kernel's; say --transport DPDK-netdev",
        ),
    ],
)
def test_FabricRun_WhatNetemCannot_IsRefusedBeforeAnything(tmp_path, transport, words, said):
    answer = fabric_run(tmp_path / "run", "--ranks", 2, "--transport", transport, *words, "--", "true")
    assert answer.returncode == 2 and said in answer.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_FabricRun_NetemBeyondTheKernel_IsRefusedBeforeTheGuestStarts(tmp_path):
    answer = fabric_run(
        tmp_path / "run",
        "--ranks",
        2,
        "--transport",
        "RDMA",
        "--edge",
        "from=r0,to=r1,duplication=1%",
        "--where",
        "guest",
        "--",
        "true",
    )
    assert answer.returncode == 2 and "duplication" in one_line(answer)
    assert not (tmp_path / "run").exists()


def test_Netem_SeveralHosts_AreOneScript():
    answer = fabric(
        "--ranks",
        2,
        "--event",
        "at=1s,from=1,to=0,down=2s",
        "--event",
        "at=2s,from=0,to=1,loss=1%",
        "--netem",
        "r0=a",
        "--netem",
        "1=b",
    )
    assert answer.returncode == 0 and answer.stderr == ""
    places = [
        answer.stdout.index(what)
        for what in ("set -e\n", "add dev a root", "add dev b root", "sleep 1.0", "change dev b", "change dev a")
    ]
    assert places == sorted(places) and answer.stdout.count("set -e\n") == 1


def test_Netem_InterfaceOfTwoHosts_IsRefused():
    answer = fabric("--ranks", 2, "--netem", "r0=a", "--netem", "r1=a")
    assert answer.returncode == 2 and answer.stdout == "" and "--netem r1=a: a is another's already" in one_line(answer)


def test_TimedChanges_OfTheScript_AreMomentsAndCommands():
    answer = fabric(
        "--ranks",
        2,
        "--event",
        "at=1s,from=0,to=1,down=200ms",
        "--event",
        "at=3.5s,from=0,to=1,loss=1%",
        "--netem",
        "r0=a",
    )
    found = timed_changes.changes_of(answer.stdout)
    assert (
        [at_s for at_s, _ in found] == [1.0, 1.2, 3.5] and "loss 100%" in found[0][1][0] and "loss 1%" in found[2][1][0]
    )
    assert all(line.startswith("qdisc change dev a") for _, lines in found for line in lines)
    assert timed_changes.changes_of("set -e\ntc qdisc add dev a root\n") == []


def tc_double(folder, body):
    double = folder / "tc"
    double.write_text(f"#!/bin/sh\n{body}\n")
    double.chmod(0o755)
    return ["env", f"PATH={folder}:/usr/bin:/bin"]


def wait_for(condition, limit_s=60.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_TimedChanges_MomentThatHasCome_IsTold(tmp_path):
    said = tmp_path / "said"
    with open(tmp_path / "log", "wb") as log:
        changes = timed_changes.TimedChanges(
            tc_double(tmp_path, f'while read -r line; do echo "$line" >> {said}; done'),
            [(0.0, ["first", "second"]), (3600.0, ["third"])],
            log,
        )
    wait_for(lambda: said.exists() and said.read_text() == "first\nsecond\n")
    assert changes.failed() is None
    changes.stop()
    assert said.read_text() == "first\nsecond\n"


def test_TimedChanges_TcThatFails_IsNoticed(tmp_path):
    with open(tmp_path / "log", "wb") as log:
        changes = timed_changes.TimedChanges(
            tc_double(tmp_path, "read -r line; echo Cannot find device >&2; exit 1"),
            [(0.0, ["first"]), (0.2, ["second"])],
            log,
        )
    wait_for(lambda: changes.failed() == 1)
    assert (tmp_path / "log").read_text() == "Cannot find device\n"
    changes.stop()


@pytest.mark.parametrize(
    "asked, netem, lacking, problem, chosen",
    [
        ("auto", False, "no kernel is asked", "", "host"),
        ("auto", True, "", "", "host"),
        ("auto", True, "no SoftRoCE", "", "guest"),
        ("guest", False, "", "", "guest"),
        ("host", True, "", "no QEMU", "host"),
    ],
)
def test_Place_WhatTheKernelLacks_Decides(monkeypatch, asked, netem, lacking, problem, chosen):
    monkeypatch.setattr(place, "lacking", lambda roce: lacking)
    assert place.choose(asked, netem, True, lambda: problem)[0] == chosen


@pytest.mark.parametrize(
    "asked, problem, said",
    [
        ("host", "", "--where host: no SoftRoCE; --where guest"),
        ("auto", "no QEMU", "no SoftRoCE, and the guest is not available: no QEMU"),
        ("guest", "no QEMU", "the guest is not available: no QEMU"),
    ],
)
def test_Place_NowhereToRun_IsOneLineAndBadInput(monkeypatch, asked, problem, said):
    monkeypatch.setattr(place, "lacking", lambda roce: "no SoftRoCE")
    with pytest.raises(FabricRunError, match=said) as failure:
        place.choose(asked, True, True, lambda: problem)
    assert failure.value.status == 2


def test_GuestCommand_OwnWordsAndProgram_AreKeptInTheirPlaces(tmp_path):
    words = place.guest_command(
        ["--output", "o", "--where", "auto", "--transport", "RDMA", "--", "run", "--where", "x"], tmp_path / "o", 100
    )
    assert words[:2] == [str(place.GUEST), "run"] and str(tmp_path) == words[words.index("--writable") + 1]
    inside = words[words.index("--") + 1 :]
    assert (
        inside[-6:] == ["--where", "host", "--", "run", "--where", "x"]
        and int(words[words.index("--timeout") + 1]) > 100
    )


def test_GuestRun_LongerThanAGuestMayLive_IsRefusedBeforeAnything(tmp_path):
    with pytest.raises(FabricRunError, match="--timeout 86101: in the guest it must be 86100 at most") as failure:
        place.become_guest(["--transport", "RDMA"], tmp_path / "new" / "run", 86101.0)
    assert failure.value.status == 2 and not (tmp_path / "new").exists()


@pytest.mark.parametrize("round_trip_s, power", [(0.0, 18), (0.3, 18), (0.4, 19), (1e6, 31)])
def test_QueuePairTimeout_RoundTrip_IsOutlastedThreefold(round_trip_s, power):
    assert roce.timeout_for(round_trip_s) == power
    assert power == 31 or 4.096e-6 * 2**power >= 3 * round_trip_s


@pytest.mark.parametrize("queue, read_bytes", [(0, 2**22), (10_000, 2**16), (2**20, 2**19), (2**30, 2**22)])
def test_QueuePairSettings_SmallestQueue_HoldsTheAnswersOfAllReads(queue, read_bytes):
    description = {"longest_round_trip_s": 0.001, "lowest_rate_bit_s": 10**10, "smallest_queue_bytes": queue}
    assert roce.settings_for(description, {}) == {roce.READ_BYTES: read_bytes, roce.TIMEOUT: 18}


def test_QueuePairSettings_SlowEdgeWithoutAQueueLimit_TimeoutOutlastsAllThatWasAskedFor():
    description = {"longest_round_trip_s": 0.0, "lowest_rate_bit_s": 10**7, "smallest_queue_bytes": 0}
    assert 4.096e-6 * 2 ** roce.settings_for(description, {})[roce.TIMEOUT] >= 3 * 8 * 2**22 / 10**7
    assert (
        4.096e-6 * 2 ** roce.settings_for(description, {roce.READ_BYTES: str(2**30)})[roce.TIMEOUT]
        >= 3 * 8 * 2**30 / 10**7
    )


def test_QueuePairSettings_Environment_Overrides():
    description = {"longest_round_trip_s": 0.0, "lowest_rate_bit_s": 0, "smallest_queue_bytes": 0}
    given = {roce.READ_BYTES: "many", roce.TIMEOUT: "7", "OTHER": "1"}
    # the ranks refuse what is wrong
    assert roce.settings_for(description, given) == {roce.READ_BYTES: "many", roce.TIMEOUT: "7"}


def test_SpareAddress_HighestThatNoHostHas_OrNone():
    def hosts(prefix, *last):
        return [{"ipv4": f"10.1.2.{one}", "prefix_length": prefix} for one in last]

    assert roce.spare_address(hosts(24, 2, 3)) == "10.1.2.254"
    assert roce.spare_address(hosts(24, 254, 253)) == "10.1.2.252"
    assert roce.spare_address(hosts(30, 1, 2)) is None


def test_Edge_LossesOfNetemAndItsQueue_AreToldApart():
    edge = netem_links.edge_of("r0", "r1", {"packets": 90, "bytes": 9000, "drops": 8, "qlen": 2}, {"drops": 3})
    assert edge["offered"] == 100 and edge["delivered"] == 90
    assert (edge["lost_randomly"], edge["lost_in_queue"]) == (5, 3)


class CaptureThatFails:
    def ended(self):
        return False

    def end(self, limit_s):
        raise FabricRunError("--capture: reordercap failed")


def test_NetemLinks_CaptureFailsAtItsEnd_CountersAreWrittenAndItIsSaid(tmp_path):
    links = netem_links.NetemLinks(types.SimpleNamespace(output=tmp_path), {"hosts": []}, tmp_path, None)
    links.capture = CaptureThatFails()
    with pytest.raises(FabricRunError, match="--capture: reordercap failed"):
        links.end()
    assert json.loads((tmp_path / "fabric.json").read_text())["links"] == "netem"


def test_RoceCounters_DeviceThatHasGone_IsOnlyNamed(tmp_path, monkeypatch):
    monkeypatch.setattr(roce, "DEVICES", tmp_path)
    counters = tmp_path / roce.device_of(1) / "ports" / "1" / "hw_counters"
    counters.mkdir(parents=True)
    (counters / "sent_pkts").write_text("7\n")
    (counters / "lifespan").write_text("10\n")
    assert roce.RoceHosts([{"name": "r0"}, {"name": "r1"}], 1500).counters() == [
        {"host": "r0"},
        {"host": "r1", "sent_pkts": 7},
    ]
