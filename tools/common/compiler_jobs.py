"""How many compilers to run at a time; as a program it prints the number. PyTorch's headers need well over 1 GB each.

In a container `nproc` and /proc/meminfo are the machine's: what its control groups grant counts too.
"""

import os
import re
from pathlib import Path

from gloo_bypass_tools.common import control_groups

BYTES_A_COMPILER = 2 << 30


def jobs(cores, root=Path("/")):
    def text(path):
        try:
            return (root / path.lstrip("/")).read_text()
        except OSError:
            return None

    available = re.search(r"^MemAvailable:\s+(\d+) kB", text("/proc/meminfo") or "", re.MULTILINE)
    memory = [int(available[1]) * 1024 if available else None, control_groups.memory_limit(text)]
    limits = [control_groups.cpu_quota(text), *(size / BYTES_A_COMPILER for size in memory if size)]
    return max(1, int(min([cores, *(limit for limit in limits if limit)])))


if __name__ == "__main__":
    print(jobs(len(os.sched_getaffinity(0))))
