"""The guest's first file system: busybox, the few modules that reach this machine's files, and boot.sh as init.

Kept in the cache folder under a name made of what it is built from, so a change of kernel, busybox or boot.sh builds a new one.
"""
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .failures import GuestError
from .kernel import cacheFolder

kBoot = Path(__file__).with_name("boot.sh")
kModules = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")
kKept = 4  # initramfs files kept in the cache: some kernels and versions of this script side by side


def busyboxPath():
    """A busybox that is statically linked, as Debian's busybox-static is."""
    for path in ("/bin/busybox", "/usr/bin/busybox"):
        if os.access(path, os.X_OK) and b"ld-linux" not in Path(path).read_bytes()[:4096]:
            return Path(path)
    return None


def moduleFiles(kernel):
    """The modules of kModules with what they depend on, in an order in which they can be loaded."""
    command = ["/sbin/modprobe", "-d", str(kernel.root), "-S", kernel.version, "--show-depends"]
    files = []
    for name in kModules:
        answer = subprocess.run([*command, name], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
        if answer.returncode != 0:
            raise GuestError(f"kernel {kernel.version} has no module {name}: {answer.stderr.strip()}")
        for line in answer.stdout.splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return [Path(file) for file in files]


def buildInitramfs(kernel, busybox, target):
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="initramfs.") as folder:
        root = Path(folder) / "root"
        for name in ("bin", "dev", "proc", "sys", "modules", "host", "space", "new"):
            (root / name).mkdir(parents=True)
        shutil.copy(busybox, root / "bin" / "busybox")
        shutil.copy(kBoot, root / "init")
        (root / "init").chmod(0o755)
        files = moduleFiles(kernel)
        for file in files:
            shutil.copy(file, root / "modules" / file.name)
        (root / "modules" / "order").write_text("".join(f"{file.name}\n" for file in files))
        archive = Path(folder) / "archive"
        names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
        with open(archive, "wb") as out:
            done = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"], cwd=root, input=names.encode(), stdout=out,
                                  stderr=subprocess.PIPE, timeout=60)
        if done.returncode != 0:
            raise GuestError(f"cpio failed: {done.stderr.decode(errors='replace').strip()}")
        os.rename(archive, target)


def initramfsFor(kernel):
    """The path of the initramfs for this kernel; built when the cache has none."""
    busybox = busyboxPath()
    if not busybox:
        raise GuestError("no statically linked busybox: run scripts/install-packages (Debian package busybox-static)")
    if not shutil.which("cpio"):
        raise GuestError("cpio is not installed: run scripts/install-packages")
    state = hashlib.sha256(f"{kernel.image} {kernel.image.stat().st_mtime_ns} {kModules}".encode())
    state.update(kBoot.read_bytes())
    state.update(busybox.read_bytes())
    folder = cacheFolder() / "initramfs"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{kernel.version}-{state.hexdigest()[:16]}.cpio"
    if not target.exists():
        buildInitramfs(kernel, busybox, target)
        for old in sorted(folder.glob("*.cpio"), key=lambda path: path.stat().st_mtime)[:-kKept]:
            old.unlink(missing_ok=True)
    return target
