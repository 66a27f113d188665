"""How many compilers fit: cores, memory and quotas of made-up machines."""

import pytest
from gloo_bypass_tools.common.compiler_jobs import jobs

GIB = 1 << 30


def machine(folder, available_gib, groups, files):
    for name, text in {
        "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:   {available_gib * (1 << 20)} kB\n",
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "cores, available_gib, groups, files, wanted",
    [
        (16, 64, "0::/\n", {}, 16),
        (16, 8, "0::/\n", {}, 4),
        (16, 1, "0::/\n", {}, 1),
        (64, 256, "0::/\n", {"memory.max": f"{8 * GIB}\n"}, 4),
        (64, 256, "0::/\n", {"cpu.max": "300000 100000\n", "memory.max": "max\n"}, 3),
        (64, 256, "0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        (64, 256, "0::/\n", {"cpu.max": "max 100000\n"}, 64),
        (
            64,
            256,
            "5:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "400000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            4,
        ),
        (64, 256, "0::/a/b\n", {"a/memory.max": f"{6 * GIB}\n", "a/b/memory.max": f"{20 * GIB}\n"}, 3),
        (64, 256, "5:cpu,cpuacct:/\n4:memory:/docker/1\n", {"memory/memory.limit_in_bytes": f"{10 * GIB}\n"}, 5),
        (64, 256, "4:memory:/a\n", {"memory/a/memory.limit_in_bytes": f"{10 * GIB}\n"}, 5),
        (64, 256, "4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 64),
    ],
)
def test_jobs(tmp_path, cores, available_gib, groups, files, wanted):
    assert jobs(cores, machine(tmp_path, available_gib, groups, files)) == wanted


def test_jobs_NothingIsKnown_AreTheCores(tmp_path):
    assert jobs(3, tmp_path) == 3
