"""Checks of the DPDK paths: shared memory (memif), Linux interfaces (netdev) and NICs with a DPDK driver (pci)."""

import os
import stat

from gloo_bypass_tools.doctor import common_checks as common
from gloo_bypass_tools.doctor.finding import Subject, install

ETHERNET_CLASS = "0x0200"
USER_SPACE_DRIVERS = ("vfio-pci", "uio_pci_generic", "igb_uio")
# Drivers of DPDK that work beside the kernel's: nothing is bound.
BESIDE_KERNEL = {"0x15b3": "mlx5_core (NVIDIA): works beside the kernel's driver", "0x1414": "mana (Microsoft)"}

# Of interfaces, memory, files: none of a card.
VIRTUAL = "af_packet af_xdp bond failsafe memif null pcap ring softnic tap vdev_netvsc vhost"
NO_NIC = {f"net_{name}" for name in VIRTUAL.split()}


ANOTHER_DIRECTORY = "export GLOO_BYPASS_MEMIF_DIRECTORY=/a/directory/of/yours"
MAX_DIRECTORY_BYTES = 62  # kMaxMemifDirectoryBytes: a socket's whole path has at most 107


def memif_directory(machine):
    """As prepareMemifDirectory() of transport/dpdk/memif_directory.cc."""
    subject, user = Subject("socket directory"), machine.user()
    why = "ranks meet there; it must belong to this user alone, since ranks share memory"
    folder = machine.environment.get("GLOO_BYPASS_MEMIF_DIRECTORY")
    if not folder:
        runtime = machine.environment.get("XDG_RUNTIME_DIR", "")
        parent = runtime if runtime.startswith("/") and machine.writable(runtime) else "/tmp"
        folder = f"{parent}/gloo-bypass-{user}"
    if not folder.startswith("/"):
        return subject.missing(f"{folder} is not an absolute path", why, ANOTHER_DIRECTORY)
    if len(os.fsencode(folder)) > MAX_DIRECTORY_BYTES:
        return subject.missing(f"{folder} is longer than {MAX_DIRECTORY_BYTES} bytes", why, ANOTHER_DIRECTORY)
    folder = folder.rstrip("/") or "/"
    found, parent = machine.status(folder, follow=False), os.path.dirname(folder)
    if found is None:
        if not machine.is_folder(parent):
            return subject.missing(
                f"{parent} is no directory: only {folder} itself would be made", why, ANOTHER_DIRECTORY
            )
        if not machine.writable(parent):
            return subject.missing(f"{parent} is not writable", why, ANOTHER_DIRECTORY)
        return subject.ok(f"{folder}: will be made")
    if not stat.S_ISDIR(found.st_mode):
        return subject.missing(f"{folder} is not a directory", why, ANOTHER_DIRECTORY)
    if found.st_uid != user:
        return subject.missing(f"{folder} belongs to user {found.st_uid}", why, ANOTHER_DIRECTORY)
    if found.st_mode & 0o077 or not machine.writable(folder):
        return subject.missing(f"{folder} has mode {found.st_mode & 0o777:o}", why, f"chmod 700 {folder}")
    live = {line.split()[-1] for line in (machine.text("/proc/net/unix") or "").splitlines()[1:] if "/" in line}
    sockets = [entry for entry in machine.names(folder) if entry.endswith(".sock")]
    stale = [entry for entry in sockets if f"{folder}/{entry}" not in live]
    rest = f", {len(stale)} left by ended processes (the next rank removes them)" if stale else ""
    return subject.ok(f"{folder}: {len(sockets) - len(stale)} ranks run{rest}")


def interface(machine):
    """The interface that netdev would use, or the candidates."""
    subject, why = Subject("network interface"), "netdev sends packets through it"
    wanted, variable = common.named_interface(machine)
    if wanted and not common.has_interface(machine, wanted):
        return common.no_interface(machine, subject, wanted, variable, why)
    chosen = [wanted] if wanted and wanted != "lo" else machine.interfaces()
    if not chosen:
        return subject.missing("only the loopback one", why, "# give the machine or container a network interface")
    up = [i for i in chosen if common.is_up(machine, i)]
    if not up:
        return subject.missing(f"{', '.join(chosen)}: down", why, f"sudo ip link set {chosen[0]} up")
    return subject.ok(", ".join(f"{i} (MTU {machine.number(f'/sys/class/net/{i}/mtu')})" for i in up))


