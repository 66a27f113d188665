"""Checks of RDMA: libibverbs, devices, ports and GIDs, rights; and of SoftRoCE, which makes a device without an
adapter."""

from gloo_bypass_tools.doctor.common_checks import locked_memory, tool
from gloo_bypass_tools.doctor.finding import Subject, install
from gloo_bypass_tools.doctor.machine import LIBRARY_FOLDERS

DEVICES = "/sys/class/infiniband"
IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"
LEAST_LOCKED_BYTES = 64 << 20
SOFTROCE_UP = f"sudo {tool('softroce')} up"
GUEST = f"{tool('rdma-guest')} run -- COMMAND   # SoftRoCE in a guest, on any machine"

pinned_memory = locked_memory(LEAST_LOCKED_BYTES, "RDMA registers, and so locks, the buffers it sends from")


def verbs_library(machine):
    subject = Subject("libibverbs")
    if machine.library("libibverbs.so.1") is None:
        return subject.missing(
            "no libibverbs.so.1", "RDMA is reached through it", install("libibverbs1 ibverbs-providers")
        )
    providers = [n for f in LIBRARY_FOLDERS for n in machine.names(f"{f}/libibverbs") if n.endswith(".so")]
    if not providers:
        return subject.missing("no providers", "each kind of device has its own library", install("ibverbs-providers"))
    return subject.ok(f"{machine.packages().get('libibverbs1', 'there')}, {len(providers)} providers")


def is_softroce(machine, device):
    return device.startswith("rxe") or machine.exists(f"{DEVICES}/{device}/parent")


def ports(machine, device):
    """(number, state, link layer) of a device's ports."""
    found = []
    for port in machine.names(f"{DEVICES}/{device}/ports"):
        state, layer = (
            machine.text(f"{DEVICES}/{device}/ports/{port}/{name}") or "?" for name in ("state", "link_layer")
        )
        found.append((port, state.split(":")[-1].strip(), layer))
    return found


def wanted_devices(machine):
    wanted = [d for d in machine.environment.get("GLOO_BYPASS_RDMA_DEVICES", "").split(",") if d]
    return wanted or machine.names(DEVICES)


def devices(machine):
    subject, there, wanted = Subject("RDMA devices"), machine.names(DEVICES), wanted_devices(machine)
    why = "RDMA needs a device with an active port"
    absent = [d for d in wanted if d not in there]
    if absent:
        return subject.missing(
            f"no {', '.join(absent)}; there are: {', '.join(there) or 'none'}",
            why,
            f"export GLOO_BYPASS_RDMA_DEVICES={','.join(there)}",
        )
    if not there:
        return subject.missing("none", why, f"{SOFTROCE_UP}   # makes one in software, where the kernel can", GUEST)
    every = {device: ports(machine, device) for device in wanted}
    in_words = {d: ", ".join(f"port {p} {state}, {layer}" for p, state, layer in of) for d, of in every.items()}
    described = "; ".join(f"{device}: {said or 'no port'}" for device, said in in_words.items())
    if any(state == "ACTIVE" for of in every.values() for _, state, _ in of):
        return subject.ok(described)
    first = f"{DEVICES}/{wanted[0]}"
    interface = machine.text(f"{first}/parent") or next(iter(machine.names(f"{first}/device/net")), None)
    advice = "# plug the cable in; on InfiniBand start a subnet manager (opensm)"
    if interface:
        advice = f"sudo ip link set {interface} up"
    return subject.missing(described, why, advice, "ibv_devinfo   # of ibverbs-utils: says more")


def active_ports(machine):
    return [
        (d, p, layer) for d in wanted_devices(machine) for p, state, layer in ports(machine, d) if state == "ACTIVE"
    ]


