"""available(): what works here, why the rest does not, and that the call leaves nothing behind."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import PROGRAMS, ROOT, answers_in, environment_for, run
from ranks import FROM_WHEEL, PYTHON, Ranks, free_port

NO_DPDK, NO_RDMA = os.environ.get("PLUGIN_NO_DPDK", ""), os.environ.get("PLUGIN_NO_RDMA", "")
needs_dpdk = pytest.mark.skipif(bool(NO_DPDK), reason=NO_DPDK or "DPDK is in this build")
needs_rdma = pytest.mark.skipif(bool(NO_RDMA), reason=NO_RDMA or "RDMA is in this build")
HAS_RDMA_DEVICE = os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband"))


def free_huge_pages():
    return any(line.startswith("HugePages_Free") and int(line.split()[1]) > 0 for line in open("/proc/meminfo"))


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Answers by the name of the environment, all from one process."""
    folder = tmp_path_factory.mktemp("a")
    open_to_all = folder / "open"
    open_to_all.mkdir()
    os.chmod(open_to_all, 0o755)
    own = folder / "own"
    own.mkdir(mode=0o700)
    unwritable = folder / "unwritable"
    unwritable.write_text("no directory")
    environments = {
        "as it is": {"GLOO_BYPASS_STATS": str(folder / "stats.json"), "GLOO_BYPASS_METRICS": f"file:{folder}/metrics"},
        "directory exists": {"GLOO_BYPASS_MEMIF_DIRECTORY": str(own)},
        "directory cannot be made": {"GLOO_BYPASS_MEMIF_DIRECTORY": str(unwritable / "m")},
        "directory open to others": {"GLOO_BYPASS_MEMIF_DIRECTORY": str(open_to_all)},
        "encryption": {"GLOO_BYPASS_SECURITY": "encrypt"},
        "wrong value": {"GLOO_BYPASS_SPIN_US": "fast"},
        "no such interface": {"GLOO_SOCKET_IFNAME": "nosuch0,lo", "GLOO_BYPASS_LINK": "netdev"},
        "no such device": {
            "GLOO_BYPASS_LINK": "pci",
            "GLOO_BYPASS_PCI_ADDRESS": "ffff:ff:1f.7",
            "GLOO_BYPASS_IPV4": "10.9.9.2/24",
        },
        "huge pages": {"GLOO_BYPASS_HUGE_PAGES": "on", "GLOO_BYPASS_LINK": "netdev", "GLOO_BYPASS_INTERFACE": "lo"},
        "rdma device": {"GLOO_BYPASS_RDMA_DEVICES": "nosuch0"},
        "afterwards": {},
    }
    results = answers_in(list(environments.values()), folder)
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {**dict(zip(environments, results)), "left in the folder": left, "threads": results[-1]}


def answer(asked, environment, transport):
    works, name, available, device, reason = asked[environment]["answers"][transport]
    assert works == available and name == transport
    assert bool(device) == works and bool(reason) == (not works), (device, reason)
    assert "\n" not in device + reason
    return works, device + reason


def test_Available_Always_NamesAllTransports(asked):
    for result in asked.values():
        if isinstance(result, dict):
            assert list(result["answers"]) == ["TCP", "DPDK", "UDP", "RDMA"]


def test_Available_Tcp_WorksHere(asked):
    assert answer(asked, "as it is", "TCP")[0]


@needs_dpdk
def test_Available_Dpdk_WorksHereAndNamesTheDirectoryThatRanksWouldUse(asked):
    works, text = answer(asked, "as it is", "DPDK")
    assert works, text
    assert "/m, UDP socket " in text, text
    assert answer(asked, "directory exists", "DPDK")[0]
    assert answer(asked, "afterwards", "DPDK")[0]