def capabilities(machine):
    subject = Subject("capabilities")
    absent = [c for c in ("net_raw", "net_admin") if not machine.may(c)]
    if not absent:
        return subject.ok("CAP_NET_RAW, CAP_NET_ADMIN")
    names = ", ".join(f"CAP_{c.upper()}" for c in absent)
    advice = [
        "sudo -E COMMAND   # or, for one program:",
        'sudo setcap cap_net_raw,cap_net_admin,cap_ipc_lock+ep "$(readlink -f /usr/bin/python3)"   # for all its users',
    ]
    if machine.container():
        advice = ["# start the container with: --cap-add NET_RAW --cap-add NET_ADMIN"]
    return subject.missing(f"no {names}", "af_packet opens raw sockets and sets the interface up", *advice)


def ethernet_devices(machine):
    """(address, vendor, driver or '', interfaces) of each PCI network card."""
    devices = []
    for address in machine.names("/sys/bus/pci/devices"):
        base = f"/sys/bus/pci/devices/{address}"
        if (machine.text(f"{base}/class") or "").startswith(ETHERNET_CLASS):
            driver = (machine.link(f"{base}/driver") or "").rsplit("/", 1)[-1]
            interfaces = machine.names(f"{base}/net") or [
                n for v in machine.names(base) if v.startswith("virtio") for n in machine.names(f"{base}/{v}/net")
            ]
            devices.append((address, machine.text(f"{base}/vendor"), driver, interfaces))
    return devices


def wanted_device(machine):
    return machine.environment.get("GLOO_BYPASS_PCI_ADDRESS", "").split(",")[0]


def chosen_devices(machine):
    """The named one, or all."""
    wanted = wanted_device(machine)
    return [d for d in ethernet_devices(machine) if not wanted or d[0].endswith(wanted.lower())]


def nothing_is_bound(machine):
    """A virtual device, or only NICs whose drivers work beside the kernel's."""
    chosen = chosen_devices(machine)
    return wanted_device(machine).startswith("net_") or bool(chosen) and all(d[1] in BESIDE_KERNEL for d in chosen)


def nic_driver(machine):
    """Whether DPDK has a driver of any NIC: Debian's packages have each by itself."""
    subject, folder = Subject("DPDK's NIC drivers"), common.dpdk_folder(machine)
    if folder is None:
        return common.no_dpdk(subject)
    if wanted_device(machine).startswith("net_"):
        return subject.ok("a virtual device needs none")
    drivers = sorted(n for n in common.dpdk_drivers(machine, folder) if n.startswith("net_") and n not in NO_NIC)
    if drivers:
        return subject.ok(", ".join(n.removeprefix("net_") for n in drivers))
    why = "DPDK drives a NIC by a library that it opens when it starts"
    return subject.missing("none is installed", why, install("librte-meta-net"))


def nic_driver_in_wheel(machine):
    """plugin/wheel/meson.build has the list. It has none of those that work beside the kernel's."""
    subject, vendors = Subject("DPDK's NIC drivers"), {device[1] for device in chosen_devices(machine)}
    if vendors and vendors <= set(BESIDE_KERNEL):
        return subject.missing(
            "the wheel has none for this NIC",
            "DPDK's drivers for it need libraries that the wheel leaves out",
            "# use RDMA, leave GLOO_BYPASS_LINK at auto, or build from source",
        )
    return subject.ok("those in the wheel")


