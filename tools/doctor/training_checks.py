"""Checks of what training needs besides a transport: PyTorch and Gloo, names and addresses, BLAS, cores."""

import re
import socket

from gloo_bypass_tools.common.transports import DEVICES
from gloo_bypass_tools.doctor.finding import Subject, install

KNOWN_TORCH = {"1.13": "Debian 12", "2.6": "Debian 13", "2.14": "Debian testing"}
LEAST_SHM_MIB = 1024
FAST_BLAS = ("openblas", "mkl", "blis")
BLAS_LINK = "/etc/alternatives/libblas.so.3-x86_64-linux-gnu"


def torch(machine):
    subject = Subject("PyTorch")
    version = machine.version_of(r"python3-torch|libtorch\d.*")
    if version is None:
        return subject.missing(
            "no Debian package of it",
            "the plug-in joins Debian's PyTorch; for PyTorch from pip and the wheel: --wheel",
            install("python3-torch"),
        )
    short = ".".join(version.split(":")[-1].split("+")[0].split(".")[:2])
    if short not in KNOWN_TORCH:
        return subject.warning(
            version,
            f"tried with {', '.join(KNOWN_TORCH)}",
            "# the source tree's scripts/test says whether it works with yours",
        )
    return subject.ok(version)


def gloo(machine):
    subject = Subject("Gloo")
    versions = {p: v for p, v in machine.packages().items() if re.fullmatch(r"libgloo(\d.*)?", p)}
    if not versions:
        return subject.missing("no package libgloo", "it has the collectives", install("libgloo-dev python3-torch"))
    return subject.ok(", ".join(f"{p} {v}" for p, v in sorted(versions.items())))


def transport_choice(machine):
    subject = Subject("GLOO_DEVICE_TRANSPORT")
    value = machine.environment.get("GLOO_DEVICE_TRANSPORT")
    if value is None and machine.environment.get("GLOO_BYPASS_COLLECTIVES") == "own":
        return subject.ok("not set: our own collectives use DPDK")
    if value is None:
        return subject.warning(
            "not set",
            "the backend gloo then uses Gloo's TCP transport, the backend bypass DPDK",
            "export GLOO_DEVICE_TRANSPORT=DPDK   # or UDP, or RDMA",
        )
    if value not in DEVICES:
        meant = value.upper() if value.upper() in DEVICES else "DPDK"
        return subject.missing(
            f"'{value}'", "no such transport: capitals matter", f"export GLOO_DEVICE_TRANSPORT={meant}"
        )
    if value != "TCP" and machine.environment.get("TORCH_DISTRIBUTED_USE_TORCHCOMMS", "0") not in ("", "0"):
        return subject.missing(
            f"{value}, and TORCH_DISTRIBUTED_USE_TORCHCOMMS",
            "PyTorch 2.11 and later would use torchcomms' own TCP",
            "unset TORCH_DISTRIBUTED_USE_TORCHCOMMS",
        )
    return subject.ok(value)


def host_address(machine):
    """Debian gives the host name the address 127.0.1.1, where no other machine can connect."""
    subject = Subject("address")
    wanted = machine.environment.get("GLOO_SOCKET_IFNAME", "")
    there = machine.interfaces() + ["lo"]
    absent = [i for i in wanted.split(",") if i and i not in there]
    if absent:
        return subject.missing(
            f"GLOO_SOCKET_IFNAME names {', '.join(absent)}; there are: {', '.join(there)}",
            "Gloo connects over this interface",
            f"export GLOO_SOCKET_IFNAME={there[0]}",
        )
    if wanted:
        return subject.ok(f"GLOO_SOCKET_IFNAME={wanted}")
    host = machine.text("/etc/hostname") or machine.text("/proc/sys/kernel/hostname") or ""
    rows = [line.split("#")[0].split() for line in (machine.text("/etc/hosts") or "").splitlines()]
    address = next((row[0] for row in rows if host and host in row[1:]), None)
    if address is None and machine.root.samefile("/"):
        try:
            address = socket.gethostbyname(host)
        except OSError:
            return subject.missing(
                f"the host name '{host}' has no address",
                "without GLOO_SOCKET_IFNAME, Gloo uses the host name's",
                f'echo "127.0.1.1 {host}" | sudo tee -a /etc/hosts   # ranks of one machine',
                "export GLOO_SOCKET_IFNAME=lo",
            )
    if address is not None and address.startswith("127."):
        name = there[0] if there[0] != "lo" else "INTERFACE"
        return subject.warning(
            f"the host name '{host}' is {address}",
            "over TCP other machines cannot connect there; DPDK and UDP go by the kernel's routes",
            f"export GLOO_SOCKET_IFNAME={name}",
        )
    return subject.ok(f"host name '{host}'" + (f" is {address}" if address else ""))


