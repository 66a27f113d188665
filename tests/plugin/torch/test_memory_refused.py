"""Ranks of one host that cannot share memory: link mode auto works without it, and each rank says why."""

import json
import os
import re
import subprocess

import pytest
from ranks import Ranks

INSIDE = ["unshare", "-m", "sh", "-c"]
READ_ONLY = [*INSIDE, 'mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && exec "$@"', "sh"]
FULL = [*INSIDE, 'mount -t tmpfs -o size=4k,nr_inodes=1 none /tmp && exec "$@"', "sh"]
# A file system with room for the directory alone.
NO_SOCKET = [*INSIDE, 'mount -t tmpfs -o nr_inodes=2 none /tmp && exec "$@"', "sh"]
# Set, as Ranks would do it; empty: as if it were not.
BY_DEFAULT = {"GLOO_BYPASS_MEMIF_DIRECTORY": "", "XDG_RUNTIME_DIR": "", "GLOO_BYPASS_STATS": "./stats-%r.json"}


def may_mount():
    return subprocess.run([*READ_ONLY, "true"], capture_output=True, timeout=60, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not may_mount(), reason="needs root, to mount file systems of its own")
# These hide all that lies in /tmp from the ranks.
IN_TMP = pytest.mark.skipif(__file__.startswith("/tmp/"), reason="this tree lies in /tmp, which the test replaces")


def reasons(ranks, rank):
    return [line for line in ranks.output(rank).splitlines() if "over the network: " in line]


@pytest.mark.parametrize(
    "prefix, cause",
    [
        (READ_ONLY, "Read-only file system"),
        pytest.param(FULL, "No space left on device", marks=IN_TMP),
        pytest.param(NO_SOCKET, "bind: No space left on device", marks=IN_TMP),
    ],
    ids=["read-only", "full", "no-socket"],
)
def test_Directory_OfNoRankCanBeUsed_AllSumOverTheNetworkAndSayWhyOnce(prefix, cause):
    with Ranks("add.py", 3, environment=BY_DEFAULT, prefixes=[prefix] * 3) as ranks:
        ranks.succeed()
        for rank in range(3):
            assert ranks.value(rank, "sum") == "6"
            said = reasons(ranks, rank)
            assert len(said) == 1 and f"memif directory '/tmp/gloo-bypass-{os.geteuid()}'" in said[0], said
            assert cause in said[0], said
            with open(os.path.join(ranks.folder.name, f"stats-{rank}.json")) as file:
                report = json.load(file)
            assert report["bytes_sent"] > 4000
            assert re.match(r"no shared memory \(memif .*, UDP socket ", report["port"]["description"]), report["port"]


def test_Directory_OfOneRankCannotBeUsed_ItsPeersSayItsReason():
    with Ranks("add.py", 3, environment=BY_DEFAULT, prefixes=[[], READ_ONLY, []]) as ranks:
        ranks.succeed()
        for rank in range(3):
            assert ranks.value(rank, "sum") == "6"
            said = reasons(ranks, rank)
            assert len(said) == 1 and "Read-only file system" in said[0], said
            assert (f"process {ranks.processes[1].pid} " in said[0]) == (rank != 1), said


@pytest.mark.parametrize(
    "environment",
    [{**BY_DEFAULT, "GLOO_BYPASS_LINK": "memif"}, {"GLOO_BYPASS_MEMIF_DIRECTORY": "/tmp/gloo-bypass-named"}],
    ids=["memif", "directory"],
)
def test_WhatWasAskedFor_CannotBeUsed_OneLineSaysWhy(environment):
    with Ranks("add.py", 1, environment=environment, prefixes=[READ_ONLY]) as ranks:
        assert ranks.wait() == [1]
        last = ranks.output(0).strip().splitlines()[-1]
        assert "DPDK transport: memif directory" in last and "Read-only file system" in last, last
