"""One run of the guest: QEMU's command line, its life, and the way of the command's output and exit status to the caller.

The guest's streams come over sockets that only this process and QEMU have; nothing but this run's temporary folder lies in the
file system, so any number of guests may run side by side.
"""
import ctypes
import os
import secrets
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from .failures import GuestError, kTimeLimit
from .streams import EndedStream, Lines

kQemu = "qemu-system-x86_64"
kBootSeconds = 180       # from QEMU's start to the command's; 5 s on a quiet machine in software emulation
kKvmBootSeconds = 30     # the same with KVM; some machines have a /dev/kvm that does not run a stock kernel
kDrainSeconds = 10       # for the rest of the output once the exit status is there
kPorts = ("control", "out", "err")
kInside = Path(__file__).with_name("inside.sh")
kPciDrivers = ("vfio-pci", "uio_pci_generic")
kFirstPciSlot = 0x10     # NIC n is 0000:00:1n.0 in the guest
kHugePages = 256         # of 2 MiB, reserved with --pci-nics
# Of the caller's environment: what has a meaning on the host only.
kHostOnly = {"TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "SSH_AUTH_SOCK", "PWD", "OLDPWD",
             "SHLVL", "_", "LD_PRELOAD"}
kPrSetPdeathsig = 1


@dataclass
class Run:
    """What to run, and in which guest."""
    command: list
    directory: Path
    timeoutSeconds: float = 600
    cpus: int = 2
    memoryMib: int = 4096
    environment: dict = field(default_factory=dict)
    writable: list = field(default_factory=list)
    rxeDevices: int = 1
    pciNics: int = 0
    pciDriver: str = kPciDrivers[0]
    kvm: bool = False
    dmesg: Path = None


def commandScript(run):
    environment = {name: value for name, value in os.environ.items() if name.isidentifier() and name not in kHostOnly}
    environment.update(run.environment)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    lines += [f"cd {shlex.quote(str(run.directory))} || exit 125", f"exec {shlex.join(run.command)}"]
    return "\n".join(lines) + "\n"


def writeSettings(run, folder, token):
    settings = {"RXE_DEVICES": run.rxeDevices, "SCRIPTS": kInside.parent.parent, "END_TOKEN": token,
                "PCI_NICS": run.pciNics, "PCI_DRIVER": run.pciDriver, "HUGE_PAGES": kHugePages,
                "PCI_ADDRESSES": " ".join(pciAddresses(run)), "ADDRESS": "10.77.0.1" if run.rxeDevices else "127.0.1.1"}
    (folder / "settings").write_text("".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items()))
    (folder / "command").write_text(commandScript(run))
    (folder / "writable").write_text("".join(f"{path}\n" for path in run.writable))
    for script in (kInside, kInside.with_name("pci_nics.sh")):
        shutil.copy(script, folder)


def pciAddresses(run):
    return [f"0000:00:{kFirstPciSlot + number:02x}.0" for number in range(run.pciNics)]


def needsIommu(run):
    return run.pciNics > 0 and run.pciDriver == "vfio-pci"


def nicOptions(run):
    """NICs on one hub; for vfio-pci behind an IOMMU (which uio_pci_generic's DMA would not pass)."""
    options = ["-device", "intel-iommu,intremap=on,device-iotlb=on,aw-bits=48"] if needsIommu(run) else []
    features = "iommu_platform=on,ats=on,disable-legacy=on," if needsIommu(run) else ""
    for number in range(run.pciNics):
        options += ["-netdev", f"hubport,id=nic{number},hubid=1", "-device",
                    f"virtio-net-pci,netdev=nic{number},mac=52:54:00:00:00:{number + 1:02x},addr={kFirstPciSlot + number:#x},"
                    f"{features}romfile="]
    return options


