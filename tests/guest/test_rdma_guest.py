"""scripts/rdma-guest: its arguments, its messages when something is missing, and what a run leaves behind."""

import lzma
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "rdma-guest"
sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.common import processes  # noqa: E402
from gloo_bypass_tools.rdma_guest import machine as guest_machine  # noqa: E402
from gloo_bypass_tools.rdma_guest.boot_files import plain_module  # noqa: E402
from gloo_bypass_tools.rdma_guest.failures import GuestError  # noqa: E402
from gloo_bypass_tools.rdma_guest.kernel import kernels_in, unpack_kernel  # noqa: E402
from gloo_bypass_tools.rdma_guest.streams import EndedStream, Lines  # noqa: E402

ANSWERS_WITHIN = 60  # seconds; what does not boot takes a fraction of one
RUNS_WITHIN = 240  # seconds; boot included, on a busy machine


def guest(*words, timeout=ANSWERS_WITHIN, **options):
    return subprocess.run(
        [sys.executable, SCRIPT, *words],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=timeout,
        **options,
    )


@pytest.fixture(scope="module")
def machine():
    checked = guest("check")
    if checked.returncode != 0:
        pytest.skip(checked.stdout.splitlines()[0])


@pytest.mark.parametrize(
    "words, text",
    [
        (["run"], "run needs a command"),
        (["run", "--"], "run needs a command"),
        (["run", "--cpus", "many", "--", "true"], "'many': it must be a whole number from 1 to 64"),
        (["run", "--timeout", "0", "--", "true"], "'0': it must be a whole number"),
        (["run", "--memory", "1", "--", "true"], "'1': it must be a whole number from 1024"),
        (["run", "--rxe", "-1", "--", "true"], "'-1': it must be a whole number from 0"),
        (["run", "--env", "NOTHING", "--", "true"], "'NOTHING' is not NAME=VALUE"),
        (["run", "--env", "a b=c", "--", "true"], "'a b=c' is not NAME=VALUE"),
        (["run", "--writable", "/no/such", "--", "true"], "'/no/such' is no folder"),
        (["run", "--writable", "/", "--", "true"], "'/' cannot be shared for writing"),
        (["run", "--pci-driver", "none", "--", "true"], "invalid choice: 'none'"),
        (["sideways"], "invalid choice: 'sideways'"),
    ],
)
def test_CommandLine_Wrong_IsRefusedWithTheReason(words, text):
    done = guest(*words)
    assert done.returncode == 2
    assert text in done.stderr.splitlines()[-1]
    assert done.stdout == ""


def test_Run_SignalRightAfterTheStartOfQemu_EndsIt(tmp_path, monkeypatch):
    """A regression: until the guest was recorded, no one ended its QEMU."""
    started = []

    class PromptlySignalled(processes.Child):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            started.append(self)
            os.kill(os.getpid(), signal.SIGTERM)

    def end(number, _):
        sys.exit(128 + number)

    monkeypatch.setattr(guest_machine, "qemu_command", lambda *_: ["sleep", "600"])
    monkeypatch.setattr(guest_machine, "Child", PromptlySignalled)
    monkeypatch.setattr(guest_machine.tempfile, "tempdir", str(tmp_path))
    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit) as ended:
            guest_machine.run_in_guest(guest_machine.Run(["true"], tmp_path), None, None)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert list(tmp_path.iterdir()) == []


def test_Run_FolderForItsFilesHasABlank_IsOneLine(tmp_path, monkeypatch):
    monkeypatch.setattr(guest_machine.tempfile, "tempdir", f"{tmp_path}/a b")
    with pytest.raises(guest_machine.GuestError, match="has a blank .*: set TMPDIR to another folder"):
        guest_machine.run_in_guest(guest_machine.Run(["true"], tmp_path), None, None)


def test_Run_LogCannotBeWritten_IsRefusedBefore():
    done = guest("run", "--dmesg", "/tmp", "--", "true")
    assert done.returncode == 2 and "'/tmp' cannot be written" in done.stderr


def test_Help_Run_SaysWhatIsShared():
    done = guest("run", "--help")
    assert done.returncode == 0
    assert "--writable" in done.stdout and "Exit status" in done.stdout


def only(folder, *programs):
    """A PATH with only these programs."""
    folder.mkdir()
    for program in programs:
        (folder / program).symlink_to(shutil.which(program) or "/bin/true")
    return dict(os.environ, PATH=str(folder))


def test_Run_WithoutQemu_NamesThePackage(tmp_path):
    done = guest("run", "--", "true", env=only(tmp_path / "bin", "cpio"))
    assert done.returncode == 125
    assert done.stderr.splitlines() == [
        "rdma-guest: qemu-system-x86_64 is not installed: run scripts/install-packages (Debian package qemu-system-x86)"
    ]


