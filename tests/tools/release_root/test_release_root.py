"""scripts/release-root: its refusals, when it makes a root, what an interruption leaves, and the environment of a
command in a root."""

import contextlib
import os
import shutil
import signal
import time

import pytest

from conftest import executable, wait_for

MISSING = 125
MARK = "etc/gloo-bypass-release-root.json"


@pytest.mark.parametrize(
    "words, text",
    [
        (["make", "warty"], "'warty' (choose from"),
        (["make"], "the following arguments are required: RELEASE"),
        (["run", "trixie"], "the following arguments are required: COMMAND"),
        (["run", "trixie", "--share", "/no/such", "--", "true"], "'/no/such' is no folder"),
        (["run", "trixie", "--share", "/", "--", "true"], "'/' cannot be shared"),
        (["run", "trixie", "--env", "A", "--", "true"], "'A' is not NAME=VALUE"),
        (["make", "trixie", "--mirror", "nearby"], "'nearby' is no address of a mirror"),
        (["sideways"], "invalid choice: 'sideways'"),
    ],
)
def test_CommandLine_Wrong_IsRefusedWithTheReason(release_root, words, text):
    done = release_root(*words)
    assert done.returncode == 2
    assert text in done.stderr.splitlines()[-1]
    assert not release_root.calls and not release_root.releases.exists()


def test_Make_NothingThere_UsesListsMirrorAndRelease(namespaces, release_root):
    done = release_root("make", "trixie", "--mirror", "http://mirror.test/debian")
    assert done.returncode == 0, done.stderr
    [call] = release_root.calls
    assert call[-3] == "trixie" and call[-1] == "http://mirror.test/debian"
    included = next(word for word in call if word.startswith("--include=")).partition("=")[2].split(",")
    listed = release_root("--list", "build", "run", script="install-packages").stdout.split()
    assert included == listed and "libtorch-dev" in listed
    assert (release_root.releases / "trixie" / MARK).exists() and not release_root.left_over()


def test_Make_RootIsThere_IsReused(namespaces, release_root):
    for _ in range(2):
        assert release_root("make", "trixie").returncode == 0
    assert len(release_root.calls) == 1
    assert release_root("make", "forky").returncode == 0
    assert [call[-3] for call in release_root.calls] == ["trixie", "forky"]


def test_Make_ListChanged_IsMadeAnew(namespaces, release_root):
    assert release_root("make", "trixie").returncode == 0
    (release_root.releases / "trixie" / "old").touch()
    script = release_root.tree / "scripts" / "install-packages"
    executable(script, script.read_text().replace("build_packages=(", "build_packages=(\n  one-more"))
    assert "made anew" in release_root("list").stdout
    assert release_root("make", "trixie").returncode == 0
    assert len(release_root.calls) == 2 and "one-more," in " ".join(release_root.calls[1])
    assert not (release_root.releases / "trixie" / "old").exists()
    assert "current" in release_root("list").stdout


def test_Make_NoMmdebstrap_NamesTheCommand(namespaces, release_root, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "env", "unshare", "true", "rm", "dirname", "cat", "newuidmap", "newgidmap"):
        (programs / name).symlink_to(shutil.which(name) or "/no/such")
    done = release_root("make", "trixie", PATH=str(programs))
    assert done.returncode == MISSING
    assert done.stderr.splitlines() == [
        "release-root: mmdebstrap is not installed: run scripts/install-packages releases"
    ]


@pytest.mark.parametrize(
    "said, text",
    [
        (
            "Err:1 http://mirror.test/debian trixie InRelease\n  Temporary failure resolving 'mirror.test'",
            "cannot be reached: check the network",
        ),
        ("E: Unable to locate package libgloo-dev", "has no such package: E: Unable to locate package libgloo-dev"),
        ("dpkg: error processing archive (--unpack): No space left on device", "no room is left"),
        (
            "E: The repository 'http://mirror.test/debian trixie Release' does not have a Release file.",
            "does not have all of trixie",
        ),
        ("E: Release file for http://mirror.test/InRelease is expired (invalid since 1d).", "out of date"),
        ("E: something else", "something else"),
    ],
)
def test_Make_MmdebstrapFails_IsOneLineAndNothingIsLeft(namespaces, release_root, said, text):
    done = release_root("make", "trixie", DOUBLE_SAYS=said)
    assert done.returncode == MISSING
    begun, failed = done.stderr.splitlines()
    assert "making the root of trixie" in begun and text in failed
    assert not (release_root.releases / "trixie").exists() and not release_root.left_over()
    assert said in (release_root.releases / "trixie.log").read_text()


def test_Make_FailsWithAnOlderRootThere_KeepsTheOlderOne(namespaces, release_root):
    assert release_root("make", "trixie").returncode == 0
    script = release_root.tree / "scripts" / "install-packages"
    executable(script, script.read_text().replace("build_packages=(", "build_packages=(\n  one-more"))
    assert release_root("make", "trixie", DOUBLE_SAYS="E: something").returncode == MISSING
    assert (release_root.releases / "trixie" / MARK).exists() and not release_root.left_over()


