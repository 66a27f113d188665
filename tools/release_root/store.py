"""The folder of the roots, and who may touch one of them when.

RELEASES/NAME is a root that is complete; NAME.new is one in the making, or what an interruption left; NAME.lock is held
shared by those who run something in the root, and alone by the one who makes or removes it; NAME.log is what mmdebstrap
said last.
"""

import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from gloo_bypass_tools.release_root.failures import RootError

# Release and version of Debian. The packages of all have one name, so that one list serves (scripts/install-packages).
RELEASES = {"bookworm": "12", "trixie": "13", "forky": "testing"}
RECORD = Path("etc/gloo-bypass-release-root.json")
WAIT_LIMIT_S = 5400.0  # for the lock: longer than making a root, or a run of all tests in it, takes
ASK_EVERY_S = 0.2


def say(text):
    print(f"release-root: {text}", file=sys.stderr, flush=True)


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "gloo-bypass" / "releases"


class Store:
    def __init__(self, folder=None):
        self.folder = folder or cache_folder()

    def root(self, release):
        return self.folder / release

    def unfinished(self, release):
        return self.folder / f"{release}.new"

    def log(self, release):
        return self.folder / f"{release}.log"

    @property
    def mount_point(self):
        """Where a run puts its view of a root, in a mount namespace of its own: an empty folder for everybody else."""
        return self.folder / "mount"

    def prepare(self):
        try:
            self.mount_point.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RootError(
                f"cannot make {self.mount_point}: {error.strerror}: set XDG_CACHE_HOME to another folder"
            ) from error

    def record(self, release):
        """What is known of a complete root: "packages" (a digest), "made" (Unix time), "mirror"; None where there is no
        such root."""
        try:
            return json.loads((self.root(release) / RECORD).read_text())
        except (OSError, ValueError):
            return None

    @contextmanager
    def lock(self, release, alone):
        """Held while the block runs, and by processes that are given the descriptor it yields while they live. Says
        once that it waits; gives up after WAIT_LIMIT_S."""
        path = self.folder / f"{release}.lock"
        try:
            opened = open(path, "a", encoding="ascii")
        except OSError as error:
            raise RootError(f"cannot open {path}: {error.strerror}: set XDG_CACHE_HOME to another folder") from error
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        deadline = time.monotonic() + WAIT_LIMIT_S
        with opened:
            told = False
            while True:
                try:
                    fcntl.flock(opened, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise RootError(
                            f"another process has used {self.root(release)} for {WAIT_LIMIT_S / 60:.0f} minutes: end it"
                        ) from error
                    if not told:
                        told = True
                        use = "makes or uses" if alone else "makes"
                        say(f"waiting for another process that {use} the root of {release}")
                    time.sleep(ASK_EVERY_S)
            yield opened.fileno()
