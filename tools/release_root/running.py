"""Runs a command in a root, which it may change at will and leaves as it was."""

import os
import re
from pathlib import Path

from gloo_bypass_tools.release_root import namespaces
from gloo_bypass_tools.release_root.failures import RootError

INSIDE = Path(__file__).with_name("inside.sh")
# Of the caller's environment only what tests and compilers read: the rest belongs to the machine outside.
PASSED = re.compile(
    r"(GLOO_|CCACHE_|GTEST_|PYTEST_|OMP_|MASTER_|[ATU]B?SAN_OPTIONS$|"
    r"(CI|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|TERM|NO_COLOR|MESON_TESTTHREADS)$)"
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def compiler_cache():
    """ccache's folder here, made if need be: one for all releases, as it tells compilers apart."""
    home = Path.home()
    cache = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    usual = home / ".ccache" if (home / ".ccache").is_dir() else Path(cache) / "ccache"
    folder = Path(os.environ.get("CCACHE_DIR") or usual).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RootError(f"cannot make {folder}: {error.strerror}: set CCACHE_DIR to another folder") from error
    return folder


def environment(given):
    kept = {name: value for name, value in os.environ.items() if PASSED.match(name)}
    return {**kept, "HOME": "/root", "PATH": PATH, "LANG": "C.UTF-8", "CCACHE_DIR": str(compiler_cache()), **given}


def run(store, release, command, folders=(), working=None, given=None):
    """The command's exit status. `folders` are shared with this machine, for writing; `working` is the folder it starts
    in."""
    root = store.root(release)
    if any(sign in str(root) for sign in ":,\\"):  # options of overlay's
        raise RootError(
            f"a root cannot lie in {root}: the path has a ':', ',' or '\\'; set XDG_CACHE_HOME to another folder"
        )
    shared = [*folders, compiler_cache()]
    with store.lock(release, alone=False) as lock:
        if not store.record(release):
            raise RootError(f"there is no root of {release}: run scripts/release-root make {release}")
        return namespaces.run(
            ["/bin/bash", INSIDE, root, store.mount_point, *shared, "--", working or "/", *command],
            env=environment(given or {}),
            pass_fds=[lock],
        )