# What the processors call themselves that OpenBLAS knows by their numbers; hypervisors often say less.
NAMED_PROCESSORS = re.compile(r"i[3579]-|EPYC|Ryzen|Xeon\(R\) (Gold|Silver|Platinum|E\d|D-)")


def blas(machine):
    subject = Subject("BLAS")
    link = machine.link(BLAS_LINK)
    if link is None:
        folder = machine.library("libblas.so.3")
        link = f"{folder}/libblas.so.3" if folder else None
    if link is None:
        return subject.missing(
            "no libblas.so.3", "PyTorch multiplies matrices with it", install("libopenblas0-pthread")
        )
    if not any(name in link for name in FAST_BLAS):
        return subject.warning(
            link,
            "the reference BLAS makes training many times slower",
            install("libopenblas0-pthread"),
            "sudo update-alternatives --config libblas.so.3-x86_64-linux-gnu",
        )
    flags, chosen = machine.cpu_flags(), machine.environment.get("OPENBLAS_CORETYPE")
    model = re.search(r"^model name\s*:\s*(.*)$", machine.text("/proc/cpuinfo") or "", re.MULTILINE)
    generic = model is not None and not NAMED_PROCESSORS.search(model.group(1))
    if "openblas" in link and not chosen and generic and "avx2" in flags:
        core = "SkylakeX" if "avx512f" in flags and "avx512vl" in flags else "Haswell"
        return subject.warning(
            f"{link}, on '{model.group(1)}'",
            "OpenBLAS may not know this model, as in many virtual machines, and then "
            "uses its slowest code (ddp_train chooses by itself)",
            f"export OPENBLAS_CORETYPE={core}",
        )
    return subject.ok(link + (f", OPENBLAS_CORETYPE={chosen}" if chosen else ""))


def cores(machine):
    subject = Subject("cores")
    cpus, quota = machine.cpus(), machine.cpu_quota()
    nodes = len([n for n in machine.names("/sys/devices/system/node") if re.fullmatch(r"node\d+", n)])
    found = f"{len(cpus)} CPUs" + (f" on {nodes} NUMA nodes" if nodes > 1 else "")
    if quota is not None and quota < len(cpus):
        return subject.warning(
            f"{found}, but time for {quota:g} (control group)",
            "threads beyond that are stopped in the middle of a step",
            f"export OMP_NUM_THREADS={max(1, int(quota))}   # divided by the ranks on this machine",
        )
    if nodes > 1:
        return subject.warning(
            found,
            "memory of another node is slower",
            "numactl --cpunodebind=N --membind=N COMMAND   # N: one for each rank",
        )
    if len(cpus) == 1:
        return subject.warning(
            found, "two ranks on one core wait for each other", "# give the machine or container a second core"
        )
    return subject.ok(found)


def governor(machine):
    subject = Subject("CPU governor")
    base = "/sys/devices/system/cpu"
    cpus = (name for name in machine.names(base) if re.fullmatch(r"cpu\d+", name))
    found = {machine.text(f"{base}/{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {None}
    if found - {"performance"}:
        return subject.warning(
            ", ".join(sorted(found)),
            "a core that slows down between steps answers late",
            "sudo apt-get install linux-cpupower && sudo cpupower frequency-set -g performance",
        )
    return subject.ok("performance" if found else "none: the frequency is not this system's to set")


def shared_memory(machine):
    subject = Subject("/dev/shm")
    mount = next((m for m in machine.mounts() if m[1] == "/dev/shm"), None)
    if mount is None:
        return subject.warning(
            "not mounted", "data loaders with workers pass batches through it", "sudo mount -t tmpfs shm /dev/shm"
        )
    size = re.search(r"\bsize=(\d+)([kmg]?)", mount[3])
    if size is None:
        return subject.ok("no limit but half of the memory")
    mib = int(size.group(1)) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[size.group(2)] >> 20
    if mib < LEAST_SHM_MIB:
        advice = "sudo mount -o remount,size=2G /dev/shm"
        if machine.container():
            advice = "# start the container with: --shm-size 2g"
        return subject.warning(
            f"{mib} MiB", "data loaders with workers pass batches through it, and fail when it is full", advice
        )
    return subject.ok(f"{mib} MiB")


def container(machine):
    kind = machine.container()
    return Subject("container").ok(f"yes, {kind}" if kind else "no")
