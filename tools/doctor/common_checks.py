"""Checks that several paths share: release, processor, memory, the plug-in and what it was built for."""

import re
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.doctor.finding import Subject, install
from gloo_bypass_tools.doctor.machine import LIBRARY_FOLDERS
from gloo_bypass_tools.doctor.shared_object import needed_libraries

SUPPORTED_RELEASES = (12, 13)
LEAST_FREE_MIB = 256
NETDEV_LOCKED_BYTES = 16 << 20
# Where a build and an installation put the plug-in.
PLUGIN = "libgloo_bypass.so"
PLUGIN_ITSELF = "libgloo_bypass_plugin.so"  # beside it, and loaded by it
PYTHONS = [f"{prefix}/lib/python3.{minor}" for prefix in ("usr/local", "usr") for minor in (11, 13, 14)]
PLUGIN_FOLDERS = [
    f"{parent}/{kind}-packages/gloo_bypass" for parent in ("usr/lib/python3", *PYTHONS) for kind in ("dist", "site")
]
# Installed, programs have names of their own on PATH.
IN_SOURCE_TREE = not program_places.INSTALLED


def tool(name):
    """How a script of this project is called here."""
    return f"scripts/{name}" if IN_SOURCE_TREE else f"gloo-bypass-{name}"


BUILD = "scripts/build" if IN_SOURCE_TREE else "# build and install it again, as you did: docs/packaging.md"


def release(machine):
    subject = Subject("release")
    found = machine.release()
    if found in SUPPORTED_RELEASES or found == "testing":
        return subject.ok(f"Debian {found}")
    what = f"Debian {found}" if found else "not Debian"
    return subject.warning(
        what,
        "tried on Debian 12, 13 and testing only; package names here are Debian's",
        "# build from source with the versions that docs/packaging.md names, and run scripts/test",
    )


