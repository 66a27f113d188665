"""Eleven rooms at the top, and tests at the places of their subjects."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = {
    "collectives",
    "containers",
    "docs",
    "examples",
    "packaging",
    "plugin",
    "scripts",
    "tests",
    "tools",
    "trainer",
    "transport",
}
# Suites across rooms, and code that several suites share.
SUITES = {"bench", "conformance", "fuzz", "guest", "sim", "soak", "structure", "support"}
# Files that a test brings with it.
BESIDE = {"corpus", "fixtures", "programs"}


def folders(root):
    """Those with tracked files."""
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True).stdout
    paths = [pathlib.PurePosixPath(name) for name in listed.splitlines()]
    return {parent for path in paths for parent in path.parents if parent.parts}


def room_faults(found):
    tops = {folder.parts[0] for folder in found if not folder.parts[0].startswith(".")}
    return [f"{name}/ is no room of this house" for name in sorted(tops - ROOMS)]


def mirror_faults(found):
    faults = []
    for folder in sorted(found):
        below = folder.parts[1:]
        if folder.parts[0] != "tests" or not below or below[0] in SUITES or BESIDE & set(below):
            continue
        if pathlib.PurePosixPath(*below) not in found:
            faults.append(f"{folder} tests {'/'.join(below)}, which is not there")
    return faults


@pytest.fixture(name="tracked", scope="module")
def fixture_tracked():
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout: which files are tracked is unknown")
    return folders(ROOT)


def test_Rooms_AtTheTop_AreEleven(tracked):
    assert room_faults(tracked) == []
    assert len(ROOMS) == 11


def test_Tests_Folders_MirrorTheSources(tracked):
    assert mirror_faults(tracked) == []


def test_Checker_FaultPlanted_IsFound():
    sound = {pathlib.PurePosixPath(name) for name in ("tools/study", "tests/tools/study/fixtures", "tests/sim", ".ci")}
    assert room_faults(sound) == [] and mirror_faults(sound) == []
    assert room_faults({pathlib.PurePosixPath("helpers/x")}) != []
    assert mirror_faults({pathlib.PurePosixPath("tests/tools/study")}) != []
