"""How many compilers to run at a time; as a program, without PyTorch's or our packages, it prints the number.

PyTorch's headers need well over 1 GB a compiler. The limits are those of the machine and of the control groups that
this process is in, as far as they are mounted: in a container the groups' are smaller, and `nproc` and /proc/meminfo
do not know them. Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst ("cpu.max", "memory.max"),
Documentation/admin-guide/cgroup-v1/memory.rst.
"""

import os
import re
from pathlib import Path

BYTES_A_COMPILER = 2 << 30


def text_of(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def files_of(root, controller, version_1):
    """Those named `controller` (version 2) or `version_1` of this process's group, and of the groups above it."""
    mount, found = root / "sys/fs/cgroup", []
    for line in text_of(root / "proc/self/cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        top, name = (mount, controller) if number == "0" else (mount / version_1.split(".")[0], version_1)
        if number == "0" or version_1.split(".")[0] in controllers.split(","):
            group = top / path.lstrip("/")
            # In a container its own group may be mounted as the top, whatever the path.
            found += [one / name for one in (group, *group.parents) if one == top or top in one.parents]
    return found


def numbers(root, controller, version_1):
    """The first number of each of these files that has a limit."""
    texts = [text_of(path) for path in files_of(root, controller, version_1)]
    return [list(map(int, re.findall(r"\d+", text))) for text in texts if re.match(r"\d", text)]


def jobs(cores, root=Path("/")):
    available = re.search(r"^MemAvailable:\s+(\d+) kB", text_of(root / "proc/meminfo"), re.MULTILINE)
    memory = [int(available[1]) * 1024] if available else []
    memory += [limit[0] for limit in numbers(root, "memory.max", "memory.limit_in_bytes")]
    granted = [quota / period for quota, period in numbers(root, "cpu.max", "cpu.max")]
    return max(1, int(min([cores, *granted, *(size / BYTES_A_COMPILER for size in memory)])))


if __name__ == "__main__":
    print(jobs(len(os.sched_getaffinity(0))))
