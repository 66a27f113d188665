"""Runs Debian's Python with the package from the build folder, for tests/examples/ too. Every wait has a bound."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "plugin" / "torch"))  # ranks.py
from ranks import HANG_SECONDS, PYTHON, clean_environment  # noqa: E402

PACKAGE_PATH = os.environ.get("PLUGIN_PYTHON_PATH", "")  # empty: installed where PYTHON finds it

ENTRY_POINT = "[torch.backends]\ngloo_bypass = gloo_bypass_autoload:autoload\n"


def metadata_in(folder):
    """What makes PyTorch call ours: where `folder` is in PYTHONPATH, beside that of the package."""
    info = folder / "gloo_bypass-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gloo-bypass\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    return folder


def environment_for(folder, **more):
    """The variables of a user who has set none of ours; memif meets in `folder`."""
    return {
        **clean_environment(),
        "PYTHONPATH": PACKAGE_PATH,
        "GLOO_BYPASS_MEMIF_DIRECTORY": str(folder / "m"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **{name: str(value) for name, value in more.items()},
    }


def run(arguments, environment, python=PYTHON, status=0, cwd=None):
    result = subprocess.run(
        [str(python), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
    )
    if status is not None:
        assert result.returncode == status, f"exit status {result.returncode}\n{result.stdout}{result.stderr}"
    return result


@pytest.fixture(scope="session")
def installed_torch():
    """Version of PyTorch as two numbers."""
    result = run(
        ["-c", "import torch; print(torch.__version__)"], {**clean_environment(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    )
    return tuple(int(word) for word in result.stdout.split(".")[:2])
