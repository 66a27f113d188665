"""scripts/build, install-packages, fuzz, softroce and fabric-accuracy, with doubles for what they start."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from conftest import RUN_LIMIT_S, executable, wait_for

PROJECT = """project('small')
custom_target('made', output: 'made', command: ['touch', '@OUTPUT@'], build_by_default: true)
"""


@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_Build_MesonFailsWhenItRunsAgain_SaysWhy(release_root):
    description = release_root.tree / "meson.build"
    description.write_text(PROJECT)
    first = release_root(script="build")
    assert first.returncode == 0 and (release_root.tree / "build" / "made").exists(), first.stderr
    description.write_text(PROJECT + "error('the reason')\n")
    again = release_root(script="build")
    assert again.returncode == 1 and "the reason" in again.stderr


@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_Build_FolderOfAnotherPlace_IsRefused(release_root):
    (release_root.tree / "meson.build").write_text(PROJECT)
    assert release_root("--dir", "there", script="build").returncode == 0
    (release_root.tree / "there").rename(release_root.tree / "elsewhere")
    moved = release_root("--dir", "elsewhere", script="build")
    assert moved.returncode == 1 and "was configured for the build folder" in moved.stderr
    assert moved.stderr.count("\n") == 1 and "--dir" in moved.stderr


@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_Build_Folder_IsRelativeToTheCallersPlace(release_root, tmp_path):
    (release_root.tree / "meson.build").write_text(PROJECT)
    here = tmp_path / "here"
    here.mkdir()
    done = release_root("--dir", "made", script="build", cwd=here)
    assert done.returncode == 0 and (here / "made" / "made").exists(), done.stderr


SUITES = """project('small')
foreach name, suite : {'one': ['odd'], 'two': ['even', 'left-out'], 'three': ['odd'], 'four': ['even']}
  made = custom_target(name, output: name, command: ['touch', '@OUTPUT@'])
  test(name, find_program('true'), depends: made, suite: suite)
endforeach
test('needs nothing', find_program('true'), suite: 'bare')
"""


@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
@pytest.mark.parametrize(
    "words, made",
    [
        (["--suite", "odd"], {"one", "three"}),
        (["--suite", "even", "--no-suite", "left-out"], {"four"}),
        (["--suite", "odd", "--suite", "even"], {"one", "two", "three", "four"}),
        (["--suite", "bare"], set()),
    ],
)
def test_Build_Suites_MakesWhatTheirTestsNeed(release_root, words, made):
    (release_root.tree / "meson.build").write_text(SUITES)
    done = release_root(*words, script="build")
    assert done.returncode == 0, done.stderr
    assert {name for name in ("one", "two", "three", "four") if (release_root.tree / "build" / name).exists()} == made


@pytest.mark.parametrize(
    "words", [["--no-suite", "odd"], ["--suite", "odd", "--target", "one"], ["--tests", "--suite", "odd"]]
)
def test_Build_SuitesThatDoNotGoTogether_AreRefused(release_root, words):
    done = release_root(*words, script="build")
    assert done.returncode == 1 and done.stderr.startswith("build: --no-suite goes with --suite")


def test_InstallPackages_OptionAfterAList_IsHeeded(release_root):
    before, after = (
        release_root(*words, script="install-packages") for words in (("--list", "build"), ("build", "--list"))
    )
    assert after.returncode == 0 and after.stdout == before.stdout and "meson\n" in after.stdout


@pytest.mark.parametrize("words", [["--help"], ["--dir", "elsewhere", "-h"], ["--tests", "--help"]])
def test_Build_Help_MakesNothing(release_root, words):
    before = set(release_root.tree.iterdir())
    done = release_root(*words, script="build")
    assert done.returncode == 0 and "--configure-only" in done.stdout
    assert set(release_root.tree.iterdir()) == before


@pytest.mark.parametrize(
    "kernel, said", [("None", "missing: the guest's kernel"), ("Kernel(Path('/'), '6')", "nothing is missing")]
)
def test_InstallPackages_CheckOfTheGuest_LooksForItsKernelAndDownloadsNothing(release_root, kernel, said):
    executable(release_root.folder / "bin" / "dpkg-query", "#!/bin/sh\necho installed\n")
    module = release_root.tree / "tools" / "rdma_guest" / "kernel.py"
    download = "def fetch_kernel():\n    raise GuestError('downloads')\n"
    module.write_text(f"{module.read_text()}\n\ndef find_kernel():\n    return {kernel}\n\n\n{download}")
    done = release_root("--check", "guest", script="install-packages")
    assert (done.returncode, done.stdout, done.stderr) == (int(kernel == "None"), f"install-packages: {said}\n", "")


# libFuzzer takes SIGINT for the end of its work, with status 72, unless it is told to leave the signal alone.
FUZZER = """#!/bin/bash
[[ " $* " == *" -handle_int=0 "* ]] || trap 'exit 72' INT
echo "${0##*/}" >> "$DOUBLE_CALLS.fuzzers"
sleep 60
"""


def interrupted(release_root, begun, *words, script, **variables):
    """Exit status, stdout and stderr of a script that gets Ctrl-C, with all that it has started, once `begun` is
    there."""
    with subprocess.Popen(
        [release_root.tree / "scripts" / script, *words],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**release_root.environment, **variables},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            wait_for(begun, process)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=RUN_LIMIT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


@pytest.mark.parametrize("words", [["10"], ["10", "--merge"], ["--hours", "1", "--merge"]])
def test_Fuzz_Interrupted_EndsWithoutAFailingInput(release_root, words):
    build, calls = release_root.folder / "fuzz", release_root.folder / "calls.fuzzers"
    executable(build / "fuzzer", FUZZER)
    (build / "build.ninja").touch()
    (build / "tests" / "fuzz").mkdir(parents=True)
    for tool in ("clang++", "llvm-cov", "llvm-profdata"):
        executable(release_root.folder / "bin" / tool, "#!/bin/sh\n")
    executable(
        release_root.folder / "bin" / "ninja", '#!/bin/sh\ncd "$2"\nshift 2\nfor target; do cp fuzzer "$target"; done\n'
    )
    status, _, err = interrupted(release_root, calls, *words, script="fuzz", FUZZ_BUILD_DIR=str(build))
    assert (status, err) == (130, "")
    assert len(re.findall("^fuzz_", calls.read_text(), re.MULTILINE)) <= (os.cpu_count() if "--hours" in words else 1)


def test_FabricAccuracy_Interrupted_IsOneLine(release_root):
    executable(release_root.tree / "scripts" / "fabric-run", '#!/bin/sh\ntouch "$DOUBLE_CALLS"\nsleep 60\n')
    said = interrupted(release_root, release_root.calls_file, script="fabric-accuracy")
    assert said == (130, "", "fabric-accuracy: ended by SIGINT\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="softroce up needs root")
@pytest.mark.parametrize("program", ["ip", "rdma"])
def test_Softroce_OneOfItsProgramsIsMissing_NamesThePackage(release_root, program):
    executable(release_root.folder / "only" / program, "#!/bin/sh\n")
    done = release_root("up", "--name", "none0", script="softroce", PATH=str(release_root.folder / "only"))
    assert done.returncode == 1 and "ip and rdma are not installed" in done.stderr