def qemuCommand(run, kernel, files, folder, ports):
    append = f"console=ttyS0 panic=-1 mitigations=off guest.run={folder} guest.modules={kernel.modules}"
    machine = "q35"
    if needsIommu(run):
        machine += ",kernel-irqchip=split"  # for the IOMMU's interrupt remapping
        append += " intel_iommu=on"
    command = [kQemu, "-machine", machine, "-smp", str(run.cpus), "-m", str(run.memoryMib), "-nodefaults", "-display", "none", "-no-reboot",
               "-kernel", str(files.image), "-initrd", str(files.initramfs), "-append", append,
               "-serial", f"file:{folder / 'console'}",
               "-device", "virtio-serial-pci"]
    command += ["-accel", "kvm", "-cpu", "host"] if run.kvm else ["-accel", "tcg,thread=multi", "-cpu", "max"]
    for name, port in ports.items():
        command += ["-chardev", f"socket,id={name},fd={port.fileno()}", "-device", f"virtserialport,chardev={name},name={name}"]
    shares = [("root", "/", ",readonly=on")] + [(f"share{n}", path, "") for n, path in enumerate(run.writable)]
    for tag, path, options in shares:
        quoted = str(path).replace(",", ",,")
        command += ["-fsdev", f"local,id={tag},path={quoted},security_model=none,multidevs=remap{options}",
                    "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return command + nicOptions(run)


def dieWithParent():
    """In the child before exec: QEMU ends when this process does, however it does."""
    ctypes.CDLL(None).prctl(kPrSetPdeathsig, signal.SIGKILL)


class Guest:
    """A started QEMU. Owned by one thread; close() ends it."""

    def __init__(self, run, kernel, files, folder):
        self.run_ = run
        self.folder_ = folder
        self.started_ = False
        self.status_ = None
        token = secrets.token_hex(16)
        writeSettings(run, folder, token)
        pairs = {name: socket.socketpair() for name in kPorts}
        ends = {name: pair[1] for name, pair in pairs.items()}
        command = qemuCommand(run, kernel, files, folder, ends)
        with open(folder / "qemu", "wb") as messages:
            # A session of its own, so that Ctrl-C reaches this process alone, which then ends QEMU.
            self.qemu_ = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=messages,
                                          pass_fds=[end.fileno() for end in ends.values()], preexec_fn=dieWithParent, start_new_session=True)
        for end in ends.values():
            end.close()
        self.out_ = EndedStream(token.encode(), lambda data: writeAll(1, data))
        self.err_ = EndedStream(token.encode(), lambda data: writeAll(2, data))
        feeds = {"control": Lines(self.handleControl), "out": self.out_, "err": self.err_}
        self.selector_ = selectors.DefaultSelector()
        for name, (mine, _) in pairs.items():
            self.selector_.register(mine, selectors.EVENT_READ, feeds[name])

    def handleControl(self, line):
        word, _, rest = line.strip().partition(" ")
        if word == "start":
            self.started_ = True
        elif word == "end":
            self.status_ = int(rest)
        elif word == "failure":
            raise GuestError(f"in the guest: {rest}")

    def poll(self, seconds):
        """Handles what comes within this time; False once the guest has closed everything."""
        for key, _ in self.selector_.select(seconds):
            data = key.fileobj.recv(1 << 16)
            if data:
                key.data.feed(data)
            else:
                self.selector_.unregister(key.fileobj)
                key.fileobj.close()
        return bool(self.selector_.get_map())

    def until(self, condition, deadline, expired):
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise expired
            if not self.poll(left):
                self.qemu_.wait(kDrainSeconds)
                raise GuestError(self.whyGone())

    def whyGone(self):
        qemu = (self.folder_ / "qemu").read_text(errors="replace").strip().splitlines()
        console = self.consoleLines()
        failure = next((line for line in console if "guest-failure:" in line or "Kernel panic" in line), None)
        last = failure or (qemu[-1] if qemu else console[-1] if console else "no message")
        return f"the guest ended by itself: {last}"

    def consoleLines(self):
        path = self.folder_ / "console"
        return [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()] if path.exists() else []

    def finish(self):
        """Boots, runs the command, passes its output on; its exit status."""
        seconds, advice = (kKvmBootSeconds, " with KVM: run it without --kvm") if self.run_.kvm else (kBootSeconds, "")
        self.until(lambda: self.started_, time.monotonic() + seconds,
                   GuestError(f"the guest did not come up within {seconds} s{advice}"))
        limit = GuestError(f"time limit: the command ran longer than {self.run_.timeoutSeconds:g} s and was ended", kTimeLimit)
        self.until(lambda: self.status_ is not None, time.monotonic() + self.run_.timeoutSeconds, limit)
        self.until(lambda: self.out_.ended and self.err_.ended, time.monotonic() + kDrainSeconds,
                   GuestError("the command's output broke off"))
        return self.status_

    def close(self):
        if self.qemu_.poll() is None:
            self.qemu_.kill()
        self.qemu_.wait()
        for stream in (self.out_, self.err_):
            stream.flush()
        if self.run_.dmesg:
            self.run_.dmesg.write_text("".join(f"{line}\n" for line in self.consoleLines()))


def writeAll(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


def runInGuest(run, kernel, files):
    """Runs the command in a guest of its own; its exit status. Raises GuestError."""
    with tempfile.TemporaryDirectory(prefix="rdma-guest.") as folder:
        guest = Guest(run, kernel, files, Path(folder))
        try:
            return guest.finish()
        finally:
            guest.close()
