"""Limits on one rank's processor time: where a control group is possible, what replaces it elsewhere, and that the
limit holds."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gloo_bypass_tools.study import processor_share, rank_probe

PROBE = ROOT / "tools" / "study" / "rank_probe.py"
BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_places_bothVersions_AreOwnGroupsThenTops():
    mounted = processor_share.mounts(
        "cgroup /g/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup2 /g/unified cgroup2 rw 0 0\ncgroup /g/memory "
        "cgroup rw,memory 0 0\n/dev/a / ext4 rw 0 0\n"
    )
    found = processor_share.places(mounted, "4:memory:/x\n2:cpu,cpuacct:/user\n0::/slice\n")
    assert found == [
        (Path("/g/unified/slice"), "cgroup2"),
        (Path("/g/unified"), "cgroup2"),
        (Path("/g/cpu/user"), "cgroup"),
        (Path("/g/cpu"), "cgroup"),
    ]


def test_places_noControlGroups_AreNone():
    assert processor_share.places([], "") == []


@pytest.mark.parametrize(
    "kind, files, said",
    [("cgroup2", ("cpu.max",), "5000 20000"), ("cgroup", ("cpu.cfs_period_us", "cpu.cfs_quota_us"), "5000")],
)
def test_made_groupWithQuotas_HasTheShare(tmp_path, monkeypatch, kind, files, said):
    made = Path.mkdir

    def mkdir_with_files(self, *arguments, **options):
        made(self, *arguments, **options)
        for name in files:
            (self / name).write_text("")

    monkeypatch.setattr(Path, "mkdir", mkdir_with_files)
    group = processor_share.made_in(tmp_path, kind, 0.25, "one")
    assert group == tmp_path / "one" and (group / files[-1]).read_text() == said


def test_made_groupWithoutQuotas_IsTakenAway(tmp_path):
    assert processor_share.made_in(tmp_path, "cgroup2", 0.25, "one") is None and list(tmp_path.iterdir()) == []
    assert processor_share.made_in(tmp_path / "none", "cgroup2", 0.25, "one") is None


def test_limited_noShare_IsNoLimit():
    with processor_share.limited(None, 1) as limit:
        assert limit == processor_share.Limit("")


def test_limited_noControlGroups_StopsAndContinues(monkeypatch, tmp_path):
    monkeypatch.setattr(processor_share, "MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text("")
    with processor_share.limited(0.5, 1) as limit:
        assert limit == processor_share.Limit(processor_share.STOPPING, ("--limit-rank", 1, "--limit-share", 0.5))


# Ends well when it has been continued five times.
CONTINUED = """import signal, sys, time
times = 0
def count(*_):
    global times
    times += 1
signal.signal(signal.SIGCONT, count)
while times < 5 and time.process_time() < 20: pass
sys.exit(times < 5)"""


def ran(tmp_path, limit, program, rank=1):
    """Seconds that it ran under the probe."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, PROBE, "--output", tmp_path, *map(str, limit.flags), "--", sys.executable, "-c", program],
        env=os.environ | {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "none"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / f"probe-{rank}.json").read_text())["status"] == 0
    return time.monotonic() - began


def test_limited_rank_HasItsShareAndLeavesNothing(tmp_path):
    """By whatever this machine supports: the kernel keeps to a group's share, however idle or busy the machine."""
    with processor_share.limited(0.2, 1) as limit:
        group = Path(limit.flags[3]) if limit.flags[2] == "--limit-group" else None
        took = ran(tmp_path, limit, BUSY if group else CONTINUED)
    assert group is None or (took > 1.0 and not group.exists())


def test_limited_byStopping_RankIsStoppedAgainAndAgain(tmp_path):
    ran(tmp_path, processor_share.Limit("x", ("--limit-rank", 1, "--limit-share", 0.2)), CONTINUED)


def test_holdDown_share_IsOfEachPeriod(monkeypatch):
    told, process = [], SimpleNamespace(returncode=None)
    process.send_signal = told.append

    def sleep(seconds):
        told.append(seconds)
        process.returncode = 0 if len(told) == 8 else None

    monkeypatch.setattr(rank_probe, "time", SimpleNamespace(sleep=sleep))
    rank_probe.hold_down(process, 0.2)
    assert told == [signal.SIGSTOP, pytest.approx(0.04), signal.SIGCONT, pytest.approx(0.01)] * 2


def test_limited_groupThatIsNotThere_FailsAndSaysSo(tmp_path):
    done = subprocess.run(
        [sys.executable, PROBE, "--output", tmp_path, "--limit-rank", "0", "--limit-group", "/nowhere", "--", "true"],
        env=os.environ | {"RANK": "0", "GLOO_SOCKET_IFNAME": "none"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode != 0 and "/nowhere" in done.stderr