def test_Check_WithoutQemuAndCpio_NamesBoth(tmp_path):
    done = guest("check", env=only(tmp_path / "bin"))
    assert done.returncode == 1
    assert "qemu-system-x86" in done.stdout and "Debian package cpio" in done.stdout


@pytest.mark.skipif(bool(kernels_in(Path("/"))), reason="a Debian kernel is installed here")
@pytest.mark.skipif(not os.access("/sbin/modprobe", os.X_OK), reason="kmod is not installed, which is said first")
def test_Run_WithoutKernel_NamesTheCommand(tmp_path):
    programs = only(tmp_path / "bin", "cpio", "qemu-system-x86_64")
    done = guest("run", "--", "true", env=dict(programs, XDG_CACHE_HOME=str(tmp_path)))
    assert done.returncode == 125
    assert "run scripts/rdma-guest fetch-kernel" in done.stderr


RXE = "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko"


def test_Kernels_SeveralAndUnfit_NewestFitOneIsLast(tmp_path):
    for version, module in (
        ("6.1.0-9-amd64", RXE),
        ("6.1.0-56-amd64", RXE),
        ("6.1.0-70-amd64", None),
        ("6.12.9-amd64", f"{RXE}.xz"),
    ):
        (tmp_path / "boot").mkdir(exist_ok=True)
        (tmp_path / "boot" / f"vmlinuz-{version}").touch()
        modules = tmp_path / "lib" / "modules" / version
        modules.mkdir(parents=True)
        (modules / "modules.dep").write_text(f"kernel/a.ko:\n{module}: kernel/a.ko\n" if module else "kernel/a.ko:\n")
        if module:
            (modules / module).parent.mkdir(parents=True)
            (modules / module).touch()
    versions = [kernel.version for kernel in kernels_in(tmp_path)]
    assert versions == ["6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.9-amd64"]


@pytest.mark.skipif(not os.access("/sbin/depmod", os.X_OK), reason="kmod is not installed")
@pytest.mark.parametrize("top", ["lib", "usr/lib"])
def test_KernelPackage_OfAnyRelease_IsUnpackedToLib(tmp_path, top):
    """Since 6.6 Debian's modules lie in /usr/lib."""
    version, content = "6.12.9-amd64", tmp_path / "content"
    for name in ("DEBIAN/control", f"boot/vmlinuz-{version}", f"{top}/modules/{version}/{RXE}.xz", "usr/share/doc/x"):
        (content / name).parent.mkdir(parents=True, exist_ok=True)
        (content / name).touch()
    control = ["Package: linux-image-x", f"Version: {version}", "Architecture: amd64", "Maintainer: n <n@example.org>"]
    (content / "DEBIAN/control").write_text("\n".join([*control, "Description: none", ""]))
    subprocess.run(["dpkg-deb", "--build", content, tmp_path / "x.deb"], check=True, capture_output=True, timeout=60)
    (tmp_path / "new").mkdir()
    unpack_kernel(tmp_path / "x.deb", tmp_path / "new" / "root")
    assert (tmp_path / "new/root/lib/modules" / version / f"{RXE}.xz").exists()
    assert not (tmp_path / "new/root/usr/share").exists()


def test_ModulesThatArePacked_AreUnpackedForTheGuestsStart(tmp_path):
    packed = tmp_path / "9p.ko.xz"
    packed.write_bytes(lzma.compress(b"\x7fELF and more"))
    assert plain_module(packed) == b"\x7fELF and more"
    packed.rename(unknown := tmp_path / "9p.ko.zst")
    with pytest.raises(GuestError, match="9p.ko.zst is packed in a way"):
        plain_module(unknown)


@pytest.mark.parametrize(
    "pieces, passed, ended",
    [
        ([b"out", b"putTOKEN"], b"output", True),
        ([b"output", b"TO", b"KE", b"N"], b"output", True),
        ([b"TOTOKEN", b"after"], b"TO", True),
        ([b"a TOKE", b"N"], b"a ", True),
        ([b"a TOK", b"Yo"], b"a TOKYo", False),
        ([b"a TOKE"], b"a TOKE", False),
        ([b"TOKEN"], b"", True),
    ],
)
def test_EndedStream_TokenInPieces_IsCutOffAndNothingElse(pieces, passed, ended):
    got = []
    stream = EndedStream(b"TOKEN", got.append)
    for piece in pieces:
        stream.feed(piece)
    stream.flush()
    assert b"".join(got) == passed
    assert stream.ended == ended


def test_EndedStream_NoTokenInSight_IsPassedOnAtOnce():
    got = []
    EndedStream(b"TOKEN", got.append).feed(b"line\n")
    assert got == [b"line\n"]


