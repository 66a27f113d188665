"""Finds Debian's stock kernel with its modules: the installed one, or one unpacked into the cache folder.

A Kernel is a folder that has boot/vmlinuz-VERSION and lib/modules/VERSION: "/" or a folder of the cache. Its modules
may be packed, as Debian's are since 6.6.
"""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.rdma_guest.failures import GuestError

PACKAGE = "linux-image-amd64"
NEEDED = "rdma_rxe"
# Most of the modules' bytes, and of no use in the guest.
DRIVERS_LEFT_OUT = ("gpu", "media", "staging", "net/wireless", "scsi", "iio")
LEFT_OUT = (*(f"drivers/{name}" for name in DRIVERS_LEFT_OUT), "sound")
DOWNLOAD_SECONDS = 300


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "gloo-bypass"


@dataclass(frozen=True)
class Kernel:
    root: Path
    version: str

    @property
    def image(self):
        return self.root / "boot" / f"vmlinuz-{self.version}"

    @property
    def modules(self):
        return self.root / "lib" / "modules" / self.version


def sort_key(version):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", version)]


def kernels_in(root):
    """Debian kernels below root that have an image one may read, and the modules for SoftRoCE; the newest last."""
    kernels = [Kernel(root, image.name.removeprefix("vmlinuz-")) for image in (root / "boot").glob("vmlinuz-*-amd64")]
    usable = [kernel for kernel in kernels if has_module(kernel, NEEDED) and os.access(kernel.image, os.R_OK)]
    return sorted(usable, key=lambda kernel: sort_key(kernel.version))


def has_module(kernel, name):
    try:
        listed = (kernel.modules / "modules.dep").read_text()
    except OSError:
        return False
    found = re.search(rf"^(\S*/{name}\.ko(?:\.\w+)?):", listed, re.MULTILINE)
    return bool(found) and (kernel.modules / found[1]).exists()


def find_kernel():
    """The newest kernel of the cache, else the newest installed one; None if there is neither."""
    for root in (cache_folder() / "kernel", Path("/")):
        kernels = kernels_in(root)
        if kernels:
            return kernels[-1]
    return None


def run(command, **options):
    try:
        done = ask(command, DOWNLOAD_SECONDS, **options)
    except FileNotFoundError:
        raise GuestError(f"{command[0]} is not installed: run scripts/install-packages") from None
    except subprocess.TimeoutExpired:
        raise GuestError(f"'{' '.join(command)}' took longer than {DOWNLOAD_SECONDS} s") from None
    if done.returncode != 0:
        raise GuestError(f"'{' '.join(command)}' failed: {errors_of(done)[-1]}")
    return done.stdout


def fetch_kernel():
    """Downloads the distribution's kernel package and unpacks it into the cache, if no kernel is there. Installs
    nothing."""
    kernel = find_kernel()
    if kernel:
        return kernel
    for program in ("apt-get", "apt-cache", "dpkg-deb", "tar"):
        if not shutil.which(program):
            raise GuestError(
                f"{program} is not there: on another system than Debian, put a Debian kernel package's boot/ and "
                f"lib/modules/ into {cache_folder() / 'kernel'} (dpkg-deb -x, depmod -b)"
            )
    listed = run(["apt-cache", "depends", "--important", PACKAGE])
    names = re.findall(r"Depends: (linux-image-\S+)", listed)
    if not names:
        raise GuestError(f"the package lists know no {PACKAGE}: run apt-get update")
    target = cache_folder() / "kernel"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GuestError(
            f"cannot make {target.parent}: {error.strerror}: set XDG_CACHE_HOME to another folder"
        ) from None
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="kernel.") as folder:
        run(["apt-get", "download", "-q", names[0]], cwd=folder)
        unpack_kernel(next(Path(folder).glob("*.deb")), Path(folder) / "root")
        if not kernels_in(Path(folder) / "root"):
            raise GuestError(f"the package {names[0]} has no module {NEEDED}")
        if not kernels_in(target):  # else another run was first, and may boot from it
            shutil.rmtree(target, ignore_errors=True)
            os.rename(Path(folder) / "root", target)
    return find_kernel()


def unpack_kernel(package, root):
    """The image and the modules of a kernel package, and the modules' index, below root."""
    root.mkdir()
    excluded = [f"--exclude=*/kernel/{name}" for name in LEFT_OUT]
    wanted = ("./boot/vmlinuz-*", "*lib/modules/*")  # of older packages in lib/, of newer ones in usr/lib/
    unpack = ["tar", "-x", "--no-same-owner", "-C", root, *excluded, "--wildcards", *wanted]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as source:
        unpacked = subprocess.run(
            unpack, stdin=source.stdout, stderr=subprocess.PIPE, text=True, timeout=DOWNLOAD_SECONDS
        )
    if unpacked.returncode != 0 or source.returncode != 0:
        why = unpacked.stderr.strip() or "damaged package"
        raise GuestError(f"{package.name} cannot be unpacked into {root.parent.parent}: {why}")
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    version = next((root / "boot").glob("vmlinuz-*")).name.removeprefix("vmlinuz-")
    run(["/sbin/depmod", "-b", str(root), version])
