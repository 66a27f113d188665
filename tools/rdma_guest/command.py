"""The command line of scripts/rdma-guest."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.argument_types import result_file
from gloo_bypass_tools.common.failures import in_words
from gloo_bypass_tools.common.options import AS_WRITTEN, REPEATED, add_environment, add_number
from gloo_bypass_tools.rdma_guest.boot_files import boot_files_for, busybox_path
from gloo_bypass_tools.rdma_guest.failures import GuestError, MISSING
from gloo_bypass_tools.rdma_guest.kernel import fetch_kernel, find_kernel
from gloo_bypass_tools.rdma_guest.machine import Run, PCI_DRIVERS, QEMU_PROGRAM, run_in_guest

INSTALL = "run scripts/install-packages"
MOST_DEVICES = 8  # of --rxe and of --pci-nics
LEAST_MEMORY_MIB = 1024
MOST_SECONDS = 86400
MOST_CPUS = 4  # of the default: software emulation gains little from more

DESCRIPTION = """Boots Debian's stock kernel in QEMU, with SoftRoCE (RDMA in software), netem and userfaultfd ready, \
and runs a command
in it on this machine's files. Works without KVM and without root; nothing is installed or changed outside the cache \
folder."""
NOTES = f"""In the guest: the command runs as root in the folder, and with the environment, that it was started with. \
Every file of this
machine can be read as the user who started the guest may read it. Written through to this machine are only the \
current folder (unless that
is /) and those given with --writable; whatever is changed elsewhere is gone at the end. rxe0 lies on the interface \
roce0, 10.77.0.1/24,
which is also what the host name rdma-guest means; rxe1 on roce1, 10.77.1.1/24, and so on. NICs of --pci-nics have the \
PCI addresses
0000:00:10.0, 0000:00:11.0, ...

Exit status: the command's; 124 when the time limit ended it, {MISSING} when the guest could not be had (the line on \
stderr says why)."""


def folder(text):
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is no folder")
    path = path.resolve()
    if path == Path("/") or "\n" in text:
        raise argparse.ArgumentTypeError(f"'{text}' cannot be shared for writing")
    return path


def parser():
    top = argparse.ArgumentParser(prog="rdma-guest", description=DESCRIPTION, allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser(
        "run",
        help="boot, run COMMAND in the current folder, return its output and exit status",
        epilog=NOTES,
        description=DESCRIPTION,
        allow_abbrev=False,
        usage="rdma-guest run [options] -- COMMAND...",
        **AS_WRITTEN,
    )
    add_number(run, "--timeout", int, 1, MOST_SECONDS, "end the command after S seconds", default=600, metavar="S")
    cpus, as_here = min(os.cpu_count() or 1, MOST_CPUS), f"default: as many as here, {MOST_CPUS} at most"
    add_number(run, "--cpus", int, 1, 64, f"virtual CPUs ({as_here})", default=cpus)
    memory = "default 4096; taken as it is used"
    add_number(run, "--memory", int, LEAST_MEMORY_MIB, 1 << 20, memory, default=4096, metavar="MIB")
    add_environment(run, "in the command's environment, beside the caller's own")
    written = "what the command writes below DIR appears here; may be repeated"
    run.add_argument("--writable", type=folder, metavar="DIR", help=written, **REPEATED)
    devices = "SoftRoCE devices, each on an interface of its own"
    add_number(run, "--rxe", int, 0, MOST_DEVICES, devices, default=1)
    nics = "emulated virtio NICs on one hub, for DPDK; huge pages are reserved then"
    add_number(run, "--pci-nics", int, 0, MOST_DEVICES, nics, default=0)
    run.add_argument(
        "--pci-driver",
        choices=PCI_DRIVERS,
        default=PCI_DRIVERS[0],
        help="what those NICs are bound to (default %(default)s)",
    )
    run.add_argument("--kvm", action="store_true", help="use KVM; software emulation, the default, runs everywhere")
    run.add_argument("--dmesg", type=result_file, metavar="FILE", help="save the guest's kernel log there")
    run.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    verbs.add_parser("check", help="say what is missing here for run; exit status 1 if anything is")
    verbs.add_parser(
        "fetch-kernel", help="download the distribution's kernel package into the cache folder, if no kernel is there"
    )
    return top


def missing():
    """What `run` needs and is missing here, one sentence each."""
    sentences = []
    for program, package in ((QEMU_PROGRAM, "qemu-system-x86"), ("cpio", "cpio")):
        if not shutil.which(program):
            sentences.append(f"{program} is not installed: {INSTALL} (Debian package {package})")
    if not os.access("/sbin/modprobe", os.X_OK):
        sentences.append(f"modprobe is not installed: {INSTALL} (Debian package kmod)")
    if not busybox_path():
        sentences.append(f"there is no statically linked busybox: {INSTALL} (Debian package busybox-static)")
    if not find_kernel():
        sentences.append(
            "there is no Debian kernel with SoftRoCE, neither installed nor in the cache: run "
            "scripts/rdma-guest fetch-kernel"
        )
    return sentences


def outermost(folders):
    """The folders that lie in no other one of them."""
    return [path for path in dict.fromkeys(folders) if not any(other in path.parents for other in folders)]


def run_command(arguments):
    for sentence in missing():
        raise GuestError(sentence)
    if arguments.kvm and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise GuestError("--kvm: /dev/kvm is not there or not accessible; run without --kvm")
    here = Path.cwd()
    shared = [path for path in (here, *arguments.writable) if path != Path("/")]
    run = Run(
        command=arguments.command,
        directory=here,
        timeout_seconds=arguments.timeout,
        cpus=arguments.cpus,
        memory_mib=arguments.memory,
        environment=dict(arguments.env),
        writable=outermost(shared),
        rxe_devices=arguments.rxe,
        pci_nics=arguments.pci_nics,
        pci_driver=arguments.pci_driver,
        kvm=arguments.kvm,
        dmesg=arguments.dmesg,
    )
    kernel = find_kernel()
    return run_in_guest(run, kernel, boot_files_for(kernel))


def check():
    sentences = missing()
    for sentence in sentences:
        print(f"rdma-guest: {sentence}")
    if not sentences:
        kernel = find_kernel()
        print(f"rdma-guest: nothing is missing; kernel {kernel.version} in {kernel.root}")
    return 1 if sentences else 0


def end_by_signal(number, _):
    sys.exit(128 + number)


def main():
    top = parser()
    arguments = top.parse_args()
    if arguments.verb == "run":
        if arguments.command[:1] == ["--"]:
            arguments.command = arguments.command[1:]
        if not arguments.command:
            top.error("run needs a command: rdma-guest run [options] -- COMMAND...")
    processes.handle((signal.SIGTERM, signal.SIGHUP), end_by_signal)
    try:
        if arguments.verb == "check":
            return check()
        if arguments.verb == "fetch-kernel":
            print(f"rdma-guest: kernel {fetch_kernel().version}")
            return 0
        return run_command(arguments)
    except GuestError as error:
        print(f"rdma-guest: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"rdma-guest: {in_words(error)}", file=sys.stderr)
        return MISSING
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
