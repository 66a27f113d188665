"""The wheel for PyTorch from pip, and the Python of an environment that has both (scripts/test --wheel)."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "plugin" / "torch"))  # ranks.py
sys.path.append(str(ROOT / "tests" / "packaging"))  # hardening.py
from ranks import HANG_SECONDS, PYTHON, clean_environment  # noqa: E402


@pytest.fixture(scope="session")
def wheel():
    return pathlib.Path(os.environ["WHEEL_FILE"])


@pytest.fixture(scope="session")
def package(wheel, tmp_path_factory):
    """The wheel's files, unpacked."""
    folder = tmp_path_factory.mktemp("package")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def run(program, *arguments, status=0, **variables):
    """A Python program in the environment that has the wheel."""
    result = subprocess.run(
        [PYTHON, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        stdin=subprocess.DEVNULL,
        env={**clean_environment(), **variables},
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result
