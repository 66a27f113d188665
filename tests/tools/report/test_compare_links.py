"""scripts/compare-links as users run it: with a double of all_reduce_perf, and once with the real one over veth."""

import os
import shutil
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gloo_bypass_tools.common.failures import Interrupted
from gloo_bypass_tools.compare_links import command, links
from gloo_bypass_tools.compare_links.measurement import LinkError, Measurement, row_of
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.report import stored_run
from gloo_bypass_tools.report.records import RecordError
from program_doubles import make_build

LIMIT_S = 120
BUILD = os.environ.get("PERF_BUILD", "")


def words_of(folder, build, *arguments):
    return [
        str(word)
        for word in (
            ROOT / "scripts" / "compare-links",
            "--build",
            build,
            "--output",
            folder / "out",
            "--json",
            folder / "run.json",
            "--repeats",
            1,
            *arguments,
        )
    ]


def compare(folder, build, *arguments):
    return subprocess.run(
        words_of(folder, build, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def why_no_namespaces():
    try:
        enclosure.check_tools()
        enclosure.check_right()
    except FabricRunError as error:
        return str(error)
    return ""


def processes_that_name(text):
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{each}/cmdline", "rb") as file:
                if text.encode() in file.read():
                    found.append(each)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--links", "memif,nosuch"], "'nosuch' is none of memif, udp, "),
        (["--links", "udp,udp"], "names one twice"),
        (["--sizes", "6"], "multiples of 4 bytes"),
        (["--sizes", "4,4"], "different"),
        (["--sizes", "2G"], "at most 1G"),
        (["--sizes", "much"], "'much' is no size"),
        (["--repeats", "0"], "from 1 to 1000"),
        (["--json", "/proc/none/x.json"], "'/proc/none' cannot be made a folder"),
        (["--json", "/tmp"], "'/tmp' cannot be written"),
        (["--build", "/nosuch"], "there is no program '/nosuch/tools/all_reduce_perf'"),
    ],
)
def test_Command_BadInput_IsRefused(tmp_path, arguments, said, capsys):
    with pytest.raises(SystemExit) as refused:
        command.main(["--build", str(make_build(tmp_path / "build")), *arguments])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_Command_OutputExists_IsRefused(tmp_path):
    (tmp_path / "out").mkdir()
    answer = compare(tmp_path, make_build(tmp_path / "build"))
    assert answer.returncode == 2 and "choose a folder that does not exist yet" in answer.stderr


def test_Command_LinksInAnyOrder_AreMeasuredInTheTables():
    assert command.links_of("far, udp,memif") == ["memif", "udp", "far"]
    assert command.sizes_of("64K,4") == [4, 65536]


def test_Iterations_AnySize_AreManyShortOnesAndFewLongOnes():
    assert [links.iterations(count) for count in (4, 1 << 20, 64 << 20, 1 << 30)] == [500, 128, 4, 4]


def test_Row_OfAnEvenNumberOfRounds_HasTheirMedian():
    rounds = [
        {"p50_us": 100.0, "p99_us": 300.0, "busbw_gb_s": 2.0},
        {"p50_us": 200.0, "p99_us": 250.0, "busbw_gb_s": 1.0},
    ]
    row = row_of(SimpleNamespace(title="veth", where="host", bytes=4), "TCP", rounds)
    assert (row["median_us"], row["p99_us"], row["bus_GBps"]) == (150.0, 300.0, 1.5)


def test_Measure_EachRound_GoesOverAllCellsSoASlowOneSpoilsNone(tmp_path):
    asked = []

    def all_reduce(link, count, number):
        asked.append((number, link.name, count))
        if (number, link.name, count) == (2, "udp", 64):
            raise LinkError("lost")
        slow = 10.0 if number == 2 else 1.0
        return "0123abc4567d", {
            name: {"p50_us": slow * (number + factor), "p99_us": slow * 9, "busbw_gb_s": 1.0}
            for name, factor in (("TCP", 100), (link.transport, 0))
        }

    measurement = Measurement(SimpleNamespace(links=["memif", "udp"], sizes=[4, 64], repeats=3), tmp_path)
    measurement.all_reduce = all_reduce
    measurement.measure(lambda text: None)
    cells = [("memif", 4), ("memif", 64), ("udp", 4), ("udp", 64)]
    assert asked == [(1, *cell) for cell in cells] + [(2, *cell) for cell in cells] + [(3, *cell) for cell in cells[:3]]
    assert [
        (row["link"], row["transport"], row["bytes"], row["median_us"], row["p99_us"]) for row in measurement.rows()
    ][:2] == [("memif", "TCP", 4, 103.0, 90.0), ("memif", "DPDK", 4, 3.0, 90.0)]
    assert [row["median_us"] for row in measurement.rows()[-2:]] == [101.0, 1.0]  # of the round before it failed
    assert [(one.cell.title, one.cell.bytes, one.round, one.why) for one in measurement.missing] == [
        ("UDP", 64, 2, "lost")
    ]


FIGURES = {name: {"p50_us": 1.0, "p99_us": 2.0, "busbw_gb_s": 3.0} for name in ("TCP", "UDP")}


