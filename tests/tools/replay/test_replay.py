"""scripts/replay as a user runs it: with Debian's PyTorch and the plug-in of the build folder, or with PyTorch from pip
and the wheel."""

import json
import os
import signal
import subprocess
import time

import pytest
from conftest import ROOT
from gloo_bypass_tools.execution_traces import schema, trace
from gloo_bypass_tools.execution_traces.plan import Plan
from gloo_bypass_tools.execution_traces.trace import COLLECTIVE, COMPUTE, RECEIVE, SEND, Node, Trace
from gloo_bypass_tools.replay import report

LIMIT_S = 120
BUILD = os.environ.get("PLUGIN_BUILD", "")
PYTHON = os.environ.get("PLUGIN_PYTHON", "/usr/bin/python3")  # the Python of a wheel's tests
TRAINER = os.environ.get("DDP_TRAIN", "")
TRANSPORTS = ["TCP", "UDP"] if os.environ.get("PLUGIN_NO_DPDK") else ["TCP", "UDP", "DPDK"]
needs_plugin = pytest.mark.skipif(
    not BUILD and "PLUGIN_PYTHON" not in os.environ, reason="the plug-in is not in this build"
)
# Gloo has these in later versions of PyTorch than Debian's; our own collectives need a later one, too.
LATER = () if "PLUGIN_PYTHON" in os.environ else ("REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK")
if "PLUGIN_PYTHON" in os.environ:
    TRANSPORTS.append("DPDK/own")


def words_of(*arguments):
    words = [ROOT / "scripts" / "replay", *arguments, "--python", PYTHON, "--build", BUILD or "none"]
    return [str(word) for word in words]


