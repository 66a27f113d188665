"""One run of the guest: QEMU's command line, its life, and the way of the command's output and exit status to the
caller.

The guest's streams come over sockets that only this process and QEMU have; nothing but this run's temporary folder lies
in the file system, so any number of guests may run side by side.
"""

import os
import secrets
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.processes import Child, ENDING, end_with_starter
from gloo_bypass_tools.rdma_guest.failures import GuestError, TIME_LIMIT
from gloo_bypass_tools.rdma_guest.streams import EndedStream, Lines

QEMU_PROGRAM = "qemu-system-x86_64"
BOOT_SECONDS = 180  # from QEMU's start to the command's; 5 s on a quiet machine in software emulation
KVM_BOOT_SECONDS = 30  # the same with KVM; some machines have a /dev/kvm that does not run a stock kernel
DRAIN_SECONDS = 10  # for the rest of the output once the exit status is there
PORTS = ("control", "out", "err")
INSIDE = Path(__file__).with_name("inside.sh")
PCI_DRIVERS = ("vfio-pci", "uio_pci_generic")
FIRST_PCI_SLOT = 0x10  # NIC n is 0000:00:1n.0 in the guest
HUGE_PAGES = 256  # of 2 MiB, reserved with --pci-nics
# Of the caller's environment: what has a meaning on the host only.
HOST_ONLY = {"TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "SSH_AUTH_SOCK"}
HOST_ONLY |= {"PWD", "OLDPWD", "SHLVL", "_", "LD_PRELOAD"}


@dataclass
class Run:
    """What to run, and in which guest."""

    command: list
    directory: Path
    timeout_seconds: float = 600
    cpus: int = 2
    memory_mib: int = 4096
    environment: dict = field(default_factory=dict)
    writable: list = field(default_factory=list)
    rxe_devices: int = 1
    pci_nics: int = 0
    pci_driver: str = PCI_DRIVERS[0]
    kvm: bool = False
    dmesg: Path = None


def command_script(run):
    environment = {name: value for name, value in os.environ.items() if name.isidentifier() and name not in HOST_ONLY}
    environment.update(run.environment)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    lines += [f"cd {shlex.quote(str(run.directory))} || exit 125", f"exec {shlex.join(run.command)}"]
    return "\n".join(lines) + "\n"


def write_settings(run, folder, token):
    settings = {
        "RXE_DEVICES": run.rxe_devices,
        "SOFTROCE": program_places.script("softroce"),
        "END_TOKEN": token,
        "PCI_NICS": run.pci_nics,
        "PCI_DRIVER": run.pci_driver,
        "HUGE_PAGES": HUGE_PAGES,
        "PCI_ADDRESSES": " ".join(pci_addresses(run)),
        "ADDRESS": "10.77.0.1" if run.rxe_devices else "127.0.1.1",
    }
    (folder / "settings").write_text("".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items()))
    (folder / "command").write_text(command_script(run))
    (folder / "writable").write_text("".join(f"{path}\n" for path in run.writable))
    for script in (INSIDE, INSIDE.with_name("pci_nics.sh")):
        shutil.copy(script, folder)


def pci_addresses(run):
    return [f"0000:00:{FIRST_PCI_SLOT + number:02x}.0" for number in range(run.pci_nics)]


def needs_iommu(run):
    return run.pci_nics > 0 and run.pci_driver == "vfio-pci"


def nic_options(run):
    """NICs on one hub; for vfio-pci behind an IOMMU (which uio_pci_generic's DMA would not pass)."""
    options = ["-device", "intel-iommu,intremap=on,device-iotlb=on,aw-bits=48"] if needs_iommu(run) else []
    features = "iommu_platform=on,ats=on,disable-legacy=on," if needs_iommu(run) else ""
    for number in range(run.pci_nics):
        address = f"mac=52:54:00:00:00:{number + 1:02x},addr={FIRST_PCI_SLOT + number:#x}"
        options += ["-netdev", f"hubport,id=nic{number},hubid=1"]
        options += ["-device", f"virtio-net-pci,netdev=nic{number},{address},{features}romfile="]
    return options


def qemu_command(run, kernel, files, folder, ports):
    # no_timer_check: on a machine so busy that the first timer interrupts come late, the kernel would panic.
    append = f"console=ttyS0 panic=-1 mitigations=off no_timer_check guest.run={folder} guest.modules={kernel.modules}"
    machine = "q35"
    if needs_iommu(run):
        machine += ",kernel-irqchip=split"  # for the IOMMU's interrupt remapping
        append += " intel_iommu=on"
    command = [QEMU_PROGRAM, "-machine", machine, "-smp", str(run.cpus), "-m", str(run.memory_mib)]
    command += ["-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-kernel", str(files.image), "-initrd", str(files.initramfs), "-append", append]
    command += ["-serial", f"file:{folder / 'console'}", "-device", "virtio-serial-pci"]
    command += ["-accel", "kvm", "-cpu", "host"] if run.kvm else ["-accel", "tcg,thread=multi", "-cpu", "max"]
    for name, port in ports.items():
        command += ["-chardev", f"socket,id={name},fd={port.fileno()}"]
        command += ["-device", f"virtserialport,chardev={name},name={name}"]
    shares = [("root", "/", ",readonly=on")] + [(f"share{n}", path, "") for n, path in enumerate(run.writable)]
    for tag, path, options in shares:
        quoted = str(path).replace(",", ",,")
        command += ["-fsdev", f"local,id={tag},path={quoted},security_model=none,multidevs=remap{options}"]
        command += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return command + nic_options(run)


