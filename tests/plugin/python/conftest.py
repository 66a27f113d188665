"""Shared by the tests of the package: package_runs.py, and a process's answers."""

import json
import pathlib

from package_runs import ENTRY_POINT, PACKAGE_PATH, ROOT, environment_for, installed_torch, metadata_in, run  # noqa: F401  for the tests

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


def answers_in(environments, folder, **more):
    """Answers of available() in one process under each environment in turn, as json.loads returns them; and what the
    process left behind."""
    result = run([PROGRAMS / "answers.py", json.dumps(environments)], environment_for(folder, **more))
    return json.loads(result.stdout.splitlines()[-1])
