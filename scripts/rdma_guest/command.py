"""The command line of scripts/rdma-guest."""
import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from .failures import GuestError, kMissing
from .boot_files import bootFilesFor, busyboxPath
from .kernel import fetchKernel, findKernel
from .machine import Run, kPciDrivers, kQemu, runInGuest


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return value


def assignment(text):
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def parser():
    top = argparse.ArgumentParser(prog="rdma-guest", description="Runs a command in a Linux guest that has SoftRoCE, on this machine's files.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("run", help="boot, run COMMAND in the current folder, return its exit status")
    run.add_argument("--timeout", type=positive, default=600, metavar="S", help="end the command after S seconds (600)")
    run.add_argument("--cpus", type=positive, default=min(os.cpu_count() or 1, 4), metavar="N")
    run.add_argument("--memory", type=positive, default=4096, metavar="MIB")
    run.add_argument("--env", type=assignment, action="append", default=[], metavar="NAME=VALUE")
    run.add_argument("--writable", type=Path, action="append", default=[], metavar="DIR")
    run.add_argument("--rxe", type=int, default=1, metavar="N")
    run.add_argument("--pci-nics", type=int, default=0, metavar="N")
    run.add_argument("--pci-driver", choices=kPciDrivers, default=kPciDrivers[0])
    run.add_argument("--kvm", action="store_true")
    run.add_argument("--dmesg", type=Path, metavar="FILE")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND...")
    verbs.add_parser("check", help="say what is missing")
    verbs.add_parser("fetch-kernel", help="download the distribution's kernel into the cache folder (nothing is installed)")
    return top


def runCommand(arguments):
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    kernel = findKernel()
    if not kernel:
        raise GuestError("no Debian kernel with the module rdma_rxe here: run scripts/rdma-guest fetch-kernel")
    if not shutil.which(kQemu):
        raise GuestError(f"{kQemu} is not installed: run scripts/install-packages")
    directory = Path.cwd()
    run = Run(command=command, directory=directory, timeoutSeconds=arguments.timeout, cpus=arguments.cpus, memoryMib=arguments.memory,
              environment=dict(arguments.env), writable=[directory, *(path.resolve() for path in arguments.writable)],
              rxeDevices=arguments.rxe, pciNics=arguments.pci_nics, pciDriver=arguments.pci_driver, kvm=arguments.kvm, dmesg=arguments.dmesg)
    return runInGuest(run, kernel, bootFilesFor(kernel))


def check():
    missing = []
    if not shutil.which(kQemu):
        missing.append(kQemu)
    if not busyboxPath():
        missing.append("busybox (static)")
    if not shutil.which("cpio"):
        missing.append("cpio")
    if not findKernel():
        missing.append("a Debian kernel with rdma_rxe")
    for what in missing:
        print(f"missing: {what}")
    if not missing:
        print("rdma-guest: nothing is missing")
    return 1 if missing else 0


def main():
    arguments = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
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
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