def die_with_parent():
    """In the child before exec: QEMU ends when this process does, however it does."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    end_with_starter()


class Guest:
    """A started QEMU. Owned by one thread; close() ends it."""

    def __init__(self, run, kernel, files, folder):
        self.run_ = run
        self.folder_ = folder
        self.started_ = False
        self.status_ = None
        token = secrets.token_hex(16)
        write_settings(run, folder, token)
        pairs = {name: socket.socketpair() for name in PORTS}
        ends = {name: pair[1] for name, pair in pairs.items()}
        command = qemu_command(run, kernel, files, folder, ends)
        with open(folder / "qemu", "wb") as messages:
            # A session of its own, so that Ctrl-C reaches this process alone, which then ends QEMU.
            self.qemu_ = Child(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                pass_fds=[end.fileno() for end in ends.values()],
                preexec_fn=die_with_parent,
                start_new_session=True,
            )
        for end in ends.values():
            end.close()
        self.out_ = EndedStream(token.encode(), lambda data: write_all(1, data))
        self.err_ = EndedStream(token.encode(), lambda data: write_all(2, data))
        feeds = {"control": Lines(self.handle_control), "out": self.out_, "err": self.err_}
        self.selector_ = selectors.DefaultSelector()
        for name, (mine, _) in pairs.items():
            self.selector_.register(mine, selectors.EVENT_READ, feeds[name])

    def handle_control(self, line):
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

    def until(self, condition, seconds, expired):
        """Waits for a condition; raises `expired` after so many seconds."""
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise expired
            if not self.poll(left):
                self.qemu_.wait(DRAIN_SECONDS)
                raise GuestError(self.why_gone())

    def why_gone(self):
        qemu = (self.folder_ / "qemu").read_text(errors="replace").strip().splitlines()
        console = self.console_lines()
        failure = next((line for line in console if "guest-failure:" in line or "Kernel panic" in line), None)
        last = failure or (qemu[-1] if qemu else console[-1] if console else "no message")
        return f"the guest ended by itself: {last}"

    def console_lines(self):
        path = self.folder_ / "console"
        text = path.read_text(errors="replace") if path.exists() else ""
        return [line.strip() for line in text.splitlines() if line.strip()]

    def finish(self):
        """Boots, runs the command, passes its output on; its exit status."""
        seconds, advice = (KVM_BOOT_SECONDS, " with KVM: run it without --kvm") if self.run_.kvm else (BOOT_SECONDS, "")
        expired = GuestError(f"the guest did not come up within {seconds} s{advice}")
        self.until(lambda: self.started_, seconds, expired)
        seconds = self.run_.timeout_seconds
        expired = GuestError(f"time limit: the command ran longer than {seconds:g} s and was ended", TIME_LIMIT)
        self.until(lambda: self.status_ is not None, seconds, expired)
        expired = GuestError("the command's output broke off")
        self.until(lambda: self.out_.ended and self.err_.ended, DRAIN_SECONDS, expired)
        return self.status_

    def close(self):
        if self.qemu_.poll() is None:
            self.qemu_.kill()
        self.qemu_.wait()
        for stream in (self.out_, self.err_):
            stream.flush()
        if self.run_.dmesg:
            self.run_.dmesg.write_text("".join(f"{line}\n" for line in self.console_lines()))


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data) :]


def check_blanks(path, variable):
    """The kernel's command line ends a path at a blank."""
    if any(sign.isspace() or sign == '"' for sign in str(path)):
        raise GuestError(f"the guest cannot use {path}, which has a blank or '\"': set {variable} to another folder")


def run_in_guest(run, kernel, files):
    """Runs the command in a guest of its own; its exit status. Raises GuestError."""
    check_blanks(tempfile.gettempdir(), "TMPDIR")
    if kernel:
        check_blanks(kernel.modules, "XDG_CACHE_HOME")
    # A signal raises an exception in this thread. While QEMU runs and nothing would end it, the signal waits.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        with tempfile.TemporaryDirectory(prefix="rdma-guest.") as folder:
            guest = Guest(run, kernel, files, Path(folder))
            try:
                try:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                    return guest.finish()
                finally:
                    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            finally:
                guest.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
