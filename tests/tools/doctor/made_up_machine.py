"""Trees of files that look like machines, for gloo-bypass-doctor --sysroot."""

import struct

STATUS = """\
Name:\tpython3
Uid:\t{uid}\t{uid}\t{uid}\t{uid}
Gid:\t{uid}\t{uid}\t{uid}\t{uid}
Groups:\t{uid}
CapEff:\t{capabilities:016x}
Seccomp:\t{seccomp}
Cpus_allowed_list:\t{cpus}
"""
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         {locked:<20} {locked:<20} bytes
"""
ALL_CAPABILITIES = (1 << 41) - 1
LIBRARIES = "usr/lib/x86_64-linux-gnu"
IPV4_GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"
PLUGIN = "usr/lib/python3/dist-packages/gloo_bypass/libgloo_bypass.so"
PLUGIN_ITSELF = "usr/lib/python3/dist-packages/gloo_bypass/libgloo_bypass_plugin.so"


class MadeUpMachine:
    def __init__(self, root):
        self.root = root
        self.packages = {}

    def write(self, name, text=""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def link(self, name, target):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def remove(self, name):
        (self.root / name).unlink()

    def process(self, uid=1000, capabilities=0, locked=8 << 20, cpus="0-7", seccomp=0):
        self.write("proc/self/status", STATUS.format(uid=uid, capabilities=capabilities, cpus=cpus, seccomp=seccomp))
        self.write("proc/self/limits", LIMITS.format(locked=locked))

    def install(self, **versions):
        self.packages.update({name.replace("_", "-"): version for name, version in versions.items()})
        self.write(
            "var/lib/dpkg/status",
            "\n\n".join(
                f"Package: {name}\nStatus: install ok installed\nVersion: {version}"
                for name, version in self.packages.items()
            ),
        )

    def huge_pages(self, reserved, free, size="2048kB"):
        self.write(f"sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages", f"{reserved}\n")
        self.write(f"sys/kernel/mm/hugepages/hugepages-{size}/free_hugepages", f"{free}\n")

    def interface(self, name, mtu=1500, state="up"):
        self.write(f"sys/class/net/{name}/operstate", state)
        self.write(f"sys/class/net/{name}/mtu", str(mtu))

    def nic(self, address, driver=None, vendor="0x8086", interface=None):
        base = f"sys/bus/pci/devices/{address}"
        self.write(f"{base}/class", "0x020000")
        self.write(f"{base}/vendor", vendor)
        if driver:
            self.link(f"{base}/driver", f"../../../bus/pci/drivers/{driver}")
        if interface:
            self.write(f"{base}/net/{interface}/mtu", "1500")

    def rdma_device(self, name="mlx5_0", state="4: ACTIVE", gids=(IPV4_GID,), kind="RoCE v2", interface="ens1"):
        base = f"sys/class/infiniband/{name}/ports/1"
        self.write(f"{base}/state", state)
        self.write(f"{base}/link_layer", "Ethernet")
        for index, value in enumerate(gids):
            self.write(f"{base}/gids/{index}", value)
            self.write(f"{base}/gid_attrs/types/{index}", kind)
            self.write(f"{base}/gid_attrs/ndevs/{index}", interface)
        self.write(f"sys/class/infiniband/{name}/device/net/{interface}/mtu", "1500")
        self.write("dev/infiniband/uverbs0").chmod(0o666)

    def shared_object(self, name, needed):
        """An ELF file with nothing but a dynamic section."""
        strings = b"\0" + b"".join(n.encode() + b"\0" for n in needed)
        table, dynamic = 0x200, 0x1000
        entries, at = [], 1
        for n in needed:
            entries.append((1, at))
            at += len(n) + 1
        entries += [(5, table), (0, 0)]
        header = (
            b"\x7fELF\x02\x01\x01"
            + bytes(9)
            + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0x40, 0, 0, 64, 56, 2, 0, 0, 0)
        )
        size = dynamic + 16 * len(entries)
        header += struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
        header += struct.pack("<IIQQQQQQ", 2, 4, dynamic, dynamic, dynamic, 16 * len(entries), 16 * len(entries), 8)
        data = bytearray(size)
        data[: len(header)] = header
        data[table : table + len(strings)] = strings
        data[dynamic:] = b"".join(struct.pack("<qQ", *entry) for entry in entries)
        self.write(name).write_bytes(bytes(data))


def bare(root):
    """Debian 12 without any package that the paths need; an ordinary user."""
    machine = MadeUpMachine(root)
    machine.write("etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
    machine.write("etc/hostname", "node1\n")
    machine.write("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 node1\n")
    machine.write(
        "proc/cpuinfo", "model name\t: Intel(R) Xeon(R) Gold 6338\nflags\t\t: fpu sse4_2 avx2 fma avx512f avx512vl\n"
    )
    machine.write("proc/meminfo", "MemTotal: 64000000 kB\nMemAvailable: 32000000 kB\n")
    machine.write("proc/sys/kernel/osrelease", "6.1.0-30-amd64\n")
    machine.write("proc/mounts", "shm /dev/shm tmpfs rw,size=8g 0 0\n")
    machine.write("proc/net/unix", "Num RefCount Protocol Flags Type St Inode Path\n")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    machine.process()
    machine.huge_pages(0, 0)
    return machine


def complete(root):
    """A machine on which everything works."""
    machine = bare(root)
    machine.install(
        librte_eal23="22.11.6-1", python3_torch="1.13.1+dfsg-4", libgloo0="0.0~git20220518", libibverbs1="44.0-2"
    )
    for name in (
        "librte_eal.so.23",
        "libibverbs.so.1",
        "libibverbs/libmlx5-rdmav34.so",
        "libtorch_cpu.so.1.13",
        "libgloo.so.0",
        "dpdk/pmds-23.0/librte_net_af_packet.so.23",
        "dpdk/pmds-23.0/librte_bus_pci.so.23",
        "dpdk/pmds-23.0/librte_net_ixgbe.so.23",
    ):
        machine.write(f"{LIBRARIES}/{name}")
    machine.shared_object(PLUGIN, [])
    machine.shared_object(PLUGIN_ITSELF, ["libtorch_cpu.so.1.13", "libgloo.so.0", "librte_eal.so.23"])
    machine.process(capabilities=ALL_CAPABILITIES, locked=1 << 40)
    machine.huge_pages(512, 512)
    machine.write("proc/mounts", "shm /dev/shm tmpfs rw,size=8g 0 0\nnone /dev/hugepages hugetlbfs rw 0 0\n")
    machine.interface("ens1")
    machine.write("proc/net/udp")
    machine.write("proc/sys/kernel/osrelease", "6.1.0-40-amd64\n")
    machine.nic("0000:00:04.0", "vfio-pci")
    machine.write("sys/module/vfio_pci/initstate", "live")
    machine.write("sys/kernel/iommu_groups/0/type", "DMA")
    machine.write("dev/vfio/0").chmod(0o666)
    machine.rdma_device()
    machine.rdma_device("rxe0")
    machine.write("sys/module/rdma_rxe/initstate", "live")
    for tool in ("ip", "rdma", "modprobe"):
        machine.write(f"usr/sbin/{tool}")
    machine.link(
        "etc/alternatives/libblas.so.3-x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"
    )
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    machine.write("sys/devices/system/node/node0/cpulist", "0-7")
    machine.write("etc/hosts", "127.0.0.1 localhost\n10.0.0.1 node1\n")
    return machine


COMPLETE_ENVIRONMENT = {
    "GLOO_DEVICE_TRANSPORT": "DPDK",
    "GLOO_BYPASS_PCI_ADDRESS": "0000:00:04.0",
    "GLOO_BYPASS_IPV4": "10.0.0.2/24",
    "GLOO_BYPASS_RDMA_DEVICES": "mlx5_0",
}
