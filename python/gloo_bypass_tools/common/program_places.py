"""Where this project's programs and data lie: in a source tree and its build folder, or, installed, all in one folder
with this package."""

from pathlib import Path

# The folder that this package lies in: python/ of a source tree, or libexec/gloo-bypass/.
HERE = Path(__file__).resolve().parents[2]
INSTALLED = HERE.name != "python"
# Of the source tree; what only works in one needs it.
ROOT = HERE.parent


def program(in_build):
    """The one that is `in_build` of the build folder, as tools/fabric/fabric."""
    return HERE / Path(in_build).name if INSTALLED else ROOT / "build" / in_build


def script(name):
    return HERE / name if INSTALLED else ROOT / "scripts" / name


def data(in_tree):
    """A file that is `in_tree` of the source tree."""
    return HERE / Path(in_tree).name if INSTALLED else ROOT / in_tree


def results():
    """The folder for folders of results: the source tree's, or, installed, one in the current folder."""
    return (Path.cwd() if INSTALLED else ROOT) / "results"
