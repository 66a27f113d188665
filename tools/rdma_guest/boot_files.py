"""What QEMU boots: the kernel, unpacked, and an initramfs of busybox, the few modules that reach this machine's files,
and boot.sh as init.

Both are kept in the cache folder under a name made of what they are built from, so a change of kernel, busybox or
boot.sh builds new ones.
"""

import gzip
import hashlib
import lzma
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common.processes import ask
from gloo_bypass_tools.rdma_guest.failures import GuestError
from gloo_bypass_tools.rdma_guest.kernel import cache_folder

BOOT = Path(__file__).with_name("boot.sh")
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")
KEPT = 4  # sets of boot files kept in the cache: some kernels and versions of this script side by side
# By the ends of modules' names; busybox loads them plain.
UNPACK = {".xz": lzma.decompress, ".gz": gzip.decompress}
XZ_MAGIC = b"\xfd7zXZ\0"


@dataclass(frozen=True)
class BootFiles:
    image: Path
    initramfs: Path


def busybox_path():
    """A busybox that is statically linked, as Debian's busybox-static is."""
    for folder in ("/bin", "/usr/bin"):
        path = Path(folder) / "busybox"
        if os.access(path, os.X_OK) and b"ld-linux" not in path.read_bytes()[:4096]:
            return path
    return None


def module_files(kernel):
    """The modules of MODULES with what they depend on, in an order in which they can be loaded."""
    command = ["/sbin/modprobe", "-d", kernel.root, "-S", kernel.version, "--show-depends"]
    files = []
    for name in MODULES:
        try:
            answer = ask([*command, name], 30)
        except FileNotFoundError:
            raise GuestError("modprobe is not installed: run scripts/install-packages (Debian package kmod)") from None
        if answer.returncode != 0:
            raise GuestError(f"kernel {kernel.version} has no module {name}: {answer.stderr.strip()}")
        for line in answer.stdout.splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return [Path(file) for file in files]


def plain_module(file):
    packed = file.read_bytes()
    if file.suffix == ".ko":
        return packed
    if file.suffix not in UNPACK:
        raise GuestError(f"{file} is packed in a way that this machine cannot unpack; use a kernel of Debian's")
    return UNPACK[file.suffix](packed)


def build_initramfs(kernel, busybox, folder):
    """The archive's path in folder."""
    root = folder / "root"
    for name in ("bin", "dev", "proc", "sys", "modules", "host", "space", "new"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    shutil.copy(BOOT, root / "init")
    (root / "init").chmod(0o755)
    files = module_files(kernel)
    loaded = [file.name[: file.name.index(".ko")] + ".ko" for file in files]
    for name, file in zip(loaded, files):
        (root / "modules" / name).write_bytes(plain_module(file))
    (root / "modules" / "order").write_text("".join(f"{name}\n" for name in loaded))
    archive = folder / "initramfs"
    names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
    try:
        done = ask(["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0", "-O", archive], 60, names, cwd=root)
    except FileNotFoundError:
        raise GuestError("cpio is not installed: run scripts/install-packages") from None
    if done.returncode != 0:
        raise GuestError(f"cpio failed: {done.stderr.strip()}")
    shutil.rmtree(root)
    return archive


def unpack_image(kernel, folder):
    """The ELF kernel inside vmlinuz, which unpacks itself some seconds slower in software emulation. If it is not
    packed as Debian's are, vmlinuz itself."""
    packed = kernel.image.read_bytes()
    at = packed.find(XZ_MAGIC)
    image = folder / "kernel"
    try:
        unpacked = lzma.LZMADecompressor().decompress(packed[at:]) if at >= 0 else b""
    except lzma.LZMAError:
        unpacked = b""
    image.write_bytes(unpacked if unpacked.startswith(b"\x7fELF") else packed)
    return image


def boot_files_for(kernel):
    """The files for this kernel; made when the cache has none."""
    busybox = busybox_path()
    if not busybox:
        raise GuestError("no statically linked busybox: run scripts/install-packages (Debian package busybox-static)")
    state = hashlib.sha256(f"{kernel.image} {kernel.image.stat().st_mtime_ns} {MODULES}".encode())
    for path in (BOOT, Path(__file__), busybox):
        state.update(path.read_bytes())
    cache = cache_folder() / "boot"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{kernel.version}-{state.hexdigest()[:16]}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache, prefix="new.") as folder:
            unpack_image(kernel, Path(folder))
            build_initramfs(kernel, busybox, Path(folder))
            try:
                os.rename(folder, target)
                os.mkdir(folder)  # for TemporaryDirectory to remove
            except OSError:
                if not target.exists():  # else another run was first
                    raise
        remove_old(cache)
    return BootFiles(target / "kernel", target / "initramfs")


def remove_old(cache):
    sets = [path for path in cache.iterdir() if not path.name.startswith("new.")]
    for old in sorted(sets, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