def test_Lines_InPieces_AreWhole():
    got = []
    lines = Lines(got.append)
    for piece in (b"sta", b"rt\nend", b" 3\n"):
        lines.feed(piece)
    assert got == ["start", "end 3"]


def test_Run_Command_HasItsFolderEnvironmentStreamsAndStatus(machine, tmp_path):
    work, other = tmp_path / "a folder, with 'signs'", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    log = tmp_path / "dmesg"
    command = (
        r'echo "$GIVEN|$INHERITED|$1"; echo problem >&2; echo result > made; echo more > "$2/made"; '
        r"echo lost > /etc/lost; "
        r"cat /sys/class/infiniband/rxe0/ports/1/state; ulimit -l; tc -V; seq 100000; exit 7"
    )
    done = guest(
        "run",
        "--env",
        "GIVEN=a 'b' \"c\" $d",
        "--writable",
        str(other),
        "--dmesg",
        str(log),
        "--",
        "bash",
        "-c",
        command,
        "bash",
        "word with 'quotes'",
        str(other),
        cwd=work,
        env=dict(os.environ, INHERITED="yes"),
        timeout=RUNS_WITHIN,
    )
    lines = done.stdout.splitlines()
    assert done.stderr.splitlines() == ["problem"]
    assert lines[0] == "a 'b' \"c\" $d|yes|word with 'quotes'"
    assert "ACTIVE" in lines[1] and lines[2] == "unlimited"
    assert lines[-100000:] == [str(number) for number in range(1, 100001)]
    assert done.returncode == 7
    assert (work / "made").read_text() == "result\n" and (other / "made").read_text() == "more\n"
    assert not Path("/etc/lost").exists()
    assert "rxe0" in log.read_text()


def test_Run_LongerThanAllowed_IsEnded(machine, tmp_path):
    done = guest(
        "run",
        "--rxe",
        "0",
        "--timeout",
        "1",
        "--",
        "sleep",
        "1000",
        cwd=tmp_path,
        timeout=RUNS_WITHIN,
        env=dict(os.environ, TMPDIR=str(tmp_path)),
    )
    assert done.returncode == 124
    assert done.stderr.splitlines() == ["rdma-guest: time limit: the command ran longer than 1 s and was ended"]
    assert list(tmp_path.iterdir()) == []


def test_Run_WhileItRuns_OutputIsPassedOn(machine, tmp_path):
    run = subprocess.Popen(
        [
            sys.executable,
            SCRIPT,
            "run",
            "--rxe",
            "0",
            "--timeout",
            str(RUNS_WITHIN),
            "--",
            "bash",
            "-c",
            "echo begun; sleep 1000",
        ],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert select.select([run.stdout], [], [], RUNS_WITHIN)[0], "no output"
        assert run.stdout.readline() == b"begun\n"
        assert run.poll() is None
    finally:
        run.terminate()
        run.communicate(timeout=ANSWERS_WITHIN)


# Longer than what the command left behind may hold its streams open.
PAUSE_S = 8


def test_Run_ReaderThatPauses_HasAllOutput(machine, tmp_path):
    """A process that the command left behind still writes: more than fits into the pipes on the way."""
    size = 8_000_000
    command = f"head -c {size} /dev/zero & touch ended"
    words = ["run", "--rxe", "0", "--timeout", str(RUNS_WITHIN), "--", "bash", "-c", command]
    run = subprocess.Popen(
        [sys.executable, SCRIPT, *words], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        end = time.monotonic() + RUNS_WITHIN
        while not (tmp_path / "ended").exists():
            assert run.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        time.sleep(PAUSE_S)
        output, _ = run.communicate(timeout=ANSWERS_WITHIN)
    finally:
        run.kill()
    assert (run.returncode, len(output)) == (0, size)


def qemu_of(run):
    """Its process id; None while there is none."""
    for child in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split():
        try:
            if "qemu" in Path(f"/proc/{child}/comm").read_text():
                return child
        except OSError:
            pass  # another program, which has ended meanwhile
    return None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_Run_EndedBySignal_LeavesNothing(machine, tmp_path, number):
    run = subprocess.Popen(
        [sys.executable, SCRIPT, "run", "--", "true"],
        cwd=tmp_path,
        env=dict(os.environ, TMPDIR=str(tmp_path)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + ANSWERS_WITHIN
    while not (qemu := qemu_of(run)):
        assert run.poll() is None and time.monotonic() < end, run.communicate()
        time.sleep(0.02)
    run.send_signal(number)
    run.communicate(timeout=ANSWERS_WITHIN)
    assert run.returncode == 128 + number
    assert not Path(f"/proc/{qemu}").exists()
    assert list(tmp_path.iterdir()) == []
