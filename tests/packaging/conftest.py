"""An installation of the build folder into a temporary DESTDIR, made once for all tests."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["INSTALL_BUILD"])
FEATURES = set(os.environ["INSTALL_FEATURES"].split())
VERSION = os.environ["INSTALL_VERSION"]


def run(*command, check=True, **keywords):
    """Text of stdout and stderr; a failure shows it."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        **keywords,
    )
    if check:
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


RECORDS = ("install-log.txt", "installed-last.txt", "installed-earlier.txt")


@contextlib.contextmanager
def records_aside():
    """The build folder may have a real installation: keeps its records safe from these tests, and restores them."""
    logs = BUILD / "meson-logs"
    aside = logs / "aside-for-tests"

    def restore():
        for name in RECORDS:
            (logs / name).unlink(missing_ok=True)
            if (aside / name).exists():
                (aside / name).rename(logs / name)
        aside.rmdir()

    if aside.exists():  # left by tests that were killed
        restore()
    aside.mkdir()
    for name in RECORDS:
        if (logs / name).exists():
            (logs / name).rename(aside / name)
    try:
        yield BUILD
    finally:
        restore()


def install(build, destdir, *arguments):
    # As little of the caller's environment as possible: DESTDIR and MESON_* would change the installation.
    environment = {
        name: value for name, value in os.environ.items() if name != "DESTDIR" and not name.startswith("MESON")
    }
    run("meson", "install", "-C", build, "--no-rebuild", "--destdir", destdir, *arguments, env=environment)


class Tree:
    """An installation: `folder("libdir")` is where that option's files are."""

    def __init__(self, root):
        self.root = root
        options = {
            option["name"]: option["value"]
            for option in json.loads(run("meson", "introspect", BUILD, "--buildoptions"))
        }
        self.options = options
        prefix = pathlib.Path(options["prefix"])
        self.folders = {
            name: prefix / options[name]
            for name in ("bindir", "libdir", "libexecdir", "includedir", "datadir", "mandir")
        }

    def folder(self, option):
        return self.root / self.folders[option].relative_to("/")

    def environment(self):
        """For compilers and programs that use it as if it were the system's."""
        return {
            **os.environ,
            "PKG_CONFIG_PATH": str(self.folder("libdir") / "pkgconfig"),
            "PKG_CONFIG_SYSROOT_DIR": str(self.root),
            "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1",
            "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1",
            "LD_LIBRARY_PATH": str(self.folder("libdir")),
        }


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("destdir")
    with records_aside() as build:
        install(build, root)
    return Tree(root)


@pytest.fixture
def build():
    with records_aside() as folder:
        yield folder


@pytest.fixture
def needs_device(tree):
    if "device" not in FEATURES:
        pytest.skip("libgloo_bypass_device is not in this build: neither DPDK nor RDMA is")


@pytest.fixture
def runtime_folder():
    """A short path, since memif's sockets lie in it and their paths have a limit."""
    with tempfile.TemporaryDirectory(prefix="install-", dir="/tmp") as folder:
        yield folder


def compilers():
    return [name for name in ("g++", "clang++") if shutil.which(name)]