@needs_dpdk
@pytest.mark.parametrize("name, cause", [("d", "is not a directory"), ("d" * 50, "is longer than 62 bytes")])
def test_Available_DpdkWithoutADirectoryThatNobodyNamed_WorksAndSaysWhatItLacks(tmp_path_factory, name, cause):
    folder = tmp_path_factory.mktemp(name)
    if name == "d":
        (folder / f"gloo-bypass-{os.geteuid()}").write_text("no directory")
    environment = environment_for(folder, XDG_RUNTIME_DIR=folder, GLOO_BYPASS_MEMIF_DIRECTORY="")
    result = run(["-m", "gloo_bypass", "DPDK"], environment)
    line = next(line for line in result.stdout.splitlines() if line.startswith("DPDK: "))
    assert f"DPDK: yes, no shared memory (memif directory '{folder}/gloo-bypass-" in line, line
    assert cause in line and ", UDP socket " in line, line
    assert result.stderr == ""


@needs_dpdk
@pytest.mark.parametrize(
    "environment, parts",
    [
        ("directory cannot be made", ["unwritable/m'", "GLOO_BYPASS_MEMIF_DIRECTORY"]),
        ("directory open to others", ["open to other users", "755", "700"]),
        ("wrong value", ["GLOO_BYPASS_SPIN_US='fast'", "0 to 1000000"]),
        ("no such interface", ["nosuch0"]),
        ("no such device", ["ffff:ff:1f.7"]),
    ],
)
def test_Available_DpdkCannotWork_SaysWhy(asked, environment, parts):
    works, text = answer(asked, environment, "DPDK")
    assert not works
    assert all(part in text for part in parts), text
    assert ".gb" not in text, "names the folder of the attempt"


@needs_dpdk
@pytest.mark.skipif(free_huge_pages(), reason="there are free huge pages here")
def test_Available_NoHugePages_SaysWhatToDo(asked):
    works, text = answer(asked, "huge pages", "DPDK")
    assert not works and "vm.nr_hugepages" in text, text


def test_Available_ThreeThreadsAtOnce_AllAreToldTheSame(asked):
    # Each attempt over UDP has a different port.
    told = [[re.sub(r"(UDP socket \S+):\d+$", r"\1", line) for line in answers] for answers in asked["threads"]]
    assert told == [told[0]] * 3
    assert asked["threads"][0][1].startswith("DPDK: no" if NO_DPDK else "DPDK: yes")


def test_Available_TcpInterfaceMissing_SaysWhy(asked):
    works, text = answer(asked, "no such interface", "TCP")
    assert not works and "GLOO_SOCKET_IFNAME='nosuch0'" in text, text


def test_Available_EncryptionIsWanted_TcpSaysThatItHasNone(asked):
    works, text = answer(asked, "encryption", "TCP")
    assert not works and "GLOO_BYPASS_SECURITY='encrypt'" in text, text
    assert answer(asked, "encryption", "UDP")[0]


@needs_rdma
def test_Available_RdmaDeviceMissing_SaysWhy(asked):
    works, text = answer(asked, "rdma device", "RDMA")
    assert not works and "device" in text, text


@needs_rdma
@pytest.mark.skipif(HAS_RDMA_DEVICE, reason="this machine has an RDMA device")
def test_Available_NoRdmaDevice_SaysWhatToDo(asked):
    works, text = answer(asked, "as it is", "RDMA")
    assert not works and "rdma link add" in text, text


@pytest.mark.skipif(not (NO_DPDK or NO_RDMA), reason="both transports are in this build")
def test_Available_NotInThisBuild_IsSaid(asked):
    for transport in [name for name, missing in (("DPDK", NO_DPDK), ("RDMA", NO_RDMA)) if missing]:
        works, text = answer(asked, "as it is", transport)
        assert not works and "not in this build" in text, text


def test_Available_Asked_LeavesNothingBehind(asked):
    assert [result["left"] for result in asked.values() if isinstance(result, dict)] == [[]] * (len(asked) - 2)
    assert asked["left in the folder"] == ["open", "own", "unwritable"]


