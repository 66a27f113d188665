"""Other libraries beside the transports of scripts/compare-programs. Their own all-reduces run where an earlier run of
the command has installed them; without that these tests are skipped."""

import functools
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gloo_bypass_tools.common import interpreter
from gloo_bypass_tools.compare_programs import command, libraries
from gloo_bypass_tools.compare_programs.measurement import Measurement
from gloo_bypass_tools.report import programs, stored_programs

INSTALLED = Path(os.environ.get("COMPARED_LIBRARIES", ROOT / "build-libraries"))
PYTHON = os.environ.get("PLUGIN_PYTHON", "/usr/bin/python3")
FAKE_MPI = Path(__file__).with_name("programs") / "one_rank_mpi"
SIZES = programs.BY_NAME["all_reduce"].sizes["tiny"]
LIMIT_S = 240


@functools.cache
def found_interpreter():
    return interpreter.find(PYTHON, Path("none"), ())


def measure_over_a_library(folder, **variables):
    """Runs library_rank with the fake MPI: (how it ended, the record)."""
    result = folder / "{rank}.json"
    words = ["/usr/bin/python3", "-m", libraries.RANK, "OpenMPI", json.dumps(SIZES | variables), result]
    path = os.pathsep.join(map(str, (FAKE_MPI, ROOT / "scripts")))
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60, env=os.environ | {"PYTHONPATH": path}
    )
    record = folder / "0.json"
    return ended, json.loads(record.read_text()) if record.exists() else None


def test_LibraryRank_OneRank_MeasuresTheProgramsVectors(tmp_path):
    pytest.importorskip("numpy")
    ended, record = measure_over_a_library(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert record["transport"] == "OpenMPI" and record["rank"] == 0
    hot = [row for row in record["rows"] if row["quantity"] == programs.HOT]
    assert [(row["bytes"], len(row["samples_us"])) for row in hot] == [(4, 5), (8192, 5)]
    assert [row["bytes"] for row in record["rows"] if row["quantity"] == programs.FIRST] == [8192]


def test_LibraryRank_ThatFails_EndsAllRanksAndSaysWhy(tmp_path):
    pytest.importorskip("numpy")
    ended, record = measure_over_a_library(tmp_path, sizes=[-4])
    assert ended.returncode == 1 and record is None and "negative dimensions" in ended.stderr


def test_Words_OfALibraryWithALauncher_StartAllRanksAtOnce(tmp_path):
    mpi = libraries.Prepared(libraries.BY_NAME["OpenMPI"], tmp_path, "")
    words = [str(word) for word in mpi.words(1, "{}", "r")]
    assert mpi.starts_all and words[:3] == [f"{tmp_path}/bin/mpirun", "-n", "1"]
    assert words[3:] == [f"{tmp_path}/bin/python", "-m", libraries.RANK, "OpenMPI", "{}", "r"]
    assert "--map-by" in mpi.words(1024, "{}", "r")  # more ranks than cores
    each = libraries.Prepared(libraries.BY_NAME["DeepSpeed"], tmp_path, "")
    assert not each.starts_all and each.words(2, "{}", "r")[0] == tmp_path / "bin" / "python"


def test_Environment_OfALibrary_FindsItsOwnProgramsFirst(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_BYPASS_LINK", "1")
    found = libraries.Prepared(libraries.BY_NAME["DeepSpeed"], tmp_path, "").environment()
    assert found["PATH"].split(os.pathsep)[0] == f"{tmp_path}/bin" and "GLOO_BYPASS_LINK" not in found
    assert found["DS_ACCELERATOR"] == "cpu" and all(isinstance(value, str) for value in found.values())


def test_Libraries_ThatCannotBeInstalled_AreLeftOutInOneLine(tmp_path):
    options, left_out = SimpleNamespace(transports=("TCP", "MPICH"), libraries=tmp_path), []
    assert command.prepared_libraries(options, SimpleNamespace(program="/bin/false"), left_out) == {}
    assert options.transports == ("TCP",)
    assert left_out == [{"what": "MPICH", "why": "/bin/false -m venv: status 1"}]
    assert list(tmp_path.iterdir()) == []


def test_Libraries_ThatDoNotLoad_NameTheFolderToRemove(tmp_path):
    own = tmp_path / "openmpi" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\necho no libmpi >&2\nexit 1\n")
    own.chmod(0o755)
    with pytest.raises(libraries.LibraryError, match=rf"{own.parents[1]} cannot be used \(remove it .*\): no libmpi"):
        libraries.prepare("OpenMPI", SimpleNamespace(program=PYTHON), tmp_path)


def test_Measure_OtherPrograms_AreNotRunOverLibraries(tmp_path):
    asked = []

    def turn(program, transport, _number):
        asked.append((program.name, transport))
        return {programs.Key(program.name, programs.HOT, 4): [1.0]}

    options = SimpleNamespace(transports=("TCP", "MPICH"), rounds=1, ranks=2, effort="tiny")
    measured = Measurement(None, options, tmp_path, tmp_path, {"MPICH": None})
    measured.turn = turn
    measured.measure([programs.BY_NAME["decoding"], programs.BY_NAME["all_reduce"]], lambda text: None)
    assert asked == [("decoding", "TCP"), ("all_reduce", "TCP"), ("all_reduce", "MPICH")]


@pytest.mark.parametrize("name", libraries.BY_NAME)
def test_Run_TinyAllReducesOverALibrary_AreStoredAndTheSameAsOverTcp(tmp_path, name):
    if not (libraries.folder_of(libraries.BY_NAME[name], found_interpreter(), INSTALLED) / "bin" / "python").exists():
        pytest.skip(f"{name} is not in {INSTALLED}: scripts/compare-programs --transports TCP,{name} installs it there")
    words = ["--python", PYTHON, "--programs", "all_reduce", "--transports", f"TCP,{name}", "--libraries", INSTALLED]
    words += ["--effort", "tiny", "--rounds", 1, "--output", tmp_path / "out", "--json", tmp_path / "run.json"]
    answer = subprocess.run(
        [str(word) for word in (ROOT / "scripts" / "compare-programs", *words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    run = stored_programs.read(tmp_path / "run.json")
    assert run.transports == ("TCP", name) and name.lower() in run.libraries[name]
    for size in SIZES["sizes"]:
        assert run.row(programs.Key("all_reduce", programs.HOT, size), name).samples == 2 * SIZES["most_calls"]
    assert f"| {name} |" in answer.stdout