def gid(machine):
    """RoCE carries packets from a GID that maps an IPv4 address; InfiniBand has one by itself."""
    subject = Subject("GID")
    usable, others, interface = [], [], None
    for device, port, layer in active_ports(machine):
        if layer == "InfiniBand":
            usable.append(f"{device} port {port}: InfiniBand")
            continue
        base = f"{DEVICES}/{device}/ports/{port}"
        for index in sorted(machine.names(f"{base}/gids"), key=lambda text: text.zfill(4)):
            value = machine.text(f"{base}/gids/{index}") or ""
            kind = machine.text(f"{base}/gid_attrs/types/{index}") or ""
            interface = machine.text(f"{base}/gid_attrs/ndevs/{index}") or interface
            if value.startswith(IPV4_MAPPED) and "v2" in kind:
                usable.append(f"{device} index {index}")
            elif value.strip("0:"):
                others.append(f"{device} index {index}: {value} {kind}")
    if usable:
        return subject.ok("; ".join(usable))
    if not active_ports(machine):
        return subject.missing("no active port", "its address is where packets come from")
    return subject.missing(
        "none of RoCE v2 with an IPv4 address" + (f"; there are {'; '.join(others[:4])}" if others else ""),
        "ranks find each other by IPv4 addresses",
        f"sudo ip address add 10.77.0.1/24 dev {interface or 'INTERFACE'}",
    )


def device_files(machine):
    subject = Subject("/dev/infiniband")
    files = [n for n in machine.names("/dev/infiniband") if n.startswith("uverbs")]
    why = "programs reach a device through it"
    if not files and machine.names(DEVICES):
        advice = "sudo modprobe ib_uverbs"
        if machine.container():
            advice = "# start the container with: --device /dev/infiniband"
        return subject.missing("no uverbs files", why, advice)
    closed = [n for n in files if not machine.writable(f"/dev/infiniband/{n}")]
    if closed:
        return subject.missing(
            f"{closed[0]} is not writable for this user", why, f"sudo chmod 666 /dev/infiniband/{closed[0]}"
        )
    return subject.ok(", ".join(files) or "no device, so no file")


def registration_cache(machine):
    subject = Subject("registration cache")
    if machine.process("Seccomp") == "2" and not machine.may("sys_admin"):
        return subject.warning(
            "a seccomp filter is on",
            "if it forbids userfaultfd, no registration is kept: slower, never wrong",
            "# podman: --security-opt seccomp=FILE, a profile that allows userfaultfd (as run-containers does)",
        )
    return subject.ok("nothing forbids userfaultfd, as far as can be seen")


def softroce_module(machine):
    subject = Subject("module rdma_rxe")
    if machine.exists("/sys/module/rdma_rxe"):
        return subject.ok("loaded")
    kernel = machine.kernel()
    if "/rdma_rxe.ko" in (machine.text(f"/lib/modules/{kernel}/modules.dep") or ""):
        return subject.ok(f"there for Linux {kernel}; {tool('softroce')} loads it")
    if "/rdma_rxe.ko" in (machine.text(f"/lib/modules/{kernel}/modules.builtin") or ""):
        return subject.ok("built in")
    return subject.missing(
        f"not there for Linux {kernel}",
        "it is SoftRoCE",
        "sudo apt-get install linux-image-amd64   # and start it",
        GUEST,
    )


def softroce_device(machine):
    subject = Subject("SoftRoCE device")
    soft = [d for d in machine.names(DEVICES) if is_softroce(machine, d)]
    if soft:
        return subject.ok(", ".join(soft))
    return subject.missing("none", f"{tool('softroce')} makes one on an interface of its own", SOFTROCE_UP)


def softroce_tools(machine):
    subject = Subject("tools")
    folders = ("usr/bin", "usr/sbin", "bin", "sbin")
    absent = [t for t in ("ip", "rdma", "modprobe") if not any(machine.exists(f"{f}/{t}") for f in folders)]
    if absent:
        return subject.missing(f"no {', '.join(absent)}", f"{tool('softroce')} calls them", install("iproute2 kmod"))
    return subject.ok("ip, rdma, modprobe")
