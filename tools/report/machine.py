"""What the numbers were measured on: processor, memory, kernel, commit, packages. Unknown facts read 'unknown'."""

import datetime
import os
import platform
import re
import subprocess
import time
from pathlib import Path

from gloo_bypass_tools.common.processes import ask

# Debian packages that bear on the figures by their versions.
PACKAGES = ("libtorch-dev", "libgloo-dev", "libdpdk-dev", "libibverbs-dev", "ibverbs-providers", "perftest")
PACKAGES += ("libopenblas0-pthread", "g++", "meson", "python3-torch")
UNKNOWN = "unknown"
QUERY_LIMIT_S = 10
# Processes that run or wait for a processor before a measurement, and the cores' worth of time that other programs took
# during it: beyond either, figures say little.
QUIET_LOAD, QUIET_CORES = 0.5, 0.1
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


#: What stored runs have of a machine.
KEYS = {"processor", "cores", "memory_gib", "operating_system", "kernel"}


def stored(described):
    """Of what describes a machine, the part that runs store."""
    return {key: described[key] for key in sorted(KEYS)}


def output_of(command, directory=None, statuses=(0,)):
    """The program's output without its end of line; '' if it fails."""
    try:
        done = ask(command, QUERY_LIMIT_S, cwd=directory)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode in statuses else ""


def text_of(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def processor_name(cpuinfo):
    found = re.search(r"^model name\s*:(.*)", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine() or UNKNOWN


def memory_gib(meminfo):
    found = re.search(r"^MemTotal:\s*(\d+)", meminfo, re.MULTILINE)
    return round(int(found.group(1)) / 2**20, 1) if found else None


def operating_system(os_release):
    found = re.search(r"^PRETTY_NAME=(.*)", os_release, re.MULTILINE)
    return found.group(1).strip().strip('"') if found else UNKNOWN


def package_versions(dpkg_output):
    """From lines of 'name<TAB>version<TAB>status'; only installed packages count."""
    versions = {}
    for line in dpkg_output.splitlines():
        name, version, status = (line.split("\t") + ["", ""])[:3]
        if status.startswith("installed") and version:
            versions[name.partition(":")[0]] = version
    return versions


def commit_of(root):
    commit = output_of(["git", "rev-parse", "HEAD"], root)
    if not commit:
        return UNKNOWN
    changed = output_of(["git", "status", "--porcelain", "--untracked-files=no"], root)
    return commit + (" with uncommitted changes" if changed else "")


def describe_system():
    """What a measurement runs on, from the kernel alone: quick even where every program takes seconds to start."""
    return {
        "processor": processor_name(text_of("/proc/cpuinfo")),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": memory_gib(text_of("/proc/meminfo")),
        "operating_system": operating_system(text_of("/etc/os-release")),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def describe_software(root):
    """What is measured: commit and packages; and what kind of machine this is."""
    query = ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Status}\n", *PACKAGES]
    return {
        "virtualisation": output_of(["systemd-detect-virt"]) or UNKNOWN,
        "commit": commit_of(root),
        "packages": package_versions(output_of(query, statuses=(0, 1))),  # 1: it knows some of them only
    }


def today():
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def describe(root):
    """All of it, as a JSON object."""
    return describe_system() | describe_software(root)


def in_words(described):
    """The machine in a phrase."""
    cores = described.get("cores", "?")
    return f"{cores} core{'' if cores == 1 else 's'} of {described.get('processor', UNKNOWN)}"


def busy_seconds(stat):
    """Processor time of all programs since the machine started, from /proc/stat's text; None where it does not say.
    Without interrupts, which no process is charged for."""
    found = re.search(r"^cpu +(\d+) (\d+) (\d+)", stat, re.MULTILINE)
    return sum(map(int, found.groups())) / TICKS_A_SECOND if found else None


class OtherWork:
    """Processor time that others take while this process and its children measure."""

    def __init__(self):
        self.began = self.now()

    @staticmethod
    def now():
        used = os.times()
        return time.monotonic(), busy_seconds(text_of("/proc/stat")), sum(used[:4])

    def cores(self):
        """Cores' worth of it since the beginning. Call it once all children have been waited for. None if it is not
        known."""
        (began, busy_then, own_then), (now, busy, own) = self.began, self.now()
        if busy is None or busy_then is None or now <= began:
            return None
        return round(max(0.0, busy - busy_then - (own - own_then)) / (now - began), 2)


def circumstances(run, *more, others_cores=None):
    """What a stored run was measured on, and when, in a phrase; `more`: before the date."""
    parts = [in_words(run.machine), f"Linux {run.machine['kernel']}", *more, str(run.date)]
    return f"{', '.join(parts)}; {quiet_in_words(run.load_before, others_cores)}"


def quiet_in_words(load_before, others_cores=None):
    """The load before a measurement, what others did during it, and whether that is quiet."""
    noisy = load_before > QUIET_LOAD or (others_cores or 0.0) > QUIET_CORES
    others = "" if others_cores is None else f", other programs took {others_cores:.2f} of a core"
    return f"load {load_before:.2f} before{others}" + (", which is not quiet" if noisy else "")