def replay(*arguments, **variables):
    return subprocess.run(
        words_of(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | variables,
    )


def write(prefix, *ranks, steps_us=None):
    for rank, nodes in enumerate(ranks):
        path = prefix.with_name(f"{prefix.name}.{rank}.et")
        path.write_bytes(trace.as_bytes(Trace(nodes, steps_us or {}), "a test"))
    return prefix


def collective(number, operation, size, waits_for=(), group=""):
    return Node(
        number, operation, COLLECTIVE, list(waits_for), operation=operation, bytes=size, group=group, on_cpu=True
    )


def compute(number, duration_us, waits_for=(), **more):
    return Node(number, "compute", COMPUTE, list(waits_for), duration_us=duration_us, on_cpu=True, **more)


def every_collective():
    """Each once, one after the other, with sizes that do not divide evenly."""
    names = [name for name in schema.COLLECTIVES if name not in LATER]
    return [collective(number, name, 4 * 1001 + 2, [number - 1] if number else []) for number, name in enumerate(names)]


def answers(done, file):
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@needs_plugin
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_Replay_EveryCollective_IsPlayedOverTheTransport(tmp_path, transport):
    write(tmp_path / "run", *[every_collective()] * 3)
    found = answers(
        replay(tmp_path / "run", "--transport", transport, "--json", tmp_path / "x.json"), tmp_path / "x.json"
    )
    assert found["transport"] == transport and found["ranks"] == 3
    # All but scatter and barrier with the whole vector; a scatter with a third of it.
    whole = len(schema.COLLECTIVES) - len(LATER) - 2
    assert found["least_bytes_a_rank"] == [whole * 4006 + 4006 // 3] * 3


@needs_plugin
def test_Replay_MessagesAndGroups_OfAPipeline(tmp_path):
    """Rank 0 sends to 1, 1 to 2; ranks 1 and 2 reduce together."""
    ranks = [
        [compute(1, 1000), Node(2, "s", SEND, [1], peer=1, bytes=5000)],
        [
            Node(1, "r", RECEIVE, peer=0, bytes=5000),
            Node(2, "s", SEND, [1], peer=2, bytes=7, tag=4),
            collective(3, "ALL_REDUCE", 400, [2], "pair"),
        ],
        [Node(1, "r", RECEIVE, peer=1, bytes=7, tag=4), collective(2, "ALL_REDUCE", 400, [1], "pair")],
    ]
    write(tmp_path / "run", *ranks)
    found = answers(replay(tmp_path / "run", "--json", tmp_path / "x.json"), tmp_path / "x.json")
    assert found["least_bytes_a_rank"] == [5000, 5407, 407]


@needs_plugin
def test_Replay_TwoGroupsOfAllRanks_BegunInOppositeOrders(tmp_path):
    """Each has a process group of its own: else one's 8 bytes would meet the other's 8,000."""
    first = [collective(1, "ALL_REDUCE", 8, group="a"), collective(2, "ALL_REDUCE", 8000, group="b")]
    second = [collective(1, "ALL_REDUCE", 8000, group="b"), collective(2, "ALL_REDUCE", 8, group="a")]
    write(tmp_path / "run", first, second)
    found = answers(replay(tmp_path / "run", "--json", tmp_path / "x.json"), tmp_path / "x.json")
    assert found["least_bytes_a_rank"] == [8008, 8008]


@needs_plugin
def test_Replay_ManyMessages_WhoseReceiversComeLate(tmp_path):
    """Rank 0 sends a hundred that rank 1 receives only once it has got the last message of all."""
    many = range(100)
    first = [
        *(Node(number, "s", SEND, peer=1, bytes=400) for number in many),
        Node(200, "r", RECEIVE, peer=1, bytes=8, tag=1),
        Node(201, "s", SEND, [200], peer=1, bytes=8, tag=2),
    ]
    second = [
        Node(1, "s", SEND, peer=0, bytes=8, tag=1),
        Node(2, "r", RECEIVE, peer=0, bytes=8, tag=2),
        *(Node(100 + number, "r", RECEIVE, [2], peer=0, bytes=400) for number in many),
    ]
    write(tmp_path / "run", first, second)
    found = answers(replay(tmp_path / "run", "--json", tmp_path / "x.json"), tmp_path / "x.json")
    assert found["least_bytes_a_rank"] == [40_016, 40_016]


@needs_plugin
def test_Replay_WithoutTransport_TakesWhatTheEnvironmentSays(tmp_path):
    write(tmp_path / "run", *[[collective(1, "ALL_REDUCE", 4096)]] * 2)
    done = replay(tmp_path / "run", GLOO_DEVICE_TRANSPORT="UDP")
    assert done.returncode == 0 and "2 ranks over UDP" in done.stdout
    done = replay(tmp_path / "run", GLOO_DEVICE_TRANSPORT="TCP")
    assert done.returncode == 0 and "2 ranks over TCP;" in done.stdout
    done = replay(tmp_path / "run", GLOO_DEVICE_TRANSPORT="TCP", GLOO_BYPASS_SECURITY="encrypt")
    assert done.returncode == 2 and "encrypts nothing over TCP" in done.stderr, done.stderr


@needs_plugin
def test_Replay_SettingOfOurs_ReachesTheRanks(tmp_path):
    write(tmp_path / "run", *[[collective(1, "ALL_REDUCE", 4096)]] * 2)
    done = replay(tmp_path / "run", "--transport", "UDP", GLOO_BYPASS_UDP_PORT="none")
    assert done.returncode == 1 and "GLOO_BYPASS_UDP_PORT" in done.stderr, done.stderr


@needs_plugin
def test_Replay_Times_AreAtLeastWhatWasComputedInOrder(tmp_path):
    """Two nodes of the processor follow each other, an accelerator's runs beside them, and an all-reduce waits for all.
    Only lower bounds: a busy machine is slower."""
    nodes = [
        compute(1, 30_000, step=1),
        compute(2, 20_000, step=1),
        Node(3, "kernel", COMPUTE, duration_us=45_000, stream=7, step=1),
        collective(4, "ALL_REDUCE", 4, [1, 2, 3]),
    ]
    write(tmp_path / "run", nodes, nodes)
    for how in ("busy", "idle"):
        done = replay(tmp_path / "run", "--repeat", 2, "--compute", how, "--json", tmp_path / "x.json")
        found = answers(done, tmp_path / "x.json")
        assert [one["step"] for one in found["steps"]] == [1, 1]
        assert all(one["played_s"] > 0.0499 for one in found["steps"])
        assert len(found["whole"]) == 2 and found["ratio"] is None


@needs_plugin
def test_Replay_OneRanksTrace_ByThreeRanks(tmp_path):
    write(tmp_path / "run", [collective(1, "ALL_REDUCE", 4096)])
    done = replay(tmp_path / "run.0.et", "--ranks", 3)
    assert done.returncode == 0 and "3 ranks over TCP; a rank sent and received at least 4096 bytes" in done.stdout


@needs_plugin
def test_Replay_ARankOfOthers_IsPlayedAlone(tmp_path):
    """As torchrun starts them: each process plays its own rank, and rank 0 tells."""
    write(tmp_path / "run", *[[collective(1, "ALL_REDUCE", 4096)]] * 2)
    from gloo_bypass_tools.common.rank_processes import free_port

    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            words_of(tmp_path / "run"), stdout=subprocess.PIPE, text=True, env=os.environ | place | {"RANK": str(rank)}
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert "2 ranks over TCP" in said[0] and said[1] == ""


@needs_plugin
def test_Replay_Ended_LeavesNoRank(tmp_path):
    write(tmp_path / "run", *[[compute(1, 600_000_000), collective(2, "BARRIER", 0, [1])]] * 2)
    process = subprocess.Popen(words_of(tmp_path / "run"), stderr=subprocess.PIPE, text=True)

    def players():
        found = []
        for each in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{each}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == process.pid:
                        found.append(int(each))
            except OSError:
                continue
        return found

    def runs(process):
        """A zombie has ended."""
        try:
            with open(f"/proc/{process}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    deadline = time.monotonic() + LIMIT_S
    while len(started := players()) < 2 and time.monotonic() < deadline:
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    assert "ended by SIGTERM" in process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 128 + signal.SIGTERM
    # One that had just been started is ended by the kernel, a moment later.
    while any(runs(each) for each in started):
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.mark.parametrize(
    "arguments, variables, said",
    [
        (["none"], {}, "no none.0.et"),
        (["run"], {"RANK": "0"}, "set both, or none"),
        (["run"], {"RANK": "0", "WORLD_SIZE": "3"}, "the trace is of 2 ranks, this is rank 0 of 3"),
        (["run", "--ranks", 4], {}, "of 2 ranks, not of 4"),
        (["unmatched"], {}, "rank 1 has 0 collectives"),
    ],
)
def test_Replay_BadInput_IsOneLine(tmp_path, arguments, variables, said):
    write(tmp_path / "run", *[[collective(1, "ALL_REDUCE", 4)]] * 2)
    write(tmp_path / "unmatched", [collective(1, "ALL_REDUCE", 4)], [compute(1, 1)])
    done = replay(tmp_path / arguments[0], *arguments[1:], **variables)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


@needs_plugin
@pytest.mark.skipif(not TRAINER, reason="the trainer is not in this build")
@pytest.mark.parametrize("transport", [name for name in TRANSPORTS if "/" not in name])
def test_Replay_WhatDdpTrainDid(tmp_path, transport):
    """From the run to its replay with the commands of the README."""
    run = [TRAINER, "--spawn", "2", "--model", "tiny", "--steps", "3", "--batch-size", "2", "--no-progress"]
    run += [
        "--bucket-cap-mb",
        "0.05",
        "--first-bucket-mb",
        "0.02",
        "--metrics",
        tmp_path / "m",
        "--trace",
        tmp_path / "t.json",
    ]
    subprocess.run(run, check=True, timeout=LIMIT_S, env=os.environ | {"GLOO_DEVICE_TRANSPORT": transport})
    convert = [ROOT / "scripts" / "execution-trace", "convert", tmp_path / "t.json", tmp_path / "run"]
    subprocess.run(convert, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
    found = answers(
        replay(tmp_path / "run", "--transport", transport, "--json", tmp_path / "x.json"), tmp_path / "x.json"
    )
    steps = [json.loads(line) for line in (tmp_path / "m").read_text().splitlines()]
    steps = [one for one in steps if one["event"] == "step"]
    assert [one["step"] for one in found["steps"]] == [1, 2, 3] and found["ratio"] > 0
    assert found["least_bytes_a_rank"] == [3 * steps[0]["gradient_bytes"]] * 2
    for mine, theirs in zip(found["steps"], steps):
        assert mine["traced_s"] >= theirs["t_step_s"] - 1e-6  # the slowest rank's, and rank 0's


def rounds_of(*steps_s, whole_s=9.0):
    """What a rank answers: one round with these steps."""
    steps = {str(step): seconds for step, seconds in steps_s}
    return {"rounds": [{"steps_s": steps, "whole_s": whole_s, "waited_s": 1.0}], "least_bytes": 5}


def test_Report_Ratio_IsOfMediansWithoutTheFirstStep():
    plan = Plan([[0, 1]], [[], []], {0: 1_000_000, 1: 1_000_000, 2: 2_000_000, 3: 2_000_000})
    slow, fast = rounds_of((0, 7.0), (1, 1.1), (2, 2.1), (3, 2.0)), rounds_of((0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0))
    rows = report.steps_of(plan, [fast, slow])
    assert rows[0] == (None, None, 9.0, 1.0) and rows[1] == (0, 1.0, 7.0, None) and len(rows) == 5
    assert report.ratio_of(rows) == pytest.approx(1.0)
    assert report.ratio_of(rows[:2]) == 7.0 and report.ratio_of(rows[:1]) is None
    found = report.record(plan, [fast, slow], "TCP")
    assert [one["step"] for one in found["steps"]] == [0, 1, 2, 3] and found["whole"][0]["played_s"] == 9.0
    assert "   all          -     9.0000" in report.text_of(plan, [fast, slow], "TCP")
