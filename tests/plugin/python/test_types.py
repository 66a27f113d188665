"""The package's own types, by mypy as pyproject.toml configures it."""

import importlib.util
import pathlib
import subprocess

import pytest
from conftest import PACKAGE_PATH
from ranks import HANG_SECONDS, PYTHON

ROOT = pathlib.Path(__file__).resolve().parents[3]
HAS_MYPY = subprocess.run([PYTHON, "-c", "import mypy"], capture_output=True, timeout=HANG_SECONDS).returncode == 0
USER = """
import gloo_bypass

answer: gloo_bypass.Availability = gloo_bypass.available()["DPDK"]
reason: str = answer.reason if not answer else answer.device
sent: int = gloo_bypass.stats()["DPDK"]["bytes_sent"]
peer: str = gloo_bypass.stats()["RDMA"]["open_channels"][0]["peer"]
path: str = gloo_bypass.library
"""
WRONG = """
import gloo_bypass

sent: str = gloo_bypass.stats()["DPDK"]["bytes_sent"]
gloo_bypass.stats()["DPDK"]["bytes_sunk"]
gloo_bypass.statistics()
"""
needs_mypy = pytest.mark.skipif(not HAS_MYPY, reason="mypy not found")


def mypy(folder, *arguments):
    result = subprocess.run(
        [
            PYTHON,
            "-m",
            "mypy",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(folder / "cache"),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        cwd=folder,
        env={"MYPYPATH": PACKAGE_PATH, "PATH": "/usr/bin:/bin"},
    )
    return result.returncode, result.stdout + result.stderr


@needs_mypy
def test_Types_OfThePackageAndOfItsUser_AreRight(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    status, output = mypy(tmp_path, PACKAGE_PATH + "/gloo_bypass", PACKAGE_PATH + "/gloo_bypass_autoload.py", "user.py")
    assert status == 0, output


@needs_mypy
def test_Types_OfAWrongUser_AreRefused(tmp_path):
    (tmp_path / "user.py").write_text(WRONG)
    status, output = mypy(tmp_path, "user.py")
    assert status == 1 and output.count("user.py:") >= 3, output


def test_Types_Marker_IsInThePackage():
    assert (pathlib.Path(PACKAGE_PATH) / "gloo_bypass" / "py.typed").exists()
    assert importlib.util.spec_from_file_location("x", PACKAGE_PATH + "/gloo_bypass/__init__.py") is not None
