"""The programs under test, and running them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
FABRIC = os.environ["FABRIC_PROGRAM"]
PERF = os.environ["FABRIC_PERF"]
FABRIC_RUN = ROOT / "scripts" / "fabric-run"
LIMIT_S = 110


def enclosure_words():
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc"]
    return words if os.geteuid() == 0 else [*words, "--user", "--map-root-user"]


def why_no_namespaces():
    probe = subprocess.run(
        [*enclosure_words(), "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return "" if probe.returncode == 0 else "no network namespaces with a veth pair here: " + probe.stderr.strip()


needs_namespaces = pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces() or "-")


def run(words, **more):
    return subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        **more,
    )


def fabric(*words, **more):
    return run([FABRIC, *words], **more)


def fabric_run(output, *words, **more):
    return run([FABRIC_RUN, "--fabric", FABRIC, "--output", output, "--timeout", 90, *words], **more)


def counters(output):
    return json.loads((output / "fabric.json").read_text())


def one_line(answer):
    """The only line on stderr."""
    lines = answer.stderr.strip().splitlines()
    assert len(lines) == 1, answer.stderr
    return lines[0]