def pci_device(machine):
    subject, wanted = Subject("NIC"), wanted_device(machine)
    if wanted.startswith("net_"):
        return subject.ok(f"virtual device {wanted}")
    chosen = chosen_devices(machine)
    why = "DPDK drives a NIC that is bound to vfio-pci or uio, and the kernel then no longer does"
    if not chosen:
        return subject.missing(
            f"no PCI network card{f' {wanted}' if wanted else ''}",
            why,
            "# leave GLOO_BYPASS_LINK at auto here, or use netdev",
        )
    bound = [f"{address} on {driver}" for address, _, driver, _ in chosen if driver in USER_SPACE_DRIVERS]
    beside = [f"{address}: {BESIDE_KERNEL[vendor]}" for address, vendor, _, _ in chosen if vendor in BESIDE_KERNEL]
    if bound or beside:
        return subject.ok("; ".join(bound + beside))
    found = "; ".join(
        f"{a} on {driver or 'no driver'}{f' ({chr(44).join(i)})' if i else ''}" for a, _, driver, i in chosen
    )
    free = next((d for d in chosen if not d[3]), chosen[-1])
    caution = ("# this takes the interface away from the kernel: not the one you log in over!",) if free[3] else ()
    return subject.missing(
        found,
        why,
        *caution,
        "sudo modprobe vfio-pci",
        *(f"sudo ip link set {i} down" for i in free[3]),
        install("dpdk"),
        f"sudo dpdk-devbind.py --bind=vfio-pci {free[0]}",
    )


def bound_drivers(machine):
    return {driver for _, _, driver, _ in ethernet_devices(machine) if driver in USER_SPACE_DRIVERS}


def iommu(machine):
    subject = Subject("IOMMU")
    if nothing_is_bound(machine):
        return subject.ok("not needed: no NIC is taken from the kernel")
    groups = len(machine.names("/sys/kernel/iommu_groups"))
    if groups:
        return subject.ok(f"{groups} groups")
    if machine.text("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") in ("Y", "1"):
        return subject.warning(
            "none; vfio's no-IOMMU mode is on", "the NIC can write to all memory; only root can use it"
        )
    if bound_drivers(machine) & {"uio_pci_generic", "igb_uio"}:
        return subject.warning("none; uio needs none", "the NIC can write to all memory; only root can use it")
    return subject.missing(
        "none",
        "vfio-pci lets a program drive a NIC safely by it",
        "# in the firmware: VT-d or AMD-Vi on; on the kernel's command line: intel_iommu=on (AMD: nothing)",
        "echo 1 | sudo tee /sys/module/vfio/parameters/enable_unsafe_noiommu_mode   # without one, "
        "where all is trusted",
    )


def vfio_rights(machine):
    subject = Subject("vfio")
    if nothing_is_bound(machine):
        return subject.ok("not needed: no NIC is taken from the kernel")
    if not machine.exists("/sys/module/vfio_pci") and not machine.exists("/sys/bus/pci/drivers/vfio-pci"):
        if bound_drivers(machine) - {"vfio-pci"}:
            return subject.ok("not loaded; uio is in use")
        return subject.missing(
            "the module vfio-pci is not loaded", "it gives a NIC to a program", "sudo modprobe vfio-pci"
        )
    groups = [g for g in machine.names("/dev/vfio") if g != "vfio"]
    closed = [g for g in groups if not machine.writable(f"/dev/vfio/{g}")]
    if closed:
        return subject.missing(
            f"/dev/vfio/{closed[0]} is not writable for this user",
            "only its owner can use the NIC without root",
            f"sudo chown $USER /dev/vfio/{closed[0]}",
        )
    return subject.ok(f"groups {', '.join(groups)}" if groups else "loaded; no NIC is bound to it yet")


def pci_huge_pages(machine):
    why = "with uio the NIC gets physical addresses, which only huge pages keep together"
    return common.huge_pages(machine, why if bound_drivers(machine) & {"uio_pci_generic", "igb_uio"} else None)


def pci_address_settings(machine):
    subject = Subject("settings")
    absent = [n for n in ("GLOO_BYPASS_PCI_ADDRESS", "GLOO_BYPASS_IPV4") if not machine.environment.get(n)]
    if not absent:
        return subject.ok("GLOO_BYPASS_PCI_ADDRESS and GLOO_BYPASS_IPV4 are set")
    address = next((d[0] for d in ethernet_devices(machine) if d[2] in USER_SPACE_DRIVERS), "0000:00:04.0")
    values = {"GLOO_BYPASS_PCI_ADDRESS": address, "GLOO_BYPASS_IPV4": "10.0.0.2/24"}
    return subject.warning(
        f"{' and '.join(absent)} not set",
        "no kernel interface tells which NIC, and which address it has",
        *(f"export {n}={values[n]}" for n in absent),
    )
