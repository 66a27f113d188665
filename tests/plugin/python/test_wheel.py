"""`pip install .` in a fresh virtual environment: the wheel's contents, that it works without PYTHONPATH, and that pip
can remove it."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from conftest import ROOT, environment_for
from ranks import PACKAGE_MODULES, PYTHON, clean_environment

sys.path.append(str(ROOT / "tests" / "packaging"))
from hardening import binaries_in, weaknesses  # noqa: E402

# Compiling everything without a compiler cache, on two busy cores.
BUILD_SECONDS = 900
WANTED = PACKAGE_MODULES | {"gloo_bypass/libgloo_bypass.so", "gloo_bypass/libgloo_bypass_plugin.so"}


def missing():
    for module, package in (
        ("mesonpy", "python3-mesonpy"),
        ("venv", "python3-venv"),
        ("ensurepip", "python3-venv"),
        ("pip", "python3-pip"),
    ):
        if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, timeout=60).returncode != 0:
            return f"{package} not found"
    return ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing")


def checked(*command, seconds=120, **more):
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, **more
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    return result.stdout


def files_under(folder):
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy, since Debian 12's meson-python writes into the folder that it builds."""
    folder = tmp_path_factory.mktemp("wheel") / "sources"
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
            os.chmod(folder / name, os.stat(ROOT / name).st_mode)
    if not folder.exists():
        pytest.skip("these sources are no git checkout")
    return folder


@pytest.fixture(scope="module")
def wheel(sources):
    environment = {**clean_environment(), "PATH": "/usr/lib/ccache:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # Without DPDK, RDMA and other options: half the time to compile, and no other difference to the wheel's making.
    checked(
        PYTHON,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-index",
        "--no-deps",
        "--wheel-dir",
        sources.parent,
        "--config-settings=setup-args=-Dauto_features=disabled",
        sources,
        seconds=BUILD_SECONDS,
        env=environment,
    )
    wheels = list(sources.parent.glob("*.whl"))
    assert len(wheels) == 1
    return wheels[0]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """(python, site-packages, files before the installation) of a virtual environment that has the wheel."""
    folder = tmp_path_factory.mktemp("venv")
    checked(PYTHON, "-m", "venv", "--system-site-packages", folder)
    python = folder / "bin" / "python3"
    before = files_under(folder)
    checked(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
    return python, folder, before


def test_Wheel_Content_IsThePackageAndNothingElse(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == WANTED
    assert (
        wheel.name.startswith("gloo_bypass-") and sysconfig.get_platform().replace("-", "_").split("_")[0] in wheel.name
    )


def test_Wheel_EntryPoint_IsPyTorchsForBackends(wheel):
    archive = zipfile.ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert archive.read(name).decode().split() == [
        "[torch.backends]",
        "gloo_bypass",
        "=",
        "gloo_bypass_autoload:autoload",
    ]


def test_Wheel_Libraries_AreHardenedAndNeedNothingOfTheBuildFolder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    libraries = list(binaries_in(tmp_path))
    assert {library.name for library in libraries} >= {"libgloo_bypass.so", "libgloo_bypass_plugin.so"}
    for library in libraries:
        assert weaknesses(library) == [], library
        dynamic = checked("readelf", "-d", library)
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic


def test_Wheel_Installed_WorksWithoutPythonPath(installed, tmp_path):
    python, folder, _ = installed
    environment = environment_for(tmp_path)
    del environment["PYTHONPATH"]
    program = (
        "import gloo_bypass as g; a = g.available(); "
        "print(g.library, g.__version__, a['TCP'].available, 'not in this build' in a['DPDK'].reason, g.stats())"
    )
    path, version, tcp, no_dpdk, stats = checked(python, "-c", program, env=environment, cwd=tmp_path).split()
    assert pathlib.Path(path).is_relative_to(folder) and path.endswith("gloo_bypass/libgloo_bypass.so")
    assert tcp == no_dpdk == "True" and stats == "{}"
    assert f"version: '{version}'" in (ROOT / "meson.build").read_text()


def test_Wheel_Uninstalled_LeavesNothing(installed):
    python, folder, before = installed
    checked(python, "-m", "pip", "uninstall", "--yes", "gloo-bypass")
    assert files_under(folder) == before
