"""The machine as files: all that the checks look at lies under one root, so that a test can make a machine up. Nothing
is changed or run."""

import os
import re
import stat
from pathlib import Path

from gloo_bypass_tools.common import control_groups

CAPABILITIES = {"net_admin": 12, "net_raw": 13, "ipc_lock": 14, "sys_admin": 21}
MULTIARCH = "usr/lib/x86_64-linux-gnu"
LIBRARY_FOLDERS = (MULTIARCH, "lib/x86_64-linux-gnu", "usr/lib", "usr/lib64", "usr/local/lib")
LIBRARY_FOLDERS += ("usr/local/lib/x86_64-linux-gnu",)


def integer(text, default=None):
    try:
        return int(text)
    except (TypeError, ValueError):
        return default


class Machine:
    def __init__(self, root="/", environment=None):
        self.root = Path(root)
        self.environment = dict(os.environ if environment is None else environment)
        self._packages = None

    def path(self, name):
        return self.root / str(name).lstrip("/")

    def text(self, name):
        """The file's text without the white space around it; None if it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, name):
        return integer(self.text(name))

    def names(self, folder):
        """What the folder holds, sorted; nothing if there is no such folder."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def exists(self, name):
        return os.path.lexists(self.path(name))

    def link(self, name):
        """Where a symbolic link points, as it is written; None if it is none."""
        try:
            return os.readlink(self.path(name))
        except OSError:
            return None

    def status(self, name, follow=True):
        try:
            return os.stat(self.path(name), follow_symlinks=follow)
        except OSError:
            return None

    def is_folder(self, name):
        found = self.status(name)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def writable(self, name):
        """Whether this user may read and write it, by owner and mode; a special file is not opened."""
        found = self.status(name)
        if found is None:
            return False
        if self.user() == 0:
            return True
        if found.st_uid == self.user():
            return bool(found.st_mode & stat.S_IWUSR)
        if found.st_gid in self.groups():
            return bool(found.st_mode & stat.S_IWGRP)
        return bool(found.st_mode & stat.S_IWOTH)

    # This process, as /proc tells it
    # ------------------------------------------------------------------------------------------

    def process(self, key):
        """A line of /proc/self/status."""
        for line in (self.text("/proc/self/status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return value.strip()
        return None

    def user(self):
        return integer((self.process("Uid") or "0 0").split()[1], 0)

    def groups(self):
        own = (self.process("Gid") or "").split()[1:2] + (self.process("Groups") or "").split()
        return {int(group) for group in own}

    def may(self, capability):
        effective = self.process("CapEff")
        return effective is not None and bool(int(effective, 16) >> CAPABILITIES[capability] & 1)

    def locked_memory(self):
        """Bytes this process may lock; None: as many as it likes."""
        if self.may("ipc_lock"):
            return None
        for line in (self.text("/proc/self/limits") or "").splitlines():
            if line.startswith("Max locked memory"):
                return integer(line.split()[3])
        return None

    def cpus(self):
        """Numbers of the CPUs this process may use."""
        allowed = []
        for part in (self.process("Cpus_allowed_list") or "").split(","):
            first, _, last = part.partition("-")
            if first.isdigit():
                allowed.extend(range(int(first), int(last or first) + 1))
        return allowed

    def cpu_quota(self):
        """CPUs' worth of time that the control groups grant; None: no limit."""
        return control_groups.cpu_quota(self.text)

    def cpu_flags(self):
        match = re.search(r"^flags\s*:(.*)$", self.text("/proc/cpuinfo") or "", re.MULTILINE)
        return set(match.group(1).split()) if match else set()

    def memory_mib(self, key):
        match = re.search(rf"^{key}:\s+(\d+) kB", self.text("/proc/meminfo") or "", re.MULTILINE)
        return int(match.group(1)) // 1024 if match else None

    def mounts(self, kind=None):
        """(device, folder, type, options) of each file system that is mounted."""
        rows = [line.split() for line in (self.text("/proc/mounts") or "").splitlines()]
        return [row[:4] for row in rows if len(row) >= 4 and kind in (None, row[2])]

    def kernel(self):
        return self.text("/proc/sys/kernel/osrelease") or ""

    def container(self):
        """Its kind where this is one, else ''."""
        if self.exists("/run/.containerenv"):
            return "podman"
        if self.exists("/.dockerenv"):
            return "docker"
        return "kubernetes" if "KUBERNETES_SERVICE_HOST" in self.environment else ""

    # What is installed
    # --------------------------------------------------------------------------------------------------------

    def packages(self):
        """Version of each installed Debian package."""
        if self._packages is None:
            self._packages = {}
            for block in (self.text("/var/lib/dpkg/status") or "").split("\n\n"):
                fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", block, re.MULTILINE))
                if fields.get("Status", "").endswith(" installed"):
                    self._packages[fields.get("Package", "")] = fields.get("Version", "")
        return self._packages

    def version_of(self, pattern):
        """The version of the first installed package with a name like that; None if there is none."""
        names = (name for name in sorted(self.packages()) if re.fullmatch(pattern, name))
        return next((self.packages()[name] for name in names), None)

    def library(self, name):
        """The folder that holds a shared library, or None."""
        return next((folder for folder in LIBRARY_FOLDERS if self.exists(f"{folder}/{name}")), None)

    def release(self):
        """Debian's release: 12, 13, ...; 'testing' if it has no number yet; None on other systems."""
        fields = dict(line.split("=", 1) for line in (self.text("/etc/os-release") or "").splitlines() if "=" in line)
        if fields.get("ID", "").strip('"') != "debian":
            return None
        return integer(fields.get("VERSION_ID", "").strip('"'), "testing")

    def interfaces(self):
        """Network interfaces but the loopback one."""
        names = (name for name in self.names("/sys/class/net") if name != "lo")
        return [name for name in names if self.exists(f"/sys/class/net/{name}/operstate")]
