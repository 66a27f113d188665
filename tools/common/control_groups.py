"""What control groups grant this process: the least of its own group and of those above it, as far as they are mounted.
Version 2, and version 1 in its usual places. As transport/progress/cpu_quota.h for processor time.

`text(path)` reads a file of the machine; None where there is none. Sources: cgroups(7),
Documentation/admin-guide/cgroup-v2.rst ("cpu.max", "memory.max"), cgroup-v1/memory.rst, sched-bwc.rst.
"""


def quotient(words):
    """Of two numbers above 0; None where there are no such."""
    numbers = [int(word) if word and word.strip().isdigit() else 0 for word in words]
    first, second = (numbers + [0, 0])[:2]
    return first / second if first > 0 and second > 0 else None


def least(text, controller, version_2, version_1):
    """Of what the two functions say of groups; None: no limit."""
    found = [version_2("/"), version_1("/")]  # in a container, of its own group
    for line in (text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if (controllers and controller not in controllers.split(",")) or path.startswith("/.."):
            continue
        while len(path) > 1:
            found.append(version_1(path) if controllers else version_2(path))
            path = path.rpartition("/")[0]
    return min((one for one in found if one), default=None)


def cpu_quota(text):
    """In cores."""

    def version_2(group):
        return quotient((text(f"/sys/fs/cgroup{group}/cpu.max") or "").split())

    def version_1(group):
        return quotient([text(f"/sys/fs/cgroup/cpu{group}/cpu.cfs_{name}_us") for name in ("quota", "period")])

    return least(text, "cpu", version_2, version_1)


def memory_limit(text):
    """In bytes."""

    def version_2(group):
        return quotient([text(f"/sys/fs/cgroup{group}/memory.max"), "1"])

    def version_1(group):
        return quotient([text(f"/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"), "1"])

    return least(text, "memory", version_2, version_1)
