"""The command line of scripts/rdma-guest."""
import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from .boot_files import bootFilesFor, busyboxPath
from .failures import GuestError, kMissing
from .kernel import fetchKernel, findKernel
from .machine import Run, kPciDrivers, kQemu, runInGuest

kInstall = "run scripts/install-packages"
kMostDevices = 8  # of --rxe and of --pci-nics
kLeastMemoryMib = 1024
kMostCpus = 4     # of the default: software emulation gains little from more

kDescription = """Boots Debian's stock kernel in QEMU, with SoftRoCE (RDMA in software), netem and userfaultfd ready, and runs a command
in it on this machine's files. Works without KVM and without root; nothing is installed or changed outside the cache folder."""
kNotes = f"""In the guest: the command runs as root in the folder, and with the environment, that it was started with. Every file of this
machine can be read as the user who started the guest may read it. Written through to this machine are only the current folder (unless that
is /) and those given with --writable; whatever is changed elsewhere is gone at the end. rxe0 lies on the interface roce0, 10.77.0.1/24,
which is also what the host name rdma-guest means; rxe1 on roce1, 10.77.1.1/24, and so on. NICs of --pci-nics have the PCI addresses
0000:00:10.0, 0000:00:11.0, ...

Exit status: the command's; 124 when the time limit ended it, {kMissing} when the guest could not be had (the line on stderr says why)."""


def integer(least, most):
    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{text}': it must be a whole number from {least} to {most}")
        return value
    return parse


def assignment(text):
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def folder(text):
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is no folder")
    path = path.resolve()
    if path == Path("/") or "\n" in text:
        raise argparse.ArgumentTypeError(f"'{text}' cannot be shared for writing")
    return path


def parser():
    top = argparse.ArgumentParser(prog="rdma-guest", description=kDescription, allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("run", help="boot, run COMMAND in the current folder, return its output and exit status", epilog=kNotes,
                           description=kDescription, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
                           usage="rdma-guest run [options] -- COMMAND...")
    run.add_argument("--timeout", type=integer(1, 86400), default=600, metavar="S", help="end the command after S seconds (default 600)")
    run.add_argument("--cpus", type=integer(1, 64), default=min(os.cpu_count() or 1, kMostCpus), metavar="N",
                     help=f"virtual CPUs (default: as many as here, {kMostCpus} at most)")
    run.add_argument("--memory", type=integer(kLeastMemoryMib, 1 << 20), default=4096, metavar="MIB", help="default 4096; taken as it is used")
    run.add_argument("--env", type=assignment, action="append", default=[], metavar="NAME=VALUE",
                     help="in the command's environment, beside the caller's own; may be repeated")
    run.add_argument("--writable", type=folder, action="append", default=[], metavar="DIR",
                     help="what the command writes below DIR appears here; may be repeated")
    run.add_argument("--rxe", type=integer(0, kMostDevices), default=1, metavar="N",
                     help="SoftRoCE devices, each on an interface of its own (default 1)")
    run.add_argument("--pci-nics", type=integer(0, kMostDevices), default=0, metavar="N",
                     help="emulated virtio NICs on one hub, for DPDK; huge pages are reserved then (default 0)")
    run.add_argument("--pci-driver", choices=kPciDrivers, default=kPciDrivers[0], help="what those NICs are bound to (default %(default)s)")
    run.add_argument("--kvm", action="store_true", help="use KVM; software emulation, the default, runs everywhere")
    run.add_argument("--dmesg", type=Path, metavar="FILE", help="save the guest's kernel log there")
    run.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    verbs.add_parser("check", help="say what is missing here for run; exit status 1 if anything is")
    verbs.add_parser("fetch-kernel", help="download the distribution's kernel package into the cache folder, if no kernel is there")
    return top


def missing():
    """What run needs and is not here, one sentence each."""
    sentences = []
    for program, package in ((kQemu, "qemu-system-x86"), ("cpio", "cpio")):
        if not shutil.which(program):
            sentences.append(f"{program} is not installed: {kInstall} (Debian package {package})")
    if not os.access("/sbin/modprobe", os.X_OK):
        sentences.append(f"modprobe is not installed: {kInstall} (Debian package kmod)")
    if not busyboxPath():
        sentences.append(f"there is no statically linked busybox: {kInstall} (Debian package busybox-static)")
    if not findKernel():
        sentences.append("there is no Debian kernel with SoftRoCE, neither installed nor in the cache: run scripts/rdma-guest fetch-kernel")
    return sentences


def outermost(folders):
    """Without those that lie in another one."""
    return [path for path in dict.fromkeys(folders) if not any(other in path.parents for other in folders)]


def runCommand(arguments):
    for sentence in missing():
        raise GuestError(sentence)
    if arguments.kvm and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise GuestError("--kvm: /dev/kvm is not there or not accessible; run without --kvm")
    if arguments.dmesg and not arguments.dmesg.absolute().parent.is_dir():
        raise GuestError(f"--dmesg: there is no folder {arguments.dmesg.absolute().parent}")
    here = Path.cwd()
    shared = [path for path in (here, *arguments.writable) if path != Path("/")]
    run = Run(command=arguments.command, directory=here, timeoutSeconds=arguments.timeout, cpus=arguments.cpus,
              memoryMib=arguments.memory, environment=dict(arguments.env), writable=outermost(shared), rxeDevices=arguments.rxe,
              pciNics=arguments.pci_nics, pciDriver=arguments.pci_driver, kvm=arguments.kvm, dmesg=arguments.dmesg)
    kernel = findKernel()
    return runInGuest(run, kernel, bootFilesFor(kernel))


def check():
    sentences = missing()
    for sentence in sentences:
        print(f"rdma-guest: {sentence}")
    if not sentences:
        kernel = findKernel()
        print(f"rdma-guest: nothing is missing; kernel {kernel.version} in {kernel.root}")
    return 1 if sentences else 0


def endBySignal(number, _):
    sys.exit(128 + number)


def main():
    top = parser()
    arguments = top.parse_args()
    if arguments.verb == "run":
        if arguments.command[:1] == ["--"]:
            arguments.command = arguments.command[1:]
        if not arguments.command:
            top.error("run needs a command: rdma-guest run [options] -- COMMAND...")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, endBySignal)
    try:
        if arguments.verb == "check":
            return check()
        if arguments.verb == "fetch-kernel":
            print(f"rdma-guest: kernel {fetchKernel().version}")
            return 0
        return runCommand(arguments)
    except GuestError as error:
        print(f"rdma-guest: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
