"""scripts/run-containers with a test double for podman: its requests, how it ends, and that nothing is left."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import podman_double
import pytest
from conftest import Command
from gloo_bypass_tools.common import processes
from gloo_bypass_tools.containers import images
from gloo_bypass_tools.containers.engine import ContainerError


@pytest.fixture
def double(tmp_path):
    def make(rank_script="echo rank $RANK of $WORLD_SIZE", image=True):
        folder = podman_double.make(tmp_path / "double", rank_script)
        if image:
            (folder / "state" / "image").touch()
        command = Command(tmp_path / "output", f"{folder}:{os.environ['PATH']}")
        command.state = folder / "state"
        return command

    return make


def calls(command, verb):
    lines = (command.state / "calls").read_text().splitlines()
    return [words for words in map(json.loads, lines) if words[0] == verb]


def left_over(command):
    return [path.name for kind in ("container", "network", "volume") for path in (command.state / kind).iterdir()]


def test_Run_AllRanksWell_ShowsRank0AndRemovesAll(double):
    command = double()
    status, out, err = command.ranks("TCP", "--ranks", 3)
    assert status == 0, err
    assert out == "rank 0 of 3\n"
    assert [(command.output / f"rank-{n}.log").read_text() for n in (1, 2)] == ["rank 1 of 3\n", "rank 2 of 3\n"]
    assert (command.output / "results" / "calls").exists()
    assert left_over(command) == []


def test_Run_OneRankFails_SaysWhichAndEndsTheOthers(double):
    command = double("[ $RANK = 0 ] && sleep 600; echo the reason; exit 7")
    started = time.monotonic()
    status, _, err = command.ranks("TCP")
    assert status == 1
    assert "rank 1 failed first, with status 7" in err and "the reason" in err
    assert time.monotonic() - started < 60
    assert left_over(command) == []


def test_Run_NoEnd_IsStoppedAtTimeout(double):
    command = double("sleep 600")
    status, _, err = command.ranks("DPDK", "--timeout", 1)
    assert status == 1
    assert "--timeout 1 s: still running: rank 0, 1" in err
    assert left_over(command) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_Run_Signal_RemovesAll(double, number):
    command = double("echo up; sleep 600")
    with command.start("--transport", "DPDK", "--output", command.output) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"ended by {number.name}" in err
    assert left_over(command) == []


def test_Run_NoImage_SaysHowToMakeIt(double):
    command = double(image=False)
    status, _, err = command.ranks("TCP")
    assert (status, len(err.splitlines())) == (1, 1)
    assert "scripts/run-containers --build" in err
    assert not command.output.exists()


def test_Run_NoEngine_SaysSoInOneLine(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("env", "python3"):
        (tmp_path / "empty" / name).symlink_to(f"/usr/bin/{name}")
    status, _, err = Command(tmp_path / "output", str(tmp_path / "empty")).ranks("TCP")
    assert (status, len(err.splitlines())) == (1, 1)
    assert "podman is not installed; docker is not installed" in err


def test_Run_OutputExists_IsKept(double):
    command = double()
    command.output.mkdir()
    status, _, err = command.ranks("TCP")
    assert status == 1 and "choose another --output" in err
    assert list(command.output.iterdir()) == [] and left_over(command) == []


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--transport", "QUIC"], "invalid choice"),
        (["--transport", "TCP", "--ranks", "0"], "from 1 to 64"),
        (
            ["--transport", "TCP", "--ranks", "3", "--ranks-per-container", "2"],
            "no multiple of --ranks-per-container 2",
        ),
        (["--transport", "TCP", "--ranks-per-container", "2", "--compose"], "one rank a container"),
        (["--transport", "TCP", "--compose", "--env", "A=1"], "put --env into that file"),
        (["--transport", "TCP", "--compose", "--program", "x"], "put --program into that file"),
        (["--transport", "TCP", "--compose", "--", "--steps", "1"], "put the program's arguments into that file"),
        (["--transport", "TCP", "--env", "A"], "NAME=VALUE"),
        (["--transport", "TCP", "--rootfs", "/nowhere"], "no folder"),
        (["--transport", "TCP", "--package", "python3-torch"], "--build"),
        (["--transport", "RDMA", "--guest", "--build"], "built before"),
        ([], "--transport"),
    ],
)
def test_CommandLine_Wrong_StatusTwoAndReason(command, arguments, says):
    status, _, err = command.run(*arguments)
    assert status == 2 and says in err


def options(words, name):
    return podman_double.values(words, name)


@pytest.mark.parametrize(
    "transport, capabilities, user",
    [
        ("TCP", [], "1000:1000"),
        ("UDP", [], "1000:1000"),
        ("DPDK", [], "1000:1000"),
        ("DPDK-auto", [], "1000:1000"),
        ("DPDK-netdev", ["NET_RAW", "NET_ADMIN", "IPC_LOCK"], "0:0"),
    ],
)
def test_Rank_EachTransport_GetsNoMoreThanItNeeds(double, transport, capabilities, user):
    command = double()
    assert command.ranks(transport, "--env", "GLOO_BYPASS_SPIN_US=0")[0] == 0
    for words in calls(command, "run"):
        assert options(words, "--cap-drop") == ["ALL"] and "--read-only" in words
        assert options(words, "--security-opt") == ["no-new-privileges"]
        assert options(words, "--cap-add") == capabilities
        assert options(words, "--user") == [user]
        assert options(words, "--network") != ["host"] and options(words, "--device") == []
        assert "GLOO_BYPASS_SPIN_US=0" in options(words, "--env")
        assert not {"--privileged", "--ipc", "--pid"} & set(words)


def test_Rank_Memif_SharesOneVolume(double):
    command = double()
    assert command.ranks("DPDK")[0] == 0
    shared = [
        [v for v in options(words, "--volume") if v.endswith(":/run/gloo-bypass")] for words in calls(command, "run")
    ]
    assert len(shared) == 2 and len(shared[0]) == 1 and shared[0] == shared[1]


def test_RanksPerContainer_Two_EachContainerHasTwoRanksWithLogsOfTheirOwn(double):
    command = double()
    status, out, err = command.ranks("DPDK-auto", "--ranks", 4, "--ranks-per-container", 2, "--timeout", 100)
    assert status == 0, err
    assert out == "rank 0 of 4\n"
    assert [(command.output / f"rank-{n}.log").read_text() for n in range(4)] == [f"rank {n} of 4\n" for n in range(4)]
    containers = calls(command, "run")
    names = [options(words, "--name")[0] for words in containers]
    assert len(set(names)) == 2 and all("--detach" in words for words in containers)
    assert all(options(words, "--cap-drop") == ["ALL"] and options(words, "--cap-add") == [] for words in containers)
    assert all(int(words[-1]) > 100 for words in containers), "it ends by itself, but not before the run"
    volumes = [volume for words in containers for volume in options(words, "--volume")]
    assert volumes and not any(volume.endswith(":/run/gloo-bypass") for volume in volumes)
    ranks = {options(words, "--env")[0]: words for words in calls(command, "exec")}
    assert [ranks[f"RANK={n}"][-2] for n in range(4)] == [names[0], names[0], names[1], names[1]]
    assert all(f"MASTER_ADDR={names[0]}" in options(words, "--env") for words in ranks.values())
    assert left_over(command) == []


def test_RanksPerContainer_OneRankFails_SaysWhichAndRemovesAll(double):
    command = double("[ $RANK = 3 ] || sleep 600; echo the reason; exit 7")
    started = time.monotonic()
    status, _, err = command.ranks("DPDK-auto", "--ranks", 4, "--ranks-per-container", 2)
    assert status == 1
    assert "rank 3 failed first, with status 7" in err and "the reason" in err
    assert time.monotonic() - started < 60
    assert left_over(command) == []


def test_Rank_Benchmark_GetsItsTransportAsArgument(double):
    command = double()
    assert command.ranks("DPDK", "--program", "all_reduce_perf", program=["-b", "4"])[0] == 0
    assert calls(command, "run")[0][-5:] == ["all_reduce_perf", "-b", "4", "--transports", "DPDK"]


def test_Guest_Command_RunsTheSameInTheGuest(tmp_path):
    from gloo_bypass_tools.containers.guest import guest_command

    words = guest_command(["--transport", "RDMA", "--guest", "--", "--guest", "x"], tmp_path / "output", 60.0)
    assert words[0].endswith("/scripts/rdma-guest") and words[words.index("--writable") + 1] == str(tmp_path)
    inside = words[words.index("--") + 1 :]
    assert inside[0].endswith("/containers/guest-storage") and inside[1].endswith("/scripts/run-containers")
    assert inside[2:] == [
        "--transport",
        "RDMA",
        "--engine",
        "podman",
        "--output",
        str(tmp_path / "output"),
        "--",
        "--guest",
        "x",
    ]


def test_Guest_Paths_AreWholeOnesAsItRunsInAnotherFolder(tmp_path, monkeypatch):
    from gloo_bypass_tools.containers.guest import guest_command

    monkeypatch.chdir(tmp_path)
    words = guest_command(["--data", "corpus", "--guest", "--rootfs=.", "--ranks", "2"], tmp_path / "output", 60.0)
    inside = words[words.index("--") + 3 :]
    assert inside[inside.index("--data") + 1] == str(tmp_path / "corpus")
    assert inside[inside.index("--rootfs") + 1] == str(tmp_path)
    assert "corpus" not in inside and inside[:2] == ["--ranks", "2"]


def test_Rdma_NoDevice_SaysHowToGetOne(double):
    if os.path.isdir("/dev/infiniband") and os.listdir("/dev/infiniband"):
        pytest.skip("this machine has verbs devices")
    command = double()
    status, _, err = command.ranks("RDMA")
    assert (status, len(err.splitlines())) == (1, 1)
    assert "scripts/softroce up" in err and not command.output.exists()


def test_Seccomp_CallGranted_IsAllowedForUserModeOnlyAndNothingElseChanges(tmp_path):
    from gloo_bypass_tools.containers.seccomp import write_profile

    default = tmp_path / "default.json"
    deny = {"names": ["userfaultfd", "vm86"], "action": "SCMP_ACT_ERRNO"}
    allow = {"names": ["read"], "action": "SCMP_ACT_ALLOW"}
    default.write_text(json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [deny, allow]}))
    assert write_profile(["userfaultfd"], tmp_path / "made.json", [tmp_path / "none.json", default])
    made = json.loads((tmp_path / "made.json").read_text())
    assert made["defaultAction"] == "SCMP_ACT_ERRNO"
    assert made["syscalls"][:2] == [{"names": ["vm86"], "action": "SCMP_ACT_ERRNO"}, allow]
    assert made["syscalls"][2]["names"] == ["userfaultfd"] and made["syscalls"][2]["action"] == "SCMP_ACT_ALLOW"
    assert made["syscalls"][2]["args"][0]["op"] == "SCMP_CMP_MASKED_EQ"


def test_Seccomp_NoDefaultProfile_NothingIsWritten(tmp_path):
    from gloo_bypass_tools.containers.seccomp import write_profile

    assert not write_profile(["userfaultfd"], tmp_path / "made.json", [tmp_path / "none.json"])
    assert not (tmp_path / "made.json").exists()


def test_RunVisibly_ProgramThatDoesNotHeedTerm_IsEndedWithWhatItStarted(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 0.2)
    script = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait"
    for limit in (1, 30):  # a busy machine may not have started the program by then
        with pytest.raises(ContainerError, match=f"the making was stopped after {limit} s"):
            images.run_visibly(["sh", "-c", script], limit, "the making")
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            break
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    until = time.monotonic() + 60
    with contextlib.suppress(OSError):  # it has gone
        while status.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < until
            time.sleep(0.02)
