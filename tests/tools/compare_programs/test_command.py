"""scripts/compare-programs as a user runs it: with Debian's PyTorch and the plug-in of the build folder, or with
PyTorch from pip and the wheel."""

import errno
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gloo_bypass_tools.common import interpreter
from gloo_bypass_tools.common.failures import Interrupted, kept_exception, why_ended
from gloo_bypass_tools.compare_programs import command
from gloo_bypass_tools.compare_programs.measurement import Measurement, TurnError
from gloo_bypass_tools.report import programs, stored_programs

LIMIT_S = 240
BUILD = os.environ.get("PLUGIN_BUILD", "")
PYTHON = os.environ.get("PLUGIN_PYTHON", "/usr/bin/python3")  # the Python of a wheel's tests
PLANTED = Path(__file__).with_name("programs") / "planted_python.py"
TRANSPORTS = ("TCP", "UDP") if os.environ.get("PLUGIN_NO_DPDK") else ("TCP", "DPDK", "UDP")
needs_plugin = pytest.mark.skipif(
    not BUILD and "PLUGIN_PYTHON" not in os.environ, reason="the plug-in is not in this build"
)


def words_of(folder, *arguments):
    return [
        str(word)
        for word in (
            ROOT / "scripts" / "compare-programs",
            "--effort",
            "tiny",
            "--rounds",
            1,
            "--build",
            BUILD,
            "--python",
            PYTHON,
            "--output",
            folder / "out",
            "--json",
            folder / "run.json",
            *arguments,
        )
    ]