def processes_with(text):
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
                if entry.isdigit() and text in file.read():
                    found.append(entry)
        except OSError:
            pass
    return found


def all_gone(text):
    deadline = time.monotonic() + 30
    while processes_with(text) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_with(text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_Make_Interrupted_LeavesNothingAndIsRedone(namespaces, release_root, tmp_path, number):
    with release_root.start("make", "trixie", DOUBLE_HANGS=str(tmp_path / "hangs")) as process:
        wait_for(tmp_path / "hangs", process)
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        assert f"ended by {number.name}" in process.stderr.read()
    assert not release_root.left_over() and not (release_root.releases / "trixie").exists()
    assert all_gone(str(release_root.releases / "trixie.new"))
    assert release_root("make", "trixie").returncode == 0


def test_Make_Killed_LeftOverIsRemovedByTheNext(namespaces, release_root, tmp_path):
    with release_root.start("make", "trixie", DOUBLE_HANGS=str(tmp_path / "hangs")) as process:
        wait_for(tmp_path / "hangs", process)
        process.kill()
        process.wait()
        assert release_root.left_over() == ["trixie.new"]
        with release_root.start("make", "trixie") as second:
            # mmdebstrap outlives it, and keeps the lock: no other process makes a root where it still writes.
            line = second.stderr.readline()
            assert "waiting for another process" in line
            for entry in processes_with(str(release_root.releases / "trixie.new")):
                with contextlib.suppress(ProcessLookupError):  # unshare's child ends with it
                    os.kill(int(entry), signal.SIGKILL)
            assert second.wait(timeout=60) == 0
    assert not (release_root.releases / "trixie" / "half").exists() and not release_root.left_over()


def test_Make_TwoAtOnce_OneMakes(namespaces, release_root):
    both = [release_root.start("make", "trixie") for _ in range(2)]
    for process in both:
        with process:
            assert process.wait(timeout=60) == 0
    assert len(release_root.calls) == 1


def test_Run_Command_SeesTheRootAndLeavesItAsItWas(namespaces, release_root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    script = (
        'cat /etc/debian_version; echo "$GIVEN|$GLOO_BYPASS_SIM_RUNS|$STRANGER"; echo here > made; '
        'echo there > "$1/made"; '
        'echo lost > /etc/lost; echo lost > /tmp/lost; cat /proc/sys/kernel/hostname; ls "$HOME"; exit 7'
    )
    done = release_root(
        "run",
        "trixie",
        "--share",
        other,
        "--env",
        "GIVEN=a 'b' $c",
        "--",
        "bash",
        "-c",
        script,
        "bash",
        other,
        GLOO_BYPASS_SIM_RUNS="3",
        STRANGER="outside",
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[:2] == ["the double's", "a 'b' $c|3|"]
    assert (release_root.tree / "made").read_text() == "here\n" and (other / "made").read_text() == "there\n"
    root = release_root.releases / "trixie"
    assert (
        not (root / "etc/lost").exists()
        and not (root / "tmp/lost").exists()
        and not (root / str(tmp_path)[1:]).exists()
    )
    assert list((release_root.releases / "mount").iterdir()) == []
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        assert str(release_root.releases) not in mounts.read()


def test_Run_ProcessLeftBehind_EndsWithTheCommand(namespaces, release_root):
    done = release_root("run", "trixie", "--", "bash", "-c", "sleep 987654 > /dev/null 2>&1 < /dev/null & echo started")
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    assert all_gone("sleep\x00987654")


def test_Run_Interrupted_EndsTheCommand(namespaces, release_root):
    with release_root.start(
        "run", "trixie", "--", "bash", "-c", "echo $$ > started; while :; do sleep 876543; done"
    ) as process:
        wait_for(release_root.tree / "started", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert all_gone("sleep\x00876543")


def test_Run_NoRootAndOnlyExisting_SaysHowToMakeIt(namespaces, release_root):
    done = release_root("run", "trixie", "--only-existing", "--", "true")
    assert done.returncode == MISSING
    assert done.stderr.splitlines() == [
        "release-root: there is no root of trixie: run scripts/release-root make trixie"
    ]
    assert not release_root.calls


def test_Run_CommandKilledBySignal_StatusSaysSo(namespaces, release_root):
    assert release_root("run", "trixie", "--", "bash", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV


def test_Remove_Root_IsGoneAndListSaysSo(namespaces, release_root):
    assert release_root("make", "trixie").returncode == 0
    assert "trixie: " + str(release_root.releases / "trixie") in release_root("list").stdout
    assert release_root("remove", "trixie").returncode == 0
    assert "trixie: not made yet" in release_root("list").stdout
    assert not (release_root.releases / "trixie").exists() and not release_root.left_over()