@pytest.mark.parametrize(
    "second, why, said",
    [
        (Interrupted(signal.SIGTERM), Interrupted, "interrupted"),
        (("89ab01234567", FIGURES), RecordError, "the program was built anew meanwhile: commits 0123abc4567d, 89ab"),
    ],
)
def test_Compare_EndedInItsSecondRound_StoresTheFirst(tmp_path, monkeypatch, capsys, second, why, said):
    def all_reduce(self, link, count, number):
        if (count, number) == (64, 1):
            return "0123abc4567d", FIGURES
        if isinstance(second, Exception):
            raise second
        return second

    monkeypatch.setattr(Measurement, "all_reduce", all_reduce)
    monkeypatch.setattr(command.RateSamples, "take", lambda self: None)
    build = make_build(tmp_path / "build")
    options = command.parse(words_of(tmp_path, build, "--repeats", 3, "--links", "udp", "--sizes", "64,4K")[1:])
    options.output.mkdir()
    with pytest.raises(why):
        command.compare(options, tmp_path)
    run = stored_run.read(tmp_path / "run.json")
    assert run.commit == "0123abc4567d" and [row.bytes for row in run.rows] == [64, 64]
    assert f"4 KiB, round 1: {said}" in capsys.readouterr().out


def test_Tools_UsersPath_FindsThoseOfAdministrators(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    enclosure.reach_administrators_programs()
    assert shutil.which("ip") and os.environ["PATH"].startswith("/usr/bin:/bin:")


def test_Run_InsideAMachine_GivesATableAndAStoredRun(tmp_path):
    answer = compare(tmp_path, make_build(tmp_path / "build"), "--links", "udp,memif", "--sizes", "4,64K")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    run = stored_run.read(tmp_path / "run.json")
    assert [(row.link, row.transport, row.bytes) for row in run.rows] == [
        (link, transport, count)
        for link, ours in (("memif", "DPDK"), ("UDP", "UDP"))
        for count in (4, 65536)
        for transport in ("TCP", ours)
    ]
    assert run.commit == "0123abc4567d" and "load " in run.machine
    assert answer.stdout.startswith(run.machine.partition(", load ")[0]) and " of a core" in run.machine
    assert len(run.rates) in (0, 2)  # none where /usr/bin/python3 has no PyTorch
    assert ("copies 64 MiB at " if run.rates else "copy and addition rates: not measured: ") in answer.stdout
    assert "inside a machine  memif  DPDK       64 KiB" in answer.stdout and "not measured" not in answer.stdout


def test_Run_LinkFails_IsInTheTableWithItsReason(tmp_path):
    build = make_build(tmp_path / "build", {"all_reduce_perf DPDK": "fail"})
    answer = compare(tmp_path, build, "--links", "memif,udp", "--sizes", "4,64K")
    assert answer.returncode == 1
    reasons = answer.stdout.partition("\nnot measured, or not in all rounds:\n")[2].splitlines()
    assert len(reasons) == 1 and reasons[0].startswith("  inside a machine, memif, DPDK, 4 B, round 1: rank ")
    assert reasons[0].endswith("DPDK, connecting: the reason it failed")
    assert {row.link for row in stored_run.read(tmp_path / "run.json").rows} == {"UDP"}


def test_Run_AllFail_WritesNoStoredRun(tmp_path):
    build = make_build(tmp_path / "build", {"all_reduce_perf UDP": "fail"})
    answer = compare(tmp_path, build, "--links", "udp", "--sizes", "4")
    assert answer.returncode == 1 and "the reason it failed" in answer.stdout
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_Run_EndedBySignal_LeavesNoProcess(tmp_path, number):
    build = make_build(tmp_path / "build", {"all_reduce_perf UDP": "hang"})
    child = subprocess.Popen(
        words_of(tmp_path, build, "--links", "udp", "--sizes", "4"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "out" / "udp-4-1" / "rank-1.log").exists():
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.02)
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 128 + number, said
    assert f"ended by {number.name}" in said
    until = time.monotonic() + 60  # the kernel ends one that had just been started, a moment later
    while processes_that_name(str(tmp_path)):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.skipif(not BUILD, reason="all_reduce_perf is not in this build")
@pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces() or "-")
def test_Run_RealRanksOverVeth_AreMeasured(tmp_path):
    answer = compare(tmp_path, BUILD, "--links", "udp-1500,netdev-9000,vhost-1500", "--sizes", "4,64K")
    rows = stored_run.read(tmp_path / "run.json").rows
    # Which of them this build has does not matter here; missing ones must say why.
    assert {row.link for row in rows} | {
        link for link in ("UDP 1500", "netdev 9000", "vhost 1500") if f"{link}, " in answer.stdout
    } == {"UDP 1500", "netdev 9000", "vhost 1500"}
    assert answer.returncode == ("not measured" in answer.stdout)
    assert {row.bytes for row in rows if row.link == "UDP 1500"} == {4, 65536}
    left = subprocess.run(["ip", "link"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert links.INTERFACE not in left