def test_Available_NoHomeAndNoRuntimeDirectory_WorksAllTheSame(tmp_path):
    environment = environment_for(tmp_path, XDG_RUNTIME_DIR="/nonexistent", GLOO_BYPASS_MEMIF_DIRECTORY="")
    environment.pop("HOME", None)
    default = pathlib.Path(f"/tmp/gloo-bypass-{os.geteuid()}")
    existed = default.exists()
    answers = json.loads(run(["-m", "gloo_bypass", "--json"], environment).stdout)
    assert answers["TCP"]["available"]
    if not NO_DPDK:
        assert answers["DPDK"]["available"] and str(default) in answers["DPDK"]["device"], answers["DPDK"]
    assert existed or not default.exists()


@needs_dpdk
def test_InUse_DpdkBeforeWhileAndInChild_AnswersAndCountersAreTrue():
    second = str(free_port())
    with Ranks(PROGRAMS / "in_use.py", 2, load="import", environment={"SECOND_PORT": second}) as ranks:
        ranks.succeed()
        for rank in range(2):
            assert ranks.value(rank, "stats_before") == "{}"
            assert ranks.value(rank, "before") == "True"
            assert ranks.value(rank, "child_sum") == "2.0"
            assert ranks.value(rank, "sum") == "2.0"
            assert ranks.value(rank, "while") == "True"
            assert ranks.value(rank, "in_child").startswith("DPDK: no, ") and "fork" in ranks.value(rank, "in_child")
            assert ranks.value(rank, "transports") == "['DPDK']"
        check_counters(json.loads(ranks.value(0, "stats")))


@needs_dpdk
def test_AfterFailure_ProcessGroupCouldNotBeMade_AsksWithoutStartingAnything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("f")  # short, for sockets
    metrics = folder / "metrics.prom"
    environment = environment_for(
        folder,
        GLOO_DEVICE_TRANSPORT="DPDK",
        GLOO_BYPASS_MEMIF_DIRECTORY="/proc/nowhere",
        GLOO_BYPASS_METRICS=f"file:{metrics}",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=free_port(),
        SECOND_PORT=free_port(),
        RANK=0,
        WORLD_SIZE=1,
        GOOD_DIRECTORY=folder / "m",
        METRICS_FILE=metrics,
    )
    result = json.loads(run([PROGRAMS / "after_failure.py"], environment).stdout.splitlines()[-1])
    assert "/proc/nowhere" in result["failure"]
    assert not result["still wrong"]["works"] and "/proc/nowhere" in result["still wrong"]["text"]
    assert result["mended"]["works"], result["mended"]["text"]
    for answer in (result["still wrong"], result["mended"]):
        assert answer["stats"] == {} and not answer["metrics"], answer
    assert result["transports"] == ["DPDK"] and result["metrics in use"]


@pytest.mark.skipif(FROM_WHEEL, reason="a wheel's library is not for LD_PRELOAD")
def test_Preloaded_AnotherFileOfThePlugIn_NoSecondCopyIsLoaded(tmp_path):
    library = pathlib.Path(os.environ["PLUGIN_LIBRARY"])
    preloaded, plugin = tmp_path / library.name, tmp_path / "libgloo_bypass_plugin.so"
    shutil.copy(library, preloaded)
    shutil.copy(library.with_name(plugin.name), plugin)
    show = (
        "import gloo_bypass; print(sorted({line.split()[-1] for line in open('/proc/self/maps') if "
        "'libgloo_bypass' in line}), gloo_bypass.stats())"
    )
    result = run(["-c", show], environment_for(tmp_path, LD_PRELOAD=preloaded))
    assert result.stdout.strip() == f"['{preloaded}', '{plugin}'] {{}}"


