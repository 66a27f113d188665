"""The three ways to load the plug-in, and the messages when something about it is wrong."""

import json
import os
import re
import shutil
import subprocess

import pytest
from ranks import FOLDER, FROM_WHEEL, HANG_SECONDS, LIBRARY, PYTHON, Ranks, clean_environment


def refused(*parts, **options):
    """Runs one rank that must fail with one line holding all parts; no traceback line but PyTorch's own counts."""
    with Ranks("add.py", 1, **options) as ranks:
        statuses = ranks.wait()
        output = ranks.output(0)
    assert statuses[0] not in (0, None) and statuses[0] > 0, f"did not fail in good order: {statuses}\n{output}"
    last = output.strip().splitlines()[-1]
    for part in parts:
        assert part in last, f"'{part}' is not in: {output}"
    assert "sum=" not in output


@pytest.mark.parametrize(
    "load",
    [
        "preload",
        "import",
        *([] if FROM_WHEEL else ["load_library", "preload+", "import+load_library", "load_library+load_library"]),
    ],
)
def test_Load_EachWay_AllReduceGoesOverDpdk(load):
    environment = {"GLOO_BYPASS_STATS": "./stats-%r.json"}
    if load == "preload+":  # twice, and two more ways on top
        load, environment["LOAD"] = "preload", "import+load_library"
        environment["PYTHONPATH"] = os.environ["PLUGIN_PYTHON_PATH"]
    elif "import" in load:
        environment["PYTHONPATH"] = os.environ["PLUGIN_PYTHON_PATH"]
    with Ranks("add.py", 2, load=load, environment=environment) as ranks:
        ranks.succeed()
        assert [ranks.value(r, "sum") for r in range(2)] == ["3", "3"]
        for rank in range(2):
            with open(os.path.join(ranks.folder.name, f"stats-{rank}.json")) as file:
                assert json.load(file)["bytes_sent"] > 4000


PRELOADED = pytest.mark.skipif(FROM_WHEEL, reason="a wheel's library is not for LD_PRELOAD")


@PRELOADED
@pytest.mark.parametrize("transport", ["DPDK", "UDP"])
def test_Preload_ProgramsThatARankStarts_LoadNothingOfPyTorchAndCostNothing(transport):
    """sglang#36533: each /bin/true took 0.33 s of processor time, for libtorch_cpu.so came with it."""
    with Ranks("children.py", 2, transport=transport) as ranks:
        ranks.succeed()
        for rank in range(2):
            assert ranks.value(rank, "libraries") == "libgloo_bypass.so"
            assert float(ranks.value(rank, "seconds")) < 0.05
            assert ranks.value(rank, "said") == "b"


