"""Runs scripts/release-root with a temporary cache folder and a double of mmdebstrap; each test has a copy of the
scripts, with package lists that it may change."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOUBLE = Path(__file__).with_name("mmdebstrap_double.py")
RUN_LIMIT_S = 60
sys.path.insert(0, str(ROOT / "scripts"))


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def wait_for(path, process):
    deadline = time.monotonic() + RUN_LIMIT_S
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


class ReleaseRoot:
    """Runs scripts/release-root; `environment` is its environment."""

    def __init__(self, folder):
        self.folder = folder
        self.tree = folder / "tree"
        for name in ("scripts", "tools"):
            shutil.copytree(ROOT / name, self.tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.releases = folder / "cache" / "gloo-bypass" / "releases"
        self.calls_file = folder / "calls"
        executable(folder / "bin" / "mmdebstrap", f'#!/bin/sh\nexec /usr/bin/python3 "{DOUBLE}" "$@"\n')
        self.environment = dict(
            os.environ,
            PATH=f"{folder / 'bin'}:{os.environ['PATH']}",
            XDG_CACHE_HOME=str(folder / "cache"),
            CCACHE_DIR=str(folder / "ccache"),
            DOUBLE_CALLS=str(self.calls_file),
        )

    def start(self, *words, script="release-root", cwd=None, **variables):
        return subprocess.Popen(
            [self.tree / "scripts" / script, *map(str, words)],
            cwd=cwd or self.tree,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.environment, **variables},
        )

    def __call__(self, *words, script="release-root", cwd=None, **variables):
        with self.start(*words, script=script, cwd=cwd, **variables) as process:
            try:
                out, err = process.communicate(timeout=RUN_LIMIT_S)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    @property
    def calls(self):
        """The command lines of the double, in order."""
        return (
            [json.loads(line) for line in self.calls_file.read_text().splitlines()] if self.calls_file.exists() else []
        )

    def left_over(self):
        """What an unfinished run would leave."""
        return sorted(path.name for path in self.releases.glob("*.new"))


@pytest.fixture(name="release_root")
def fixture_release_root(tmp_path, request):
    """Its parameter, if it has one, is a folder below the test's."""
    return ReleaseRoot(tmp_path / getattr(request, "param", ""))


@pytest.fixture(name="namespaces", scope="session")
def fixture_namespaces():
    from gloo_bypass_tools.release_root import failures, namespaces

    try:
        namespaces.check()
    except failures.RootError as error:
        pytest.skip(str(error))
