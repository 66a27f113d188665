"""Where this project's programs and data lie: in a source tree and its build folder, or, installed, all in one folder with the scripts."""

from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED = HERE.name != "scripts"


def program(in_build):
    """The one that is `in_build` of the build folder, as tools/fabric/fabric."""
    return HERE / Path(in_build).name if INSTALLED else HERE.parent / "build" / in_build


def script(name):
    return HERE / name


def data(in_tree):
    """A file that is `in_tree` of the source tree."""
    return HERE / Path(in_tree).name if INSTALLED else HERE.parent / in_tree


def results():
    """The folder for folders of results: the source tree's, or, installed, one in the current folder."""
    return (Path.cwd() if INSTALLED else HERE.parent) / "results"