def compare(folder, *arguments, **variables):
    return subprocess.run(
        words_of(folder, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | variables,
    )


def processes_that_name(text):
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{each}/cmdline", "rb") as file:
                if text.encode() in file.read():
                    found.append(each)
        except OSError:
            continue
    return found


def planted_python(folder):
    """A value for --python; the shell hides the planted file from -c and -m."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {PYTHON} {PLANTED} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--programs", "games"], "'games' is none of decoding, all_reduce, training"),
        (["--transports", "TCP,PIGEON"], "'PIGEON' is none of TCP, DPDK"),
        (["--transports", "TCP,TCP"], "names one twice"),
        (["--transports", "TCP,MPICH", "--programs", "decoding"], "MPICH: they run the program all_reduce alone"),
        (["--ranks", "1"], "from 2 to 64"),
        (["--rounds", "0"], "from 1 to 1000"),
        (["--effort", "much"], "invalid choice: 'much'"),
        (["--threads", "0"], "from 1 to 1024"),
        (["--json", "/proc/none/x.json"], "'/proc/none' cannot be made a folder"),
        (["--json", "/tmp"], "'/tmp' cannot be written"),
        (["--table", "run.json", "--json", "x.json"], "--table measures nothing: leave one out"),
    ],
)
def test_Command_BadInput_IsRefused(arguments, said, capsys):
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)
    assert refused.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize("python, said", [("/nosuch/python", "No such file"), ("/bin/false", "/bin/false: status 1")])
def test_Command_PythonThatIsNone_IsRefusedInOneLine(tmp_path, python, said):
    answer = compare(tmp_path, "--python", python)
    assert answer.returncode == 2 and answer.stderr.count("\n") == 1 and said in answer.stderr
    assert not (tmp_path / "out").exists()


def test_Command_PythonWithoutOurPackage_SaysWhereItComesFrom(tmp_path):
    answer = compare(tmp_path, "--build", tmp_path / "none", "--python", "/usr/bin/python3")
    assert answer.returncode == 2 and "No module named 'gloo_bypass'" in answer.stderr
    assert "scripts/build-wheel" in answer.stderr and answer.stderr.count("\n") == 1


def test_Command_VirtualEnvironment_KeepsItsOwnName(tmp_path):
    (tmp_path / "python").symlink_to("/usr/bin/python3")
    assert command.parse(["--python", f"{tmp_path}/python"]).python == f"{tmp_path}/python"


def test_Command_JsonInAFolderThatIsNotThereYet_MakesIt(tmp_path):
    options = command.parse(["--json", f"{tmp_path}/docs/runs/x.json"])
    assert options.json == tmp_path / "docs" / "runs" / "x.json" and options.json.parent.is_dir()


def test_Command_Table_PrintsStoredRuns(write_run, capsys):
    assert command.main(["--table", str(write_run()), str(write_run(name="b.json", cores=16))]) == 0
    text = capsys.readouterr().out
    assert "2 cores of a processor" in text and "16 cores of a processor" in text


def test_Command_Page_IsWrittenBesideTheTables(write_run, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert command.main(["--table", str(write_run()), "--page", str(page)]) == 0
    assert "| tensor-parallel decoding" in capsys.readouterr().out
    assert "tensor-parallel decoding" in page.read_text()


def test_Command_TableOfWhatIsNoRun_IsOneLine(tmp_path, capsys):
    (tmp_path / "x.json").write_text("[]")
    assert command.main(["--table", str(tmp_path / "x.json")]) == 2
    assert "expected an object" in capsys.readouterr().err


def test_Environment_OfTheUser_DoesNotChangeWhatIsMeasured(monkeypatch):
    for name in ("GLOO_BYPASS_LINK", "LD_PRELOAD", "TORCH_DISTRIBUTED_USE_TORCHCOMMS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    kept = interpreter.environment_with(["/ours"])
    assert kept["PYTHONPATH"] == "/ours:/mine"
    assert not {"GLOO_BYPASS_LINK", "LD_PRELOAD", "TORCH_DISTRIBUTED_USE_TORCHCOMMS", "OMP_NUM_THREADS"} & set(kept)


def test_Programs_WithoutWhatTheyNeed_AreLeftOutWithTheCommand():
    left_out, options = (
        [],
        SimpleNamespace(programs=("training", "decoding", "all_reduce"), effort="full", ranks=3, python="/venv/python"),
    )
    wanted = list(command.wanted_programs(options, SimpleNamespace(has=(), gpus=()), left_out))
    assert [one.name for one in wanted] == ["all_reduce"]
    assert left_out[0] == {
        "what": "training",
        "why": "transformers is missing: /venv/python -m pip install transformers",
    }
    assert "16 heads" in left_out[1]["why"]


def wanted_on(gpus, asked=None):
    left_out = []
    options = SimpleNamespace(programs=asked, effort="full", ranks=2, python="python3")
    found = SimpleNamespace(has=("transformers",), gpus=gpus)
    return [one.name for one in command.wanted_programs(options, found, left_out)], left_out


def test_Programs_OfCudaTensors_RunWhereThereIsAGpu():
    host = ["decoding", "all_reduce", "training"]
    assert wanted_on(()) == (host, [])
    assert wanted_on(("a GPU",)) == ([*host, "cuda_all_reduce", "cuda_training"], [])
    assert wanted_on((), ["cuda_training"]) == ([], [{"what": "cuda_training", "why": "python3 finds no GPU"}])


def measurement_of(tmp_path, turn, rounds=2):
    options = SimpleNamespace(transports=("TCP", "DPDK"), rounds=rounds, ranks=2, effort="tiny")
    measured = Measurement(None, options, tmp_path, tmp_path)
    measured.turn = turn
    return measured


@pytest.mark.parametrize(
    "error, why",
    [
        (Interrupted(signal.SIGTERM), "interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "logs"), "logs: No space left on device"),
    ],
)
def test_Measure_EndedInItsFirstRound_SaysWhatIsLeftOut(tmp_path, error, why):
    def turn(program, transport, number):
        if transport == "DPDK":
            raise error
        return {programs.Key(program.name, "token"): [1.0, 1.0]}

    measured = measurement_of(tmp_path, turn)
    wanted = [programs.BY_NAME[name] for name in ("decoding", "training")]
    ended = kept_exception(lambda: measured.measure(wanted, lambda text: None))
    assert ended is error
    measured.leave_out_the_rest(wanted, why_ended(ended))
    assert [(row["program"], row["transport"]) for row in measured.rows()] == [("decoding", "TCP")]
    assert [(one.program, one.transport, one.why) for one in measured.missing] == [
        ("decoding", "DPDK", why),
        ("training", "TCP", why),
        ("training", "DPDK", why),
    ]


def test_Measure_EachRound_GoesOverProgramsAndTransportsInTurn(tmp_path):
    asked = []

    def turn(program, transport, number):
        asked.append((number, program.name, transport))
        if (program.name, transport) == ("decoding", "DPDK"):
            raise TurnError("lost")
        us = 10.0 * number if transport == "TCP" else 2.0
        return {programs.Key(program.name, "token"): [us, us]}

    measured = measurement_of(tmp_path, turn)
    rates = []
    measured.measure(
        [programs.BY_NAME["decoding"], programs.BY_NAME["all_reduce"]], lambda text: None, lambda: rates.append(1)
    )
    assert asked == [
        (1, "decoding", "TCP"),
        (1, "decoding", "DPDK"),
        (1, "all_reduce", "TCP"),
        (1, "all_reduce", "DPDK"),
        (2, "decoding", "TCP"),
        (2, "all_reduce", "DPDK"),
        (2, "all_reduce", "TCP"),
    ]
    assert len(rates) == 2
    assert [one.in_words() for one in measured.missing] == ["decoding over DPDK, round 1: lost"]
    assert [(row["program"], row["transport"], row["median_us"], row["rounds_us"]) for row in measured.rows()] == [
        ("decoding", "TCP", 15.0, [10.0, 20.0]),
        ("all_reduce", "TCP", 15.0, [10.0, 20.0]),
        ("all_reduce", "DPDK", 2.0, [2.0, 2.0]),
    ]


def record_of(transport="TCP", checksum="a"):
    return {"transport": transport, "checksum": checksum, "rows": []}


@pytest.mark.parametrize(
    "records, said",
    [
        ([record_of("DPDK"), record_of("TCP")], "transports of the ranks differ: DPDK, TCP"),
        ([record_of("DPDK", "b"), record_of("DPDK", "c")], "results of the ranks differ: b, c"),
        ([record_of("DPDK", "b"), record_of("DPDK", "b")], "its result differs from that over TCP"),
    ],
)
def test_Check_RanksOrTransportsThatDisagree_IsRefused(tmp_path, records, said):
    measured = measurement_of(tmp_path, None)
    measured.check(programs.BY_NAME["decoding"], "TCP", [record_of(), record_of()])
    with pytest.raises(TurnError, match=said):
        measured.check(programs.BY_NAME["decoding"], "DPDK", records)


def test_Check_OwnCollectivesOfThreeRanks_AreComparedWithinACarrier(tmp_path):
    measured, program = measurement_of(tmp_path, None), programs.BY_NAME["training"]

    def check(transport, checksum, ranks=3):
        measured.check(program, transport, [record_of(transport, checksum)] * ranks)

    check("DPDK/own", "a")  # adds in memory
    check("UDP/own", "b")  # adds around a ring
    check("UDP/own/sealed", "b")
    for transport in ("UDP/own/sealed", "DPDK/own"):
        with pytest.raises(TurnError, match="its result differs"):
            check(transport, "c")
    check("UDP/own", "d", ranks=2)
    with pytest.raises(TurnError, match="differs from that over UDP/own"):
        check("DPDK/own", "e", ranks=2)


@needs_plugin
def test_Run_TinyProgramsOverEachTransport_AreStoredAndTheSame(tmp_path):
    answer = compare(tmp_path, "--programs", "decoding,all_reduce", "--transports", ",".join(TRANSPORTS))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    run = stored_programs.read(tmp_path / "run.json")
    assert run.transports == TRANSPORTS and run.effort == "tiny" and run.ranks == 2
    for key in (
        programs.Key("decoding", programs.TOKEN),
        programs.Key("all_reduce", programs.HOT, 8192),
        programs.Key("all_reduce", programs.FIRST, 8192),
        programs.Key("all_reduce", programs.ADDED, 8192, 0.5),
    ):
        assert all(run.row(key, transport) for transport in TRANSPORTS), key
    hot = programs.BY_NAME["all_reduce"].sizes["tiny"]["most_calls"]
    assert run.row(programs.Key("all_reduce", programs.HOT, 4), "TCP").samples == 2 * hot  # of both ranks
    assert set(json.loads((tmp_path / "run.json").read_text())["digests"]) == {"decoding", "all_reduce"}
    assert "| tensor-parallel decoding: a token |" in answer.stdout


def version_of_torch():
    said = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    return tuple(map(int, said.stdout.split(".")[:2]))


@needs_plugin
def test_Run_OverEncryptedTransports_IsStoredByTheirNames(tmp_path):
    wanted = ("TCP", "UDP/sealed", *(["UDP/own/sealed"] if version_of_torch() >= (2, 6) else []))
    answer = compare(tmp_path, "--programs", "all_reduce", "--transports", ",".join(wanted))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    run = stored_programs.read(tmp_path / "run.json")
    assert run.transports == wanted
    assert all(run.row(programs.Key("all_reduce", programs.HOT, 8192), transport) for transport in wanted)
    assert "| UDP, sealed |" in answer.stdout


@pytest.mark.skipif("PLUGIN_PYTHON" not in os.environ, reason="Debian's PyTorch has no TLS")
def test_Run_OverTls_HasFiguresOnlyWherePyTorchEncrypts(tmp_path):
    answer = compare(tmp_path, "--programs", "all_reduce", "--transports", "TCP,TCP_TLS")
    measured = stored_programs.read(tmp_path / "run.json").transports
    if version_of_torch() < (2, 8):
        assert answer.returncode == 0 and measured == ("TCP", "TCP_TLS"), answer.stdout + answer.stderr
    else:  # until PyTorch mends it
        assert answer.returncode == 1 and measured == ("TCP",), answer.stdout + answer.stderr
        has_tls = version_of_torch() < (2, 12)
        why = "sends in clear: its ranks have connected without TLS" if has_tls else "was built without it"
        assert f" {why};" in answer.stderr, answer.stderr


@needs_plugin
@pytest.mark.parametrize(
    "named, used, said",
    [
        ("UDP", "TCP", "UDP was to carry"),
        ("TCP", "UDP", "TCP was to carry all bytes, but"),
        *([("DPDK", "TCP", "DPDK was to carry"), ("DPDK", "UDP", "came over UDP")] if "DPDK" in TRANSPORTS else []),
    ],
)
def test_Run_BytesOverAnotherTransportThanNamed_HaveNoFigures(tmp_path, named, used, said):
    answer = compare(
        tmp_path,
        "--python",
        planted_python(tmp_path),
        "--programs",
        "all_reduce",
        "--transports",
        named,
        PLANTED_TRANSPORT=used,
    )
    assert answer.returncode == 1 and "nothing was measured" in answer.stderr, answer.stdout + answer.stderr
    assert f"not measured: all_reduce over {named}, round 1: rank " in answer.stderr and said in answer.stderr
    assert not (tmp_path / "run.json").exists()


@needs_plugin
def test_Run_EndedBySignal_LeavesNoRank(tmp_path):
    # The ranks' results lie there; their command lines name the folder.
    child = subprocess.Popen(
        words_of(tmp_path, "--transports", "TCP", "--rounds", 1000),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    results = f"{tmp_path}/gbp"
    try:
        until = time.monotonic() + 60
        while len(processes_that_name(results)) < 2:
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 128 + signal.SIGTERM and "ended by SIGTERM" in said
    assert list(tmp_path.glob("gbp*")) == []
    until = time.monotonic() + 30  # the kernel ends them a moment after
    while processes_that_name(results):
        assert time.monotonic() < until
        time.sleep(0.02)
