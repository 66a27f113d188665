"""Where this project's programs and data lie: in a source tree and its build folder, or, installed, all in one folder
with this package."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]  # tools/ of a source tree, or libexec/gloo-bypass/gloo_bypass_tools/
INSTALLED = PACKAGE.name == "gloo_bypass_tools"
ROOT = PACKAGE.parent  # of the source tree; what only works in one needs it
# The commands lie here, and Python finds this package from here.
HERE = ROOT if INSTALLED else ROOT / "scripts"


def program(in_build):
    """The one that is `in_build` of the build folder, as tools/fabric/fabric."""
    return HERE / Path(in_build).name if INSTALLED else ROOT / "build" / in_build


def missing(build, names):
    """Why a command of a source tree cannot run without these programs of its build folder; '' where all are there."""
    for name in names:
        if not os.access(path := build / name, os.X_OK):
            return f"{path} is missing: run scripts/build first, or say --build DIR"
    return ""


def script(name):
    return HERE / name


def data(in_tree):
    """A file that is `in_tree` of the source tree."""
    return HERE / Path(in_tree).name if INSTALLED else ROOT / in_tree


def results():
    """The folder for folders of results: the source tree's, or, installed, one in the current folder."""
    return (Path.cwd() if INSTALLED else ROOT) / "results"
