"""Holds one rank's processor time down: by a control group's quota where one can be made, else by stopping and
continuing it.

    with limited(0.5) as limit:      limit.way      what does it, for the reader
        ...                          limit.flags    of rank_probe.py, which puts its rank there

A share is of one core. The group is made beside this process, outside of the run's namespaces, and removed at the end;
a quota counts all threads of the rank together, over 20 ms, while stopping holds up all threads at once for their share
of 50 ms, so that a rank that used several cores keeps more. Units: shares of a core, microseconds.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

PERIOD_US = 20_000
GROUPS = Path("/proc/self/cgroup")
MOUNTS = Path("/proc/self/mounts")
STOPPING = "SIGSTOP and SIGCONT, 50 ms"


@dataclass(frozen=True)
class Limit:
    way: str
    flags: tuple = ()


def mounts(text):
    """(folder, kind, options) of each mounted hierarchy of control groups."""
    words = [line.split() for line in text.splitlines()]
    return [
        (Path(one[1]), one[2], one[3].split(",")) for one in words if len(one) > 3 and one[2] in ("cgroup", "cgroup2")
    ]


def own_group(text, kind):
    """This process' group in the hierarchy that has processor time, from /proc/self/cgroup; '/' where it says
    nothing."""
    for line in text.splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if (kind == "cgroup2" and number == "0" and not controllers) or (
            kind == "cgroup" and "cpu" in controllers.split(",")
        ):
            return path
    return "/"


def places(mounted, groups):
    """(folder that a group may be made in, version), version 2 first."""
    found = []
    for kind in ("cgroup2", "cgroup"):
        for folder, its_kind, options in mounted:
            if its_kind == kind and (kind == "cgroup2" or "cpu" in options):
                found += [(one, kind) for one in dict.fromkeys((folder / own_group(groups, kind).lstrip("/"), folder))]
    return found


def made_in(folder, kind, share, name):
    """The new group with its quota, or None where this is not allowed, or has no quotas."""
    group = folder / name
    quota = max(1000, round(share * PERIOD_US))
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        if kind == "cgroup2":
            # Missing where processor time is not handed on to groups below this one; a control group has no new files.
            with open(group / "cpu.max", "r+", encoding="ascii") as file:
                file.write(f"{quota} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        return group
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None


@contextlib.contextmanager
def limited(share, rank):
    """`share` None: no limit at all."""
    if share is None:
        yield Limit("")
        return
    mounted, groups = (mounts(MOUNTS.read_text()), GROUPS.read_text()) if GROUPS.exists() else ([], "")
    flags, name = ("--limit-rank", rank), f"gloo-bypass-study-{os.getpid()}"
    for folder, kind in places(mounted, groups):
        group = made_in(folder, kind, share, name)
        if group is None:
            continue
        try:
            yield Limit(
                "cpu.max of cgroup v2" if kind == "cgroup2" else "cpu.cfs_quota_us of cgroup v1",
                (*flags, "--limit-group", group),
            )
        finally:
            # Its processes ended with the run's namespaces.
            with contextlib.suppress(OSError):
                group.rmdir()
        return
    yield Limit(STOPPING, (*flags, "--limit-share", share))