def processor(machine):
    subject = Subject("processor")
    flags = machine.cpu_flags()
    if not flags:
        return subject.warning("unknown", "/proc/cpuinfo says nothing")
    if "sse4_2" not in flags:
        return subject.missing("no SSE4.2", "Debian's DPDK, and the CRC-32C here, need it", "# use another machine")
    return subject.ok("AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "SSE4.2")


def free_memory(machine):
    subject = Subject("memory")
    free = machine.memory_mib("MemAvailable")
    if free is None:
        return subject.warning("unknown", "/proc/meminfo says nothing")
    if free < LEAST_FREE_MIB:
        return subject.missing(
            f"{free} MiB available",
            f"a rank with one peer needs some {LEAST_FREE_MIB} MiB",
            "# end other programs, or add memory",
        )
    return subject.ok(f"{free} MiB available")


def dpdk_folder(machine):
    """Where DPDK's libraries are; None: nowhere."""
    return next((f for f in LIBRARY_FOLDERS if any(n.startswith("librte_eal.so") for n in machine.names(f))), None)


def dpdk_version(machine):
    return machine.version_of(r"librte-eal\d.*") or "not a package"


def no_dpdk(subject):
    why = "the DPDK transport is made with DPDK's libraries; the wheel brings them: --wheel"
    return subject.missing("no librte_eal.so", why, install("libdpdk-dev"))


def dpdk_libraries(machine):
    """That DPDK is installed. Memory links use none of its drivers."""
    subject = Subject("DPDK libraries")
    return no_dpdk(subject) if dpdk_folder(machine) is None else subject.ok(f"DPDK {dpdk_version(machine)}")


def dpdk_drivers(machine, folder):
    """Names of those installed in DPDK's library folder, as net_memif."""
    folders = [f"{folder}/dpdk/{pmds}" for pmds in machine.names(f"{folder}/dpdk") if pmds.startswith("pmds-")]
    names = (name for one in (*folders, folder) for name in machine.names(one))
    return {found[1] for name in names if (found := re.match(r"librte_(\w+)\.so", name))}


def dpdk_driver(driver):
    """A check that DPDK and one of its drivers are installed."""

    def check(machine):
        subject = Subject(f"DPDK driver {driver}")
        folder = dpdk_folder(machine)
        if folder is None:
            return no_dpdk(subject)
        if driver in dpdk_drivers(machine, folder):
            return subject.ok(f"DPDK {dpdk_version(machine)}")
        return subject.missing(
            f"librte_{driver}.so is not there", "DPDK loads its drivers when it starts", install("libdpdk-dev")
        )

    return check


def plugin_path(machine, given=None):
    """The plug-in that would be looked at: the one given, one of a build beside this script, or the installed one."""
    if given:
        return Path(given)
    build = program_places.program(f"plugin/{PLUGIN}")
    if machine.root == Path("/") and IN_SOURCE_TREE and build.exists():
        return build
    installed = (f"{folder}/{PLUGIN}" for folder in PLUGIN_FOLDERS)
    return next((machine.path(name) for name in installed if machine.exists(name)), None)


def plugin(given=None):
    """A check that the plug-in is there and that the libraries it was built for are installed."""

    def check(machine):
        subject, why = Subject("plug-in"), "PyTorch gets the transports from it"
        path = plugin_path(machine, given)
        if path is None:
            return subject.warning(f"{PLUGIN} was not found", why, f"{BUILD}   # or name it with --plugin")
        try:
            needed = [*needed_libraries(path), *needed_libraries(path.with_name(PLUGIN_ITSELF))]
        except (OSError, ValueError) as error:
            return subject.missing(str(error), why, BUILD)
        there = set(machine.names(path.parent)) if machine.root == Path("/") else set()
        drivers = (f"{folder}/dpdk/{pmds}" for folder in LIBRARY_FOLDERS for pmds in machine.names(f"{folder}/dpdk"))
        there.update(name for folder in drivers for name in machine.names(folder))
        others = (name for name in needed if name not in there and not name.startswith("ld-linux"))
        absent = [name for name in others if machine.library(name) is None]
        if absent:
            return subject.missing(
                f"{path} needs {', '.join(absent)}",
                "it was built for other versions of PyTorch, Gloo or DPDK than those installed",
                "scripts/install-packages && rm -rf build && scripts/build" if IN_SOURCE_TREE else BUILD,
            )
        return subject.ok(f"{path}: every library it needs is there")

    return check


def named_interfaces(machine):
    """(names with commas between, the variable that has them); no names where none is set."""
    variables = ("GLOO_BYPASS_INTERFACE", "GLOO_SOCKET_IFNAME")
    variable = next((name for name in variables if machine.environment.get(name)), variables[-1])
    return machine.environment.get(variable, ""), variable


def named_interface(machine):
    """(name, variable) for a transport that takes one interface: the first of GLOO_SOCKET_IFNAME."""
    names, variable = named_interfaces(machine)
    return (names.split(",")[0] if variable == "GLOO_SOCKET_IFNAME" else names), variable


def has_interface(machine, name):
    return name == "lo" or name in machine.interfaces()


def no_interface(machine, subject, name, variable, why):
    """The finding where has_interface() is false."""
    there = machine.interfaces()
    return subject.missing(
        f"'{name}' is not there; there are: {', '.join(there) or 'none'}",
        why,
        f"export {variable}={there[0] if there else 'NAME'}",
    )


def is_up(machine, interface):
    return interface == "lo" or machine.text(f"/sys/class/net/{interface}/operstate") in ("up", "unknown")


def locked_memory(least, what):
    """A check that a process may lock `least` bytes."""

    def check(machine):
        subject = Subject("locked memory")
        limit = machine.locked_memory()
        if limit is None:
            return subject.ok("unlimited")
        if limit >= least:
            return subject.ok(f"up to {limit >> 20} MiB")
        advice = [
            "ulimit -l unlimited   # if the hard limit allows",
            "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-gloo-bypass.conf   # then log in again",
        ]
        if machine.container():
            advice = ["# start the container with: --ulimit memlock=-1:-1"]
        return subject.missing(f"at most {limit >> 10} KiB", f"{what} locks memory (RLIMIT_MEMLOCK)", *advice)

    return check


def huge_pages(machine, why_missing=None):
    """Huge pages of all sizes, reserved and free. `why_missing`: why the path needs them; None: it does not."""
    subject, base, sizes = Subject("huge pages"), "/sys/kernel/mm/hugepages", {}
    for folder in machine.names(base):
        kind, _, size = folder.partition("hugepages-")
        if not kind and size:
            counts = (machine.number(f"{base}/{folder}/{name}_hugepages") or 0 for name in ("free", "nr"))
            sizes[size] = tuple(counts)
    found = ", ".join(f"{free} of {reserved} free of {size}" for size, (free, reserved) in sizes.items())
    reserve = (
        "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "echo 'vm.nr_hugepages = 512' | sudo tee /etc/sysctl.d/90-hugepages.conf   # from the next start on",
    )
    if not sizes:
        found, reserve = "this kernel has none", ("# use a kernel with CONFIG_HUGETLBFS",)
    elif any(free for free, _ in sizes.values()):
        return subject.ok(found)
    elif any(reserved for _, reserved in sizes.values()):
        reserve = ("grep -l hugepages /proc/[0-9]*/numa_maps   # who has them", *reserve)
    if why_missing:
        return subject.missing(found, why_missing, *reserve)
    return subject.warning(found, "packet buffers lie in ordinary pages: some more misses of the TLB", *reserve)


def huge_page_mount(machine):
    subject = Subject("hugetlbfs")
    mounts = machine.mounts("hugetlbfs")
    if not mounts:
        return subject.warning(
            "not mounted",
            "only needed with --huge-dir in GLOO_BYPASS_EAL_ARGUMENTS, or for testpmd",
            "sudo mkdir -p /dev/hugepages && sudo mount -t hugetlbfs none /dev/hugepages",
        )
    folder = mounts[0][1]
    rights = "" if machine.writable(folder) else ", not writable for this user (not needed)"
    return subject.ok(f"on {folder}{rights}")
