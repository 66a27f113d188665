"""gloo-bypass-doctor on made-up machines: its findings, its advice, and its exit status."""

import ipaddress
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_machine import COMPLETE_ENVIRONMENT, IPV4_GID, LIBRARIES, PLUGIN_ITSELF, bare, complete

IPV6_GID = "fd00:0000:0000:0000:0202:c9ff:fe00:0001"
LINK_LOCAL_GID = "fe80:0000:0000:0000:0202:c9ff:fe00:0001"
ROOT = Path(__file__).resolve().parents[3]
DOCTOR = ROOT / "scripts" / "gloo-bypass-doctor"
sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.doctor import rdma_checks, udp_checks  # noqa: E402
from gloo_bypass_tools.doctor.machine import Machine  # noqa: E402
from gloo_bypass_tools.doctor.paths import AUTO, IN_WHEEL, TITLES, examine  # noqa: E402
from gloo_bypass_tools.doctor.shared_object import needed_libraries  # noqa: E402


def run(machine, *arguments, **environment):
    return subprocess.run(
        ["/usr/bin/python3", str(DOCTOR), "--sysroot", str(machine.root), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )


def findings(machine, path, **environment):
    """By name."""
    result = run(machine, "--json", "--path", path, **environment)
    report = json.loads(result.stdout)[path]
    assert result.returncode == (0 if report["works"] else 1)
    return {finding["name"]: finding for finding in report["findings"]}


def states(machine, path, **environment):
    return {name: finding["state"] for name, finding in findings(machine, path, **environment).items()}


@pytest.mark.parametrize("path", TITLES)
def test_Doctor_CompleteMachine_EverythingIsOk(tmp_path, path):
    assert set(states(complete(tmp_path), path, **COMPLETE_ENVIRONMENT).values()) == {"ok"}


@pytest.mark.parametrize(
    "path, lacking",
    [
        ("memif", {"DPDK libraries"}),
        ("netdev", {"DPDK driver net_af_packet", "network interface", "capabilities", "locked memory"}),
        ("pci", {"DPDK driver bus_pci", "DPDK's NIC drivers", "NIC", "IOMMU", "vfio", "locked memory"}),
        ("udp", {"UDP socket"}),
        ("rdma", {"libibverbs", "RDMA devices", "GID", "locked memory"}),
        ("softroce", {"tools", "module rdma_rxe", "SoftRoCE device", "libibverbs", "locked memory"}),
        ("training", {"PyTorch", "Gloo", "BLAS"}),
    ],
)
def test_Doctor_BareMachine_NamesWhatIsMissing(tmp_path, path, lacking):
    found = findings(bare(tmp_path), path)
    assert {name for name, finding in found.items() if finding["state"] == "missing"} == lacking
    for name in lacking - {"GID"}:
        assert found[name]["mend"] and found[name]["why"], f"{name}: says neither why nor what to do"


def test_Doctor_BareMachine_ExitStatusSaysThatNothingWorks(tmp_path):
    result = run(bare(tmp_path))
    assert result.returncode == 1
    assert "memif: lacks 1 thing\n" in result.stdout and "sudo apt-get install libdpdk-dev" in result.stdout


def test_Doctor_NoFilesAtAll_StillAnswers(tmp_path):
    (tmp_path / "empty").mkdir()
    machine = bare(tmp_path)
    machine.root = tmp_path / "empty"
    result = run(machine)
    assert result.returncode == 1 and result.stderr == ""
    assert all(f"{path}: " in result.stdout for path in TITLES)


def test_HugePages_ReservedButNoneFree_SaysWhoHasThem(tmp_path):
    machine = complete(tmp_path)
    machine.huge_pages(512, 0)
    found = findings(machine, "pci", **COMPLETE_ENVIRONMENT)["huge pages"]
    assert found["state"] == "warning" and found["found"] == "0 of 512 free of 2048kB"
    assert "numa_maps" in found["mend"][0]


def test_Udp_KernelGrantsSmallBuffers_SaysSo(tmp_path):
    machine = complete(tmp_path)
    machine.write("proc/sys/net/core/rmem_max", "212992\n")
    assert states(machine, "udp")["socket buffers"] == "ok"  # the complete one may exceed it
    machine.process()
    found = findings(machine, "udp")["socket buffers"]
    assert found["state"] == "warning" and found["found"] == "rmem_max is 208 KiB"
    assert found["mend"] == ["sudo sysctl -w net.core.rmem_max=4194304"]
    machine.write("proc/sys/net/core/rmem_max", "8388608\n")
    assert states(machine, "udp")["socket buffers"] == "ok"


def test_Pci_DriversOfNoNic_AreNotEnough(tmp_path):
    machine = complete(tmp_path)
    (machine.root / "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_ixgbe.so.23").unlink()
    found = findings(machine, "pci", **COMPLETE_ENVIRONMENT)["DPDK's NIC drivers"]
    assert found["state"] == "missing" and found["mend"] == ["sudo apt-get install librte-meta-net"]


def test_HugePages_NoneWithUio_AreMissing(tmp_path):
    machine = complete(tmp_path)
    machine.huge_pages(0, 0)
    machine.nic("0000:00:04.0", "uio_pci_generic")
    assert states(machine, "pci", **COMPLETE_ENVIRONMENT)["huge pages"] == "missing"


def test_Rdma_PortDown_NamesItAndTheCommand(tmp_path):
    machine = complete(tmp_path)
    machine.rdma_device("mlx5_0", state="1: DOWN")
    found = findings(machine, "rdma", GLOO_BYPASS_RDMA_DEVICES="mlx5_0")["RDMA devices"]
    assert found["state"] == "missing" and "mlx5_0: port 1 DOWN, Ethernet" in found["found"]
    assert found["mend"][0] == "sudo ip link set ens1 up"


@pytest.mark.parametrize(
    "gids, kind",
    [
        ((LINK_LOCAL_GID,), "RoCE v2"),
        ((IPV4_GID,), "IB/RoCE v1"),
        (("0000:0000:0000:0000:0000:0000:0000:0000",), "RoCE v2"),
    ],
)
def test_Rdma_NoUsableGid_IsMissing(tmp_path, gids, kind):
    machine = complete(tmp_path)
    machine.rdma_device("mlx5_0", gids=gids, kind=kind)
    found = findings(machine, "rdma", GLOO_BYPASS_RDMA_DEVICES="mlx5_0")["GID"]
    assert found["state"] == "missing" and "dev ens1" in found["mend"][0]


def test_Rdma_DeviceNamedWrongly_NamesThoseThere(tmp_path):
    found = findings(complete(tmp_path), "rdma", GLOO_BYPASS_RDMA_DEVICES="mlx4_0")["RDMA devices"]
    assert found["state"] == "missing" and "mlx5_0, rxe0" in found["found"]


def test_Rdma_DeviceNamedAndNoneThere_AdvisesToMakeOne(tmp_path):
    found = findings(bare(tmp_path), "rdma", GLOO_BYPASS_RDMA_DEVICES="mlx5_0")["RDMA devices"]
    assert found["state"] == "missing" and "softroce up" in found["mend"][0]


def test_Rdma_SeveralActiveAndNoneChosen_AdvisesToNameOne(tmp_path):
    machine = complete(tmp_path)
    machine.rdma_device("mlx5_0", gids=(LINK_LOCAL_GID,))
    found = findings(machine, "rdma")["RDMA devices"]
    assert found["state"] == "missing" and "several are active" in found["found"]
    assert found["mend"] == ["export GLOO_BYPASS_RDMA_DEVICES=rxe0"]
    machine.rdma_device("rxe0", state="1: DOWN")
    assert states(machine, "rdma")["RDMA devices"] == "ok"


def test_Rdma_InterfaceIsNamed_TheDeviceOnItIsChosen(tmp_path):
    machine = complete(tmp_path)
    machine.rdma_device("rxe0", interface="ens2")
    machine.interface("ens2")
    machine.interface("ens3")
    for interface, state in (("ens2", "ok"), ("ens2,ens3", "ok"), ("ens3", "missing"), ("ens4", "missing")):
        found = findings(machine, "rdma", GLOO_SOCKET_IFNAME=interface)
        assert found["RDMA devices"]["state"] == state, interface
        assert state == "missing" or found["GID"]["found"] == "rxe0 index 0"


def test_Rdma_OwnAddressIsADevices_ThatOneIsChosen(tmp_path, monkeypatch):
    machine = complete(tmp_path)
    machine.rdma_device("rxe0", gids=(IPV4_GID, IPV4_GID[:-1] + "2"))
    monkeypatch.setattr(udp_checks, "is_this", lambda _: True)
    monkeypatch.setattr(udp_checks, "chosen_address", lambda _, master: (ipaddress.ip_address(master), "a route"))
    for master, chosen in (("10.0.0.2", ["rxe0"]), ("10.0.0.1", ["mlx5_0"]), ("10.0.0.3", []), ("127.0.0.1", [])):
        assert rdma_checks.chosen_devices(Machine(machine.root, {"MASTER_ADDR": master})) == chosen


def test_Rdma_OneOfTheNamedIsDown_IsMissing(tmp_path):
    machine, both = complete(tmp_path), {"GLOO_BYPASS_RDMA_DEVICES": "mlx5_0,mlx5_1"}
    machine.rdma_device("mlx5_1", state="1: DOWN", interface="ens2")
    found = findings(machine, "rdma", **both)
    assert (found["RDMA devices"]["state"], found["GID"]["state"]) == ("missing", "missing")
    assert found["RDMA devices"]["mend"][0] == "sudo ip link set ens2 up"
    machine.rdma_device("mlx5_1", gids=(LINK_LOCAL_GID,), interface="ens2")
    found = findings(machine, "rdma", **both)
    assert found["RDMA devices"]["state"] == "ok" and found["GID"]["state"] == "missing"
    assert "mlx5_1" in found["GID"]["found"] and "dev ens2" in found["GID"]["mend"][0]
    machine.rdma_device("mlx5_1", interface="ens2")
    assert states(machine, "rdma", **both)["GID"] == "ok"


def test_Rdma_OnlyIpv6_IsWarnedOf(tmp_path):
    machine = complete(tmp_path)
    machine.rdma_device("mlx5_0", gids=(LINK_LOCAL_GID, IPV6_GID))
    found = findings(machine, "rdma", GLOO_BYPASS_RDMA_DEVICES="mlx5_0")["GID"]
    assert found["state"] == "warning" and "mlx5_0 index 1" in found["found"] and "dev ens1" in found["mend"][0]


def test_Rdma_GidIndex_AnyAddressThereIsUsed(tmp_path):
    machine = complete(tmp_path)
    machine.rdma_device("mlx5_0", gids=(LINK_LOCAL_GID, IPV4_GID), kind="IB/RoCE v1")
    for index, state in (("-1", "missing"), ("0", "missing"), ("1", "ok"), ("2", "missing")):
        named = {"GLOO_BYPASS_RDMA_DEVICES": "mlx5_0", "GLOO_BYPASS_RDMA_GID_INDEX": index}
        found = findings(machine, "rdma", **named)["GID"]
        assert found["state"] == state, index
    assert found["mend"] == ["unset GLOO_BYPASS_RDMA_GID_INDEX"]


def test_Rdma_DeviceFileClosed_IsMissing(tmp_path):
    machine = complete(tmp_path)
    machine.process(uid=os.getuid() + 1, locked=1 << 40)
    (machine.root / "dev/infiniband/uverbs0").chmod(0o600)
    assert states(machine, "rdma")["/dev/infiniband"] == "missing"


def test_Netdev_InterfaceNamedWrongly_NamesThoseThere(tmp_path):
    found = findings(complete(tmp_path), "netdev", GLOO_SOCKET_IFNAME="eth7")["network interface"]
    assert found["state"] == "missing" and "'eth7'" in found["found"] and "ens1" in found["found"]


def test_Netdev_InterfaceIsDown_SaysSo(tmp_path):
    machine = complete(tmp_path)
    machine.interface("ens1", mtu=1400)
    found = findings(machine, "netdev")["network interface"]
    assert found["state"] == "ok" and "MTU 1400" in found["found"]
    machine.interface("ens1", state="down")
    assert states(machine, "netdev")["network interface"] == "missing"


def test_Netdev_ContainerWithoutRights_AdvisesTheEnginesOptions(tmp_path):
    machine = complete(tmp_path)
    machine.process(capabilities=0)
    machine.write("run/.containerenv")
    found = findings(machine, "netdev")
    assert "--cap-add NET_RAW" in found["capabilities"]["mend"][0]
    assert "--ulimit memlock=-1:-1" in found["locked memory"]["mend"][0]


def test_Pci_CardStillTheKernels_WarnsBeforeTheCommand(tmp_path):
    machine = complete(tmp_path)
    machine.nic("0000:00:04.0", "ixgbe", interface="ens1")
    found = findings(machine, "pci", **COMPLETE_ENVIRONMENT)["NIC"]
    assert found["state"] == "missing" and "0000:00:04.0 on ixgbe (ens1)" in found["found"]
    assert found["mend"][0].startswith("#") and found["mend"][-1] == "sudo dpdk-devbind.py --bind=vfio-pci 0000:00:04.0"


def test_Pci_NvidiaCard_NeedsNoBinding(tmp_path):
    machine = complete(tmp_path)
    machine.nic("0000:00:04.0", "mlx5_core", vendor="0x15b3", interface="ens1")
    assert states(machine, "pci", **COMPLETE_ENVIRONMENT)["NIC"] == "ok"


def test_Pci_NothingIsBound_NeedsNeitherIommuNorVfio(tmp_path):
    machine = bare(tmp_path)
    assert states(machine, "pci")["vfio"] == "missing"
    machine.nic("0000:00:04.0", "mlx5_core", vendor="0x15b3", interface="ens1")
    found = states(machine, "pci")
    assert (found["NIC"], found["IOMMU"], found["vfio"]) == ("ok", "ok", "ok")
    found = states(machine, "pci", GLOO_BYPASS_PCI_ADDRESS="net_virtio_user0,path=/x", GLOO_BYPASS_IPV4="10.0.0.2/24")
    assert (found["NIC"], found["IOMMU"], found["vfio"]) == ("ok", "ok", "ok")


def test_Memif_DirectoryOpenToOthersOrStale_IsTold(tmp_path):
    machine = complete(tmp_path)
    machine.process(uid=os.getuid(), capabilities=0)
    machine.write(f"tmp/gloo-bypass-{os.getuid()}/00aa.sock")
    folder = machine.root / f"tmp/gloo-bypass-{os.getuid()}"
    folder.chmod(0o700)
    found = findings(machine, "memif")["socket directory"]
    assert found["state"] == "ok" and "0 ranks run, 1 left by ended processes" in found["found"]
    folder.chmod(0o755)
    found = findings(machine, "memif")["socket directory"]
    assert found["state"] == "missing" and found["mend"] == [f"chmod 700 /tmp/gloo-bypass-{os.getuid()}"]


@pytest.mark.parametrize(
    "directory, said",
    [
        ("/none/mine", "/none is no directory"),
        ("/closed/mine", "/closed is not writable"),
        ("/tmp/file/mine", "/tmp/file is no directory"),
        ("mine", "is not an absolute path"),
        ("/tmp/" + "d" * 58, "is longer than 62 bytes"),
        ("/tmp/file", "is not a directory"),
        ("/tmp/link", "is not a directory"),
        ("/tmp/mine/", None),
        ("/tmp/" + "d" * 57, None),
    ],
)
def test_Memif_NamedDirectoryThatRanksCannotUse_IsMissing(tmp_path, directory, said):
    machine = complete(tmp_path)
    machine.process(uid=os.getuid() + 1)
    machine.write("tmp/file")
    machine.link("tmp/link", ".")
    (machine.root / "closed").mkdir(mode=0o755)
    found = findings(machine, "memif", GLOO_BYPASS_MEMIF_DIRECTORY=directory)["socket directory"]
    assert found["state"] == ("missing" if said else "ok") and (said or "will be made") in found["found"]
    assert not said or "GLOO_BYPASS_MEMIF_DIRECTORY" in found["mend"][0]


def test_Plugin_LibraryOfAnotherVersion_IsNamed(tmp_path):
    machine = complete(tmp_path)
    machine.remove(f"{LIBRARIES}/librte_eal.so.23")
    machine.write(f"{LIBRARIES}/librte_eal.so.25")
    found = findings(machine, "training")["plug-in"]
    assert found["state"] == "missing" and found["found"].endswith("needs librte_eal.so.23")


def test_Plugin_Damaged_IsTold(tmp_path):
    machine = complete(tmp_path)
    whole = (machine.root / PLUGIN_ITSELF).read_bytes()
    for size in (0, 7, 70, 0x1008):
        (machine.root / PLUGIN_ITSELF).write_bytes(whole[:size])
        assert states(machine, "training")["plug-in"] == "missing", size
    machine.remove(PLUGIN_ITSELF)
    assert states(machine, "training")["plug-in"] == "missing"


def test_SharedObject_ThisPython_NeedsTheCLibrary():
    assert "libc.so.6" in needed_libraries(Path("/usr/bin/python3").resolve())


@pytest.mark.parametrize("path", ["memif", "training"])
def test_Wheel_NoPackagesOfDpdkAndPyTorch_NothingIsMissing(tmp_path, path):
    machine = bare(tmp_path)
    without = run(machine, "--path", path)
    assert without.returncode == 1 and "--wheel" in without.stdout
    result = run(machine, "--path", path, "--wheel")
    assert result.returncode == 0 and "apt-get install lib" not in result.stdout, result.stdout


def test_Wheel_WhatIsLeftOut_IsFoundWithoutIt(tmp_path):
    machine = Machine(complete(tmp_path).root, {})
    names = {wheel: {one.name for path in TITLES for one in examine(machine, path, wheel=wheel)} for wheel in (0, 1)}
    assert names[0] - names[1] == set(IN_WHEEL)


def test_Wheel_NicWithoutDriverInIt_IsMissing(tmp_path):
    machine = complete(tmp_path)
    machine.nic("0000:00:05.0", "mlx5_core", vendor="0x15b3")
    for address, state in (("0000:00:04.0", "ok"), ("0000:00:05.0", "missing"), ("net_vhost0", "ok")):
        found = examine(Machine(machine.root, {"GLOO_BYPASS_PCI_ADDRESS": address}), "pci", wheel=True)
        assert {one.name: one.state for one in found}["DPDK's NIC drivers"] == state, address


def test_Udp_InterfaceIsNamed_SaysByWhichVariable(tmp_path):
    machine = complete(tmp_path)
    for variable in "GLOO_BYPASS_INTERFACE", "GLOO_SOCKET_IFNAME":
        found = findings(machine, "udp", **{variable: "ens1"})["address"]
        assert found["state"] == "ok" and found["found"] == f"that of ens1, which {variable} names"


def test_Udp_InterfaceNamedThatIsNotUp_IsMissing(tmp_path):
    machine, variable = complete(tmp_path), "GLOO_SOCKET_IFNAME"
    machine.interface("ens2", state="down")
    for names, said in (("eth7", "'eth7' is not there"), ("ens1,eth7", "'eth7'"), ("ens1,", "''"), ("ens2", "down")):
        found = findings(machine, "udp", **{variable: names})["address"]
        assert found["state"] == "missing" and said in found["found"] and found["mend"], names
    assert findings(machine, "udp", GLOO_BYPASS_INTERFACE="eth7")["address"]["mend"] == [
        "export GLOO_BYPASS_INTERFACE=ens1"
    ]
    for names in ("lo", "10.0.0.1", "fd00::1"):
        assert states(machine, "udp", GLOO_BYPASS_INTERFACE=names)["address"] == "ok"


def test_Udp_InterfaceNamedWithoutAddress_IsMissing(tmp_path, monkeypatch):
    machine = complete(tmp_path)
    machine.interface("gbnone0")
    monkeypatch.setattr(udp_checks, "is_this", lambda _: True)
    found = udp_checks.address(Machine(machine.root, {"GLOO_SOCKET_IFNAME": "gbnone0"}))
    assert found.state == "missing" and found.mend == ("sudo ip address add 10.77.0.1/24 dev gbnone0",)
    machine.write("proc/net/if_inet6", "fd000000000000000000000000000002 04 40 00 80 gbnone0\n")
    assert udp_checks.address(Machine(machine.root, {"GLOO_SOCKET_IFNAME": "gbnone0"})).state == "ok"


def test_Training_HostNameIsLoopback_WarnsWithTheInterface(tmp_path):
    machine = complete(tmp_path)
    machine.write("etc/hosts", "127.0.1.1 node1\n")
    found = findings(machine, "training", **COMPLETE_ENVIRONMENT)["address"]
    assert found["state"] == "warning" and found["mend"] == ["export GLOO_SOCKET_IFNAME=ens1"]


def test_Training_WrongCapitals_AreTold(tmp_path):
    found = findings(complete(tmp_path), "training", GLOO_DEVICE_TRANSPORT="rdma")["GLOO_DEVICE_TRANSPORT"]
    assert found["state"] == "missing" and found["mend"] == ["export GLOO_DEVICE_TRANSPORT=RDMA"]


def test_Training_TransportNotSet_SaysWhatEachBackendUses(tmp_path):
    machine, name = complete(tmp_path), "GLOO_DEVICE_TRANSPORT"
    found = findings(machine, "training")[name]
    assert found["state"] == "warning" and "backend gloo then uses Gloo's TCP" in found["why"]
    assert "bypass DPDK" in found["why"]
    assert states(machine, "training", GLOO_BYPASS_COLLECTIVES="own")[name] == "ok"


def test_Training_TorchcommsWouldTakeTheGroups_IsTold(tmp_path):
    machine, name = complete(tmp_path), "TORCH_DISTRIBUTED_USE_TORCHCOMMS"
    for transport, value, state in (("DPDK", "1", "missing"), ("DPDK", "0", "ok"), ("TCP", "1", "ok")):
        found = findings(machine, "training", **{"GLOO_DEVICE_TRANSPORT": transport, name: value})
        assert found["GLOO_DEVICE_TRANSPORT"]["state"] == state
        assert state == "ok" or found["GLOO_DEVICE_TRANSPORT"]["mend"] == [f"unset {name}"]


def test_Training_SlowMachine_IsWarnedOf(tmp_path):
    machine = complete(tmp_path)
    machine.link("etc/alternatives/libblas.so.3-x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3")
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    machine.write("sys/fs/cgroup/cpu.max", "200000 100000\n")
    machine.write("proc/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n")
    found = findings(machine, "training", **COMPLETE_ENVIRONMENT)
    assert {name for name, f in found.items() if f["state"] == "warning"} == {
        "BLAS",
        "CPU governor",
        "cores",
        "/dev/shm",
    }
    assert found["cores"]["mend"][0].startswith("export OMP_NUM_THREADS=2")


@pytest.mark.parametrize(
    "groups, folder",
    [
        ("0::/system.slice/job/step", "system.slice/job"),
        ("4:cpu,cpuacct:/batch/job\n0::/", "cpu/batch"),
        ("4:cpu,cpuacct:/docker/0123", "cpu"),
    ],
)
def test_Training_QuotaOfAGroupAbove_IsFound(tmp_path, groups, folder):
    machine = complete(tmp_path)
    machine.write("proc/self/cgroup", f"{groups}\n")
    if folder.startswith("cpu"):
        machine.write(f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us", "200000\n")
        machine.write(f"sys/fs/cgroup/{folder}/cpu.cfs_period_us", "100000\n")
    else:
        machine.write("sys/fs/cgroup/cpu.max", "max 100000\n")
        machine.write(f"sys/fs/cgroup/{folder}/cpu.max", "200000 100000\n")
        machine.write(f"sys/fs/cgroup/{folder}/step/cpu.max", "900000 100000\n")
    found = findings(machine, "training", **COMPLETE_ENVIRONMENT)
    assert found["cores"]["mend"][0].startswith("export OMP_NUM_THREADS=2")


def test_Training_UnknownProcessorModel_AdvisesTheCoreType(tmp_path):
    machine = complete(tmp_path)
    machine.write("proc/cpuinfo", "model name\t: Intel(R) Xeon(R) Processor\nflags\t\t: sse4_2 avx2 fma\n")
    assert findings(machine, "training", **COMPLETE_ENVIRONMENT)["BLAS"]["mend"] == ["export OPENBLAS_CORETYPE=Haswell"]
    assert states(machine, "training", OPENBLAS_CORETYPE="Haswell", **COMPLETE_ENVIRONMENT)["BLAS"] == "ok"


def test_Command_SeveralPaths_ExitStatusIsOfAll(tmp_path):
    machine = complete(tmp_path)
    machine.remove("sys/module/rdma_rxe/initstate")
    (machine.root / "sys/module/rdma_rxe").rmdir()
    assert run(machine, "--path", "memif").returncode == 0
    assert run(machine, "--path", "memif", "--path", "softroce").returncode == 1


def test_Command_AllPaths_SaysWhatTheDefaultLinkNeeds(tmp_path):
    machine = complete(tmp_path)
    assert run(machine).stdout.splitlines()[-1] == AUTO
    assert AUTO not in run(machine, "--path", "udp").stdout


def test_Command_Brief_LeavesOkOut(tmp_path):
    assert "release" not in run(complete(tmp_path), "--path", "memif", "--brief").stdout


@pytest.mark.parametrize(
    "arguments",
    [("--path", "tcp"), ("--sysroot", "/nowhere"), ("--color", "blue"), ("--wheel", "--plugin", "libgloo_bypass.so")],
)
def test_Command_BadInput_OneLineAndStatus2(tmp_path, arguments):
    result = run(bare(tmp_path), *arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert "gloo-bypass-doctor: error:" in result.stderr.splitlines()[-1]


def test_Command_Installed_NamesTheInstalledPrograms(tmp_path):
    """Outside the source tree, scripts/softroce is gloo-bypass-softroce."""
    place = tmp_path / "libexec" / "gloo-bypass"
    shutil.copytree(ROOT / "scripts" / "gloo_bypass_tools", place / "gloo_bypass_tools")
    for package in ("common", "doctor"):
        shutil.copytree(ROOT / "tools" / package, place / "gloo_bypass_tools" / package)
    shutil.copy(DOCTOR, place)
    (tmp_path / "gloo-bypass-doctor").symlink_to(place / "gloo-bypass-doctor")
    (tmp_path / "machine").mkdir()
    machine = bare(tmp_path / "machine")
    result = subprocess.run(
        [str(tmp_path / "gloo-bypass-doctor"), "--sysroot", str(machine.root)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    assert "sudo gloo-bypass-softroce up" in result.stdout and "scripts/" not in result.stdout


def test_Command_ThisMachine_Answers():
    result = subprocess.run([str(DOCTOR), "--json"], capture_output=True, text=True, timeout=60)
    assert result.returncode in (0, 1) and result.stderr == ""
    assert set(json.loads(result.stdout)) == set(TITLES)
