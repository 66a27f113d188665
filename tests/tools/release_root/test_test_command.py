"""scripts/test: its refusals, and its requests to scripts/release-root."""

import pytest

from conftest import executable

ECHO = '#!/bin/bash\nprintf "%s\\n" "$@" > "$DOUBLE_CALLS.${0##*/}"\n'


@pytest.fixture(name="test_command")
def fixture_test_command(release_root):
    """scripts/test with a release-root and an install-packages that only record their arguments."""
    for name in ("release-root", "install-packages"):
        executable(release_root.tree / "scripts" / name, ECHO)
    release_root.asked = lambda name: (
        (release_root.folder / f"calls.{name}").read_text().splitlines()
        if (release_root.folder / f"calls.{name}").exists()
        else None
    )
    return release_root


@pytest.mark.parametrize(
    "words, text",
    [
        (["--release", "warty"], "--release 'warty': it must be bookworm, trixie or forky"),
        (["--release"], "--release needs a name"),
        (["--release", "trixie", "--suite", "guest"], "leave out --release"),
        (["--release", "trixie", "--sanitize", "all"], "--sanitize 'all': it must be address or thread"),
        (["--dir"], "--dir needs a folder"),
        (["--sanitize", "thread", "--suite", "sim"], "--suite sim has one thread"),
    ],
)
def test_Arguments_Wrong_AreRefusedBeforeAnythingIsMade(test_command, words, text):
    done = test_command(*words, script="test")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert text in line
    assert test_command.asked("release-root") is None and test_command.asked("install-packages") is None


@pytest.mark.parametrize(
    "words, root_options, inner",
    [
        ([], [], ["--dir", "build-trixie"]),
        (["--no-install"], ["--only-existing"], ["--dir", "build-trixie"]),
        (
            ["--suite", "unit", "--suite", "plugin", "--werror"],
            [],
            ["--suite", "unit", "--suite", "plugin", "--werror", "--dir", "build-trixie"],
        ),
        (["--sanitize", "thread", "--dir", "build-x"], [], ["--sanitize", "thread", "--dir", "build-x"]),
    ],
)
def test_Release_Options_ReachTheRunInTheRoot(test_command, words, root_options, inner):
    done = test_command("--release", "trixie", *words, script="test")
    assert done.returncode == 0, done.stderr
    asked = test_command.asked("release-root")
    command = asked.index("--")
    assert asked[:command] == ["run", "trixie", *root_options]
    assert asked[command + 1] == "scripts/test"
    assert [word for word in asked[command + 2 :] if word != "--no-install"] == inner and "--no-install" in asked[
        command + 2 :
    ]
    assert test_command.asked("install-packages") == (None if "--no-install" in words else ["releases"])


def test_Release_FolderElsewhere_IsShared(test_command, tmp_path):
    done = test_command("--release", "forky", "--no-install", "--dir", tmp_path / "elsewhere", script="test")
    assert done.returncode == 0, done.stderr
    assert test_command.asked("release-root")[:5] == [
        "run",
        "forky",
        "--only-existing",
        "--share",
        str(tmp_path / "elsewhere"),
    ]
    assert (tmp_path / "elsewhere").is_dir()


@pytest.mark.parametrize("folder", ["build-x", "{tmp_path}/elsewhere"])
def test_Folder_Given_HoldsTheReports(test_command, tmp_path, folder):
    folder = folder.format(tmp_path=tmp_path)
    for name in ("build", "count-tests"):
        executable(test_command.tree / "scripts" / name, ECHO)
    executable(test_command.folder / "bin" / "meson", '#!/bin/sh\ntouch "$TEST_REPORTS/here.xml"\n')
    done = test_command("--no-install", "--dir", folder, script="test")
    assert done.returncode == 0, done.stderr
    assert (test_command.tree / folder / "test-reports" / "here.xml").exists()
    assert test_command.asked("count-tests") == [str(test_command.tree / folder / "test-reports")]
