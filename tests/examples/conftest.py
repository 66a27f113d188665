"""Examples run as the tests of the package run their programs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "plugin" / "python"))
from package_runs import PACKAGE_PATH, ROOT, environment_for, installed_torch, run  # noqa: E402, F401  for the tests
