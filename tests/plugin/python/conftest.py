"""Shared by the tests of the package: package_runs.py, and a process's answers."""

import json
import pathlib

import pytest
from package_runs import PACKAGE_PATH, ROOT, environment_for, run  # noqa: F401  for the tests
from ranks import clean_environment

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def answers_in(environments, folder, **more):
    """Answers of available() in one process under each environment in turn, as json.loads returns them; and what the
    process left behind."""
    result = run([PROGRAMS / "answers.py", json.dumps(environments)], environment_for(folder, **more))
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def installed_torch():
    """Version of PyTorch as two numbers."""
    result = run(
        ["-c", "import torch; print(torch.__version__)"], {**clean_environment(), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    )
    return tuple(int(word) for word in result.stdout.split(".")[:2])