def check_counters(stats):
    """Real counters have exactly the keys that the types document."""
    source = (pathlib.Path(os.environ["PLUGIN_PYTHON_PATH"]) / "gloo_bypass" / "_stats.py").read_text()
    types = {}
    for imported in ("from . import _library", "from gloo_bypass_autoload import TRANSPORTS"):
        assert imported in source
        source = source.replace(imported, "")
    exec(compile(source.replace("*TRANSPORTS, ", ""), "_stats.py", "exec"), types)
    optional = {"latencies"}
    assert set(stats) - optional == set(types["TransportStats"].__annotations__) - optional
    assert set(stats["port"]) >= set(types["PortStats"].__annotations__)
    for channel in stats["open_channels"]:
        assert set(channel) - optional == set(types["ChannelStats"].__annotations__) - optional
    assert stats["bytes_sent"] > 4000
    assert stats["payload_bytes_sent"] >= 4000
    assert stats["transport"] == "DPDK"


def test_Command_Text_OneLineForEachTransport(tmp_path):
    result = run(["-m", "gloo_bypass", "TCP"], environment_for(tmp_path))
    first, *lines = result.stdout.splitlines()
    assert re.fullmatch(r"gloo_bypass \S+ with PyTorch \S+: Gloo (as|of) .*, libgloo_bypass\w*\.so", first), first
    assert [line.split(":")[0] for line in lines] == ["TCP", "DPDK", "UDP", "RDMA"]
    assert lines[0].startswith("TCP: yes, ")
    assert list(tmp_path.iterdir()) == []


def test_Command_NamedTransportDoesNotWork_ExitStatusSaysSo(tmp_path):
    result = run(
        ["-m", "gloo_bypass", "DPDK"], environment_for(tmp_path, GLOO_BYPASS_MEMIF_DIRECTORY="/proc/nowhere"), status=1
    )
    assert "DPDK: no, " in result.stdout and result.stderr == ""


def test_Command_UnknownTransport_OneClearLine(tmp_path):
    result = run(["-m", "gloo_bypass", "dpdk"], environment_for(tmp_path), status=2)
    assert "'dpdk' is no transport; there are TCP, DPDK, UDP, RDMA" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "prober", [["-m", "gloo_bypass"], [ROOT / "scripts" / "gloo-bypass-doctor"]], ids=["package", "doctor"]
)
def test_Command_ListenAndProbe_EachWayIsJudged(tmp_path, prober):
    where = f"127.0.0.1:{free_port()}"
    with subprocess.Popen(
        [PYTHON, "-m", "gloo_bypass", "--listen", where, "--seconds", "80"],
        text=True,
        stdout=subprocess.PIPE,
        env=environment_for(tmp_path),
    ) as listener:
        try:
            assert listener.stdout.readline() == (
                f"python3 -m gloo_bypass: listens at {where} for 80 s; on the other "
                f"host run: python3 -m gloo_bypass --probe {where}\n"
            )
            output = run([*prober, "--probe", where], environment_for(tmp_path)).stdout
        finally:
            listener.kill()
    way = r"127\.0\.0\.1:\d+ to 127\.0\.0\.1:\d+: packets of up to \d+ bytes arrive"
    assert len(re.findall(way, output)) == 2, output


def test_Command_ProbeAndNobodyListens_OneLineSaysWhatToStart(tmp_path):
    result = run(["-m", "gloo_bypass", "--probe", f"127.0.0.1:{free_port()}"], environment_for(tmp_path), status=1)
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert result.stderr.endswith("start python3 -m gloo_bypass --listen there first\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--probe", "a:b"],
        ["--probe", ""],
        ["--listen", "x", "--probe", "y"],
        ["UDP", "--probe", "y"],
        ["--listen", "--seconds", "0"],
    ],
)
def test_Command_BadProbe_OneLineAndExitStatus2(tmp_path, arguments):
    result = run(["-m", "gloo_bypass", *arguments], environment_for(tmp_path), status=2)
    assert result.stderr.splitlines()[-1].startswith("python3 -m gloo_bypass: error: ")
