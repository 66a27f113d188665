"""Runs Debian's Python with the package from the build folder. Every wait has a bound."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "plugin"))  # ranks.py
from ranks import HANG_SECONDS, PYTHON, clean_environment  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
PACKAGE_PATH = os.environ.get("PLUGIN_PYTHON_PATH", "")  # empty: installed where PYTHON finds it


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


def answers_in(environments, folder, **more):
    """available() of one process, with each of the environments in turn, as its json.loads gives them; and what it left
    behind."""
    result = run([PROGRAMS / "answers.py", json.dumps(environments)], environment_for(folder, **more))
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def installed_torch():
    """Version of PyTorch as two numbers."""
    result = run(
        ["-c", "import torch; print(torch.__version__)"], {**clean_environment(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    )
    return tuple(int(word) for word in result.stdout.split(".")[:2])
