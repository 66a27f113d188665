"""scripts/test: its refusals, its requests to scripts/release-root, and the figures of --coverage."""

import json
import os
import re
import signal

import pytest

from conftest import ROOT, executable, wait_for

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
        (["--coverage", "--sanitize", "thread"], "--coverage goes neither with --release, --sanitize nor --wheel"),
        (["--coverage", "--release", "trixie"], "--coverage goes neither with --release, --sanitize nor --wheel"),
        (["--coverage", "--wheel", "2.13.0"], "--coverage goes neither with --release, --sanitize nor --wheel"),
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


@pytest.fixture(name="build_command")
def fixture_build_command(test_command):
    """scripts/test whose build does nothing; `meson(script)` is what its `meson test` does."""
    executable(test_command.tree / "scripts" / "build", ECHO)
    test_command.meson = lambda script: executable(test_command.folder / "bin" / "meson", script)
    return test_command


def test_Folder_InUse_IsRefusedAndKeepsItsReports(build_command):
    begun, go = build_command.folder / "begun", build_command.folder / "go"
    build_command.meson(
        f"""#!/bin/bash
[[ ! -e "{begun}" ]] || exit 0
echo "<testsuite><testcase name='one'/></testsuite>" > "$TEST_REPORTS/one.xml"
touch "{begun}"
until [[ -e "{go}" ]]; do sleep 0.05; done
"""
    )
    with build_command.start("--no-install", script="test") as first:
        wait_for(begun, first)
        try:
            second = build_command("--no-install", script="test")
        finally:
            go.touch()
        assert second.returncode == 2
        assert second.stderr == "test: another scripts/test runs in build: wait for it, or give --dir\n"
        assert first.communicate(timeout=30)[0] == "1 passed, 0 failed, 0 skipped\n" and first.returncode == 0


def test_Folder_ProcessOfATestLivesOn_IsFreeAfterTheRun(build_command):
    left = build_command.folder / "left"
    build_command.meson(
        f"""#!/bin/bash
echo "<testsuite><testcase name='one'/></testsuite>" > "$TEST_REPORTS/one.xml"
sleep 600 < /dev/null > /dev/null 2>&1 &
echo $! >> "{left}"
"""
    )
    try:
        runs = [build_command("--no-install", *words, script="test") for words in ([], [], ["--suite", "unit"], [])]
        assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * len(runs)
    finally:
        for process in left.read_text().split():
            os.kill(int(process), signal.SIGKILL)


# What Meson does with its option --wrapper.
WRAPPING = """#!/usr/bin/python3
import os, shlex, subprocess, sys
wrapper = shlex.split(sys.argv[sys.argv.index("--wrapper") + 1])
test = ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", os.environ["DOUBLE_CALLS"] + ".py"]
print(os.environ["TSAN_OPTIONS"], file=sys.stderr)
sys.exit(subprocess.call([*wrapper, *test]))
"""


@pytest.mark.parametrize("release_root", ["a b"], indirect=True)
def test_Checkout_SpaceInItsPath_TestsRunAndAreCounted(build_command):
    build_command.meson(WRAPPING)
    (build_command.folder / "calls.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    done = build_command("--no-install", "--sanitize", "thread", script="test", TSAN_OPTIONS="")
    assert done.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped", done.stderr
    # In a sanitizer's own quotes: a blank ends a value.
    suppressions = build_command.tree / "tests/support/thread_sanitizer.suppressions"
    assert f":suppressions='{suppressions}'\n" in done.stderr


def test_Record_ReportsRemovedMeanwhile_TestStaysPassed(release_root):
    reports = release_root.folder / "reports"
    reports.mkdir()
    script = 'rm "$TEST_REPORTS"/*; echo "<testsuite><testcase/></testsuite>" > "${GTEST_OUTPUT#xml:}"'
    done = release_root("bash", "-c", script, script="record-test", TEST_REPORTS=str(reports))
    assert (done.returncode, done.stderr) == (0, "") and len(list(reports.iterdir())) == 1


def test_Record_ReportWithoutACase_IsAFailure(release_root):
    reports = release_root.folder / "reports"
    reports.mkdir()
    script = 'echo "<testsuites/>" > "${GTEST_OUTPUT#xml:}"'
    release_root("bash", "-c", script, script="record-test", TEST_REPORTS=str(reports))
    [report] = reports.iterdir()
    assert 'failure message="exit status 0, no case ran"' in report.read_text()


def test_Help_Suites_AreThoseOfTheScriptAndOfTheDocument(test_command):
    text = (test_command.tree / "scripts" / "test").read_text()
    known = re.search(r"^readonly kSuites=\((.*)\)$", text, re.MULTILINE).group(1).split()
    told = re.search(r"--suite +only this suite \((.*?)\)", test_command("--help", script="test").stdout, re.DOTALL)
    section = re.search(r"^## Suites$(.*?)^## ", (ROOT / "tests/README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert told.group(1).replace(",", " ").split() == known
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", section.group(1), re.MULTILINE)) == sorted(known)


FILES = [
    {"filename": "transport/base/printable.cc", "line_total": 30, "line_covered": 30},
    {"filename": "transport/base/doorbell.h", "line_total": 10, "line_covered": 5},
    {"filename": "tools/fabric/core/quantity.cc", "line_total": 60, "line_covered": 15},
    {"filename": "trainer/empty.h", "line_total": 0, "line_covered": 0},
]


@pytest.fixture(name="coverage")
def fixture_coverage(test_command):
    """scripts/test --coverage whose build and tests do nothing, and whose gcovr writes FILES."""
    for name in ("build", "count-tests"):
        executable(test_command.tree / "scripts" / name, ECHO)
    executable(test_command.folder / "bin" / "meson", ECHO)
    (test_command.folder / "summary.json").write_text(json.dumps({"files": FILES}))
    executable(
        test_command.folder / "bin" / "gcovr",
        f'{ECHO}while [[ $1 != --json-summary ]]; do shift; done\ncp "{test_command.folder}/summary.json" "$2"\n',
    )
    return test_command


def test_Coverage_Files_AreAddedUpToRooms(coverage):
    done = coverage("--coverage", script="test")
    assert done.returncode == 0, done.stderr
    rooms = (coverage.tree / "build-coverage/coverage/rooms.txt").read_text()
    assert [line.split() for line in rooms.splitlines()[1:]] == [
        ["tools/fabric", "60", "25.0", "%"],
        ["trainer", "0", "-"],
        ["transport/base", "40", "87.5", "%"],
        ["all", "100", "50.0", "%"],
    ]
    assert rooms in done.stdout
    assert "-Db_coverage=true" in coverage.asked("build")
    assert coverage.asked("install-packages") == ["coverage"]


def test_Coverage_CountsOfAnEarlierRun_AreRemoved(coverage):
    stale = coverage.tree / "build-x-coverage" / "transport" / "part.gcda"
    stale.parent.mkdir(parents=True)
    stale.touch()
    done = coverage("--coverage", "--no-install", "--dir", "build-x", "--suite", "unit", script="test")
    assert done.returncode == 0, done.stderr
    assert not stale.exists()
    assert coverage.asked("gcovr")[-1] == "build-x-coverage" and coverage.asked("install-packages") is None
    words = coverage.asked("meson")
    assert [words[i + 1] for i, word in enumerate(words) if word == "--suite"] == ["unit"]


def test_Coverage_NoGcovr_NamesTheCommand(coverage, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    done = coverage("--coverage", "--no-install", script="test", PATH=str(programs))
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["test: gcovr is not installed: run scripts/install-packages coverage"]
    assert coverage.asked("build") is None