@PRELOADED
@pytest.mark.parametrize("relative", [False, True])
def test_Preload_PythonWithoutPyTorch_LoadsNothingOfIt(relative):
    show = "print(*[line for line in open('/proc/self/maps') if 'torch' in line or 'gloo' in line])"
    library = os.path.relpath(LIBRARY) if relative else LIBRARY
    done = subprocess.run(
        [PYTHON, "-c", show],
        env={**clean_environment(), "LD_PRELOAD": library},
        check=True,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.stderr == "" and {line.split()[-1] for line in done.stdout.splitlines() if line} == {
        os.path.realpath(LIBRARY)
    }


@PRELOADED
def test_Preload_RelativePathAndTheProgramMovesOn_PlugInIsFound():
    """The ranks run in a folder of their own."""
    with Ranks(
        "add.py",
        2,
        environment={"LD_PRELOAD": os.path.relpath(LIBRARY)},
        prefixes=[["sh", "-c", 'cd "$0" && exec "$@"', os.getcwd()]] * 2,
    ) as ranks:
        ranks.succeed()


@PRELOADED
def test_Preload_RanksThatMultiprocessingSpawns_FindTheTransport():
    with Ranks("spawn.py", 1) as ranks:
        ranks.succeed()
        assert ranks.value(0, "spawned") == "right"


@PRELOADED
def test_Preload_RanksThatTorchrunStarts_FindTheTransport(tmp_path):
    """With Debian's options (docs/pytorch.md)."""
    torchrun = [PYTHON, "-m", "torch.distributed.run"]
    environment = {
        **clean_environment(),
        "LD_PRELOAD": LIBRARY,
        "GLOO_DEVICE_TRANSPORT": "UDP",
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }

    def run(*words):
        return subprocess.run(
            [*torchrun, *words], env=environment, capture_output=True, text=True, timeout=HANG_SECONDS
        )

    here = ["--local_addr", "127.0.0.1"] if "--local" in run("--help").stdout else []  # PyTorch 1.13 does not know it
    done = run(
        "-r",
        "1",
        "-t",
        "1",
        "--rdzv_backend",
        "c10d",
        "--rdzv_conf",
        "store_type=file",
        "--rdzv_endpoint",
        tmp_path / "meeting",
        "--rdzv_id",
        "1",
        *here,
        "--nproc_per_node",
        "2",
        os.path.join(FOLDER, "programs", "add.py"),
    )
    assert done.returncode == 0 and done.stdout.count("sum=3") == 2, done.stdout + done.stderr


@PRELOADED
@pytest.mark.parametrize("transport, device", [("UDP", "UDP socket"), ("TCP", "tcp")])
def test_Preload_CppProgramLinkedWithPyTorch_FindsTheTransport(transport, device):
    program = os.environ["PLUGIN_CPP_PROGRAM"]
    environment = {**clean_environment(), "GLOO_DEVICE_TRANSPORT": transport}
    done = subprocess.run(
        [program], env={**environment, "LD_PRELOAD": LIBRARY}, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.returncode == 0 and f"device={device}" in done.stdout, done.stdout + done.stderr
    if transport != "TCP":
        done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=HANG_SECONDS)
        assert done.returncode == 1 and "unsupported gloo device" in done.stderr


@PRELOADED
def test_Preload_PlugInIsNotBesideIt_OneLineSaysSoAndPyTorchRefuses(tmp_path):
    library = shutil.copy(LIBRARY, tmp_path)
    with Ranks("add.py", 1, transport="UDP", environment={"LD_PRELOAD": library}) as ranks:
        assert ranks.wait() == [1]
        output = ranks.output(0)
        assert output.count(f"gloo-bypass: {tmp_path}/libgloo_bypass_plugin.so: cannot open shared object file") == 1
        assert "unsupported gloo device" in output.splitlines()[-1]


def test_Load_NotLoaded_PyTorchRefusesDpdk():
    refused("unsupported gloo device", load=None)


@pytest.mark.without_dpdk
def test_Load_ByTcpProgram_NothingChanges():
    with Ranks("add.py", 2, transport="TCP") as ranks:
        ranks.succeed()
        assert [ranks.value(r, "sum") for r in range(2)] == ["3", "3"]


@pytest.mark.without_dpdk
@pytest.mark.parametrize("transport", ["dpdk", "DPDK ", "ROCE"])
def test_Transport_Unknown_NamesItAndTheKnownOnes(transport):
    # A wheel is loaded by PyTorch for names like ours only.
    refused(
        f"GLOO_DEVICE_TRANSPORT='{transport}'",
        "known are ",
        "DPDK, ",
        "TCP",
        transport=transport,
        load="import" if FROM_WHEEL else "preload",
    )


@pytest.mark.without_dpdk
@pytest.mark.parametrize("transport", ["TCP", None])
def test_Encryption_OverGloosOwnTransport_IsRefusedWithTheWayOut(transport):
    refused(
        "GLOO_BYPASS_SECURITY='encrypt' encrypts nothing over Gloo's own transports: set GLOO_DEVICE_TRANSPORT",
        transport=transport,
        load="import" if FROM_WHEEL else "preload",
        environment={"GLOO_BYPASS_SECURITY": "encrypt"},
    )


@pytest.mark.without_dpdk
@pytest.mark.skipif(not os.environ.get("PLUGIN_NO_RDMA"), reason="the RDMA transport is in this build")
def test_Transport_NotInThisBuild_IsSaid():
    refused("RDMA", "not in this build", transport="RDMA")


@pytest.mark.rdma
@pytest.mark.without_dpdk
@pytest.mark.skipif(
    os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband")),
    reason="this machine has an RDMA device",
)
def test_Rdma_NoDevice_OneLineSaysWhatToDo():
    refused("RDMA transport: ", "device", transport="RDMA")


@pytest.mark.rdma
@pytest.mark.without_dpdk
@pytest.mark.parametrize(
    "environment, parts",
    [
        ({"GLOO_BYPASS_RDMA_DEVICES": "nosuch0"}, ["RDMA transport: "]),
        ({"GLOO_BYPASS_RDMA_CREDITS": "7"}, ["RDMA transport: ", "GLOO_BYPASS_RDMA_CREDITS='7'", "8 to 1024"]),
        ({"GLOO_SOCKET_IFNAME": "eth2", "GLOO_BYPASS_INTERFACE": "eth1"}, ["RDMA transport: ", "'eth1'", "'eth2'"]),
    ],
)
def test_Rdma_CannotBeMade_OneLineSaysWhat(environment, parts):
    refused(*parts, transport="RDMA", environment=environment)


@pytest.mark.parametrize(
    "variable, value, parts",
    [
        ("GLOO_BYPASS_SPIN_US", "fast", ["GLOO_BYPASS_SPIN_US='fast'", "0 to 1000000 us"]),
        ("GLOO_BYPASS_LINK", "mmif", ["GLOO_BYPASS_LINK='mmif'", "auto, memif, netdev or pci"]),
        ("GLOO_BYPASS_SPINS_US", "5", ["GLOO_BYPASS_SPINS_US", "did you mean GLOO_BYPASS_SPIN_US?"]),
    ],
)
def test_Configuration_Wrong_NamesVariableValueAndAllowed(variable, value, parts):
    refused(*parts, environment={variable: value})


@pytest.mark.without_dpdk
@pytest.mark.parametrize("service", ["GLOO_BYPASS", "GLOO_BYPASS_METRICS", "GLOO_BYPASS_UDP", "GLOO_BYPASS_RDMA"])
def test_Configuration_VariablesOfAKubernetesService_AreIgnoredWithOneLineARank(service):
    """kubernetes#35189: each container gets them, for every Service of the namespace."""
    address, variable = "10.3.104.46", f"{service}_PORT_9101_TCP"
    variables = {
        f"{service}_SERVICE_HOST": address,
        f"{service}_SERVICE_PORT": "9101",
        f"{service}_SERVICE_PORT_METRICS": "9101",
        f"{service}_PORT": f"tcp://{address}:9101",
        variable: f"tcp://{address}:9101",
        f"{variable}_PROTO": "tcp",
        f"{variable}_PORT": "9101",
        f"{variable}_ADDR": address,
    }
    with Ranks("add.py", 2, transport="UDP", environment=variables) as ranks:
        ranks.succeed()
        for rank in range(2):
            assert ranks.value(rank, "sum") == "3"
            assert ranks.output(rank).count("gloo-bypass: ignoring the variables") == 1, ranks.output(rank)


@pytest.mark.parametrize(
    "environment, parts",
    [
        ({"GLOO_BYPASS_INTERFACE": "nosuch0"}, ["nosuch0"]),
        ({"GLOO_BYPASS_NETWORK": "netdev", "GLOO_BYPASS_INTERFACE": "nosuch0"}, ["nosuch0"]),
        ({"GLOO_BYPASS_NETWORK": "rdma", "GLOO_BYPASS_RDMA_DEVICES": "nosuch0"}, ["GLOO_BYPASS_NETWORK='rdma'"]),
        ({"GLOO_BYPASS_LINK": "memif", "GLOO_BYPASS_NETWORK": "udp"}, ["GLOO_BYPASS_LINK", "GLOO_BYPASS_NETWORK"]),
        ({"GLOO_BYPASS_LINK": "netdev", "GLOO_SOCKET_IFNAME": "nosuch0"}, ["nosuch0"]),
        ({"GLOO_BYPASS_LINK": "netdev", "GLOO_BYPASS_INTERFACE": "nosuch0"}, ["nosuch0"]),
        (
            {
                "GLOO_BYPASS_LINK": "netdev",
                "GLOO_BYPASS_INTERFACE": "lo",
                "GLOO_BYPASS_EAL_ARGUMENTS": "--no-such-argument",
            },
            ["--no-such-argument"],
        ),
        (
            {"GLOO_BYPASS_LINK": "pci", "GLOO_BYPASS_PCI_ADDRESS": "ffff:ff:1f.7", "GLOO_BYPASS_IPV4": "10.9.9.2/24"},
            ["ffff:ff:1f.7"],
        ),
        ({"GLOO_BYPASS_MEMIF_DIRECTORY": "/proc/nowhere"}, ["/proc/nowhere"]),
    ],
)
def test_Device_CannotBeMade_OneLineSaysWhat(environment, parts):
    refused(*parts, environment=environment)


def test_Configuration_RanksCannotTalk_BothValuesAreNamedAtConnect():
    with Ranks(
        "add.py", 2, per_rank={0: {"GLOO_BYPASS_PAYLOAD_CHECKSUM": "on"}, 1: {"GLOO_BYPASS_PAYLOAD_CHECKSUM": "off"}}
    ) as ranks:
        statuses = ranks.wait()
        outputs = [ranks.output(r) for r in range(2)]
    assert 0 not in statuses, outputs
    assert any(
        "on" in o.splitlines()[-1] and "off" in o.splitlines()[-1] and "checksum" in o.lower() for o in outputs
    ), outputs


C_FUNCTIONS = {
    "gloo_bypass_available_json",
    "gloo_bypass_collectives_v1",
    "gloo_bypass_register",
    "gloo_bypass_stats_json",
}
PLUG_IN = os.path.join(os.path.dirname(LIBRARY), "libgloo_bypass_plugin.so")
STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&"


def visible_in(library):
    symbols = subprocess.run(
        ["nm", "-DC", "--defined-only", library], capture_output=True, text=True, timeout=HANG_SECONDS, check=True
    )
    names = {line.split(maxsplit=2)[-1] for line in symbols.stdout.splitlines()}
    # A wheel's library finds its own virtual tables by their names.
    return {name for name in names if not name.startswith("vtable for gloo_bypass::LayoutOf")}


@pytest.mark.without_dpdk
def test_Library_Symbols_OnlyOurOwnAreVisible():
    factory = "c10d::GlooDeviceFactory::makeDeviceFor"  # LD_PRELOAD's precedes PyTorch's
    makers = (
        set()
        if FROM_WHEEL
        else {
            f"{factory}{what}({arguments})"
            for what in ("Interface", "Hostname")
            for arguments in (STRING, f"{STRING}, bool")
        }
    )
    assert visible_in(LIBRARY) == C_FUNCTIONS | makers


@PRELOADED
@pytest.mark.without_dpdk
def test_PlugIn_Symbols_OnlyOurOwnAreVisible():
    assert visible_in(PLUG_IN) == C_FUNCTIONS


@PRELOADED
@pytest.mark.without_dpdk
def test_Register_PyTorchIsNotThereYet_SaysSoAndRegistersWhenItIs():
    program = f"""if True:
        import ctypes
        library, answer = ctypes.CDLL({LIBRARY!r}), ctypes.create_string_buffer(1000)
        print(library.gloo_bypass_register(answer, 1000), answer.value.decode())
        import torch.distributed
        print(library.gloo_bypass_register(answer, 1000), answer.value.decode())"""
    done = subprocess.run(
        [PYTHON, "-c", program],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    text = "PyTorch (libtorch_cpu.so) is not loaded yet: call this again when it is"
    assert done.stdout.splitlines() == [f"{len(text) + 1} {text}", "1 "] and done.stderr == ""


@PRELOADED
@pytest.mark.without_dpdk
def test_Register_AnotherPyTorchIsThere_OneLineNamesBothAndWhatToDo(tmp_path):
    another = shutil.copy("/lib/x86_64-linux-gnu/libdl.so.2", tmp_path / "libtorch_cpu.so.9.9")
    program = f"""if True:
        import ctypes
        ctypes.CDLL({os.fspath(another)!r})
        library, answer = ctypes.CDLL({LIBRARY!r}), ctypes.create_string_buffer(1000)
        print(library.gloo_bypass_register(answer, 1000), answer.value.decode())"""
    done = subprocess.run(
        [PYTHON, "-c", program],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    said = re.fullmatch(
        r"gloo-bypass: (.* was built for libtorch_cpu\.so\.(.*), and this program has (.*): "
        r"install gloo_bypass for this PyTorch \(docs/pytorch\.md\))\n",
        done.stderr,
    )
    assert said and said[3] == os.fspath(another), done.stderr
    assert done.stdout == f"{len(said[1]) + 1} {said[1]}\n"


@PRELOADED
def test_Library_ForLdPreload_NeedsTheCLibraryAlone():
    dynamic = subprocess.run(
        ["readelf", "-d", LIBRARY], capture_output=True, text=True, timeout=HANG_SECONDS, check=True
    )
    assert re.findall(r"NEEDED.*\[(.*)\]", dynamic.stdout) == ["libc.so.6"]
