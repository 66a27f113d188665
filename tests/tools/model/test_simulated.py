"""scripts/model simulated reads fabric_simulation's results, shows them beside the model, draws them, and refuses other
files."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parents[3] / "scripts" / "model"

RUN = {
    "ranks": 4,
    "end": "done",
    "time_s": {"median": 1.2, "min": 1.1, "max": 1.3},
    "fairness": None,
    "sessions": {"retransmits": 7},
    "model": {"schedule_s": 0.5, "schedule_with_loss_s": 1.0, "physics_s": 0.6, "alpha_beta_s": 0.4},
}
REPORT = {
    "schema": "gloo-bypass/fabric-simulation/1",
    "results": [RUN | {"ranks": 8}, RUN],
    "inputs": {
        "description": "a/ring.toml",
        "sites": 0,
        "groups": 2,
        "bytes": 4_000_000,
        "loss": "1%",
        "max_segment_bytes": None,
        "congestion_control": "bbr",
    },
}


@pytest.fixture
def written(tmp_path):
    def write(report, name="s.json"):
        path = tmp_path / name
        path.write_text(json.dumps(report))
        return path

    return write


def test_file_becomes_a_table_and_json_in_order_of_ranks(model, answer, written):
    path = written(REPORT)
    status, text, _ = model("simulated", path)
    assert status == 0 and "ring, loss 1%, two segments a rank, 2 groups, bbr: 4 MB" in text and "1.20" in text
    runs = answer("simulated", path)["series"][0]["runs"]
    assert [run["ranks"] for run in runs] == [4, 8] and runs[0]["ratio"] == pytest.approx(1.2)


def test_run_without_a_time_is_shown_as_it_ended(model, answer, written):
    path = written(REPORT | {"results": [RUN, RUN | {"ranks": 8, "end": "interrupted", "time_s": None}]})
    assert "interrupted" in model("simulated", path)[1]
    assert answer("simulated", path)["series"][0]["runs"][1]["ratio"] is None


def test_plot_is_a_picture_of_all_files(model, written, tmp_path):
    picture = tmp_path / "scale.png"
    status, text, errors = model(
        "simulated", written(REPORT), written(REPORT, "t.json"), "--name", "one", "--name", "two", "--plot", picture
    )
    assert status == 0 and errors == "" and f"Plot: {picture}" in text and "two: 4 MB" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    status, _, errors = model("simulated", written(REPORT), "--plot", tmp_path / "nowhere" / "x.png")
    assert status == 1 and errors.count("\n") == 1


@pytest.mark.parametrize("module", ["matplotlib", "pandas"])
def test_plot_without_what_draws_is_one_line_and_writes_nothing(written, tmp_path, module):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / f"{module}.py").write_text(f"raise ModuleNotFoundError('hidden', name='{module}')\n")
    words = [
        sys.executable,
        MODEL,
        "simulated",
        written(REPORT),
        "--plot",
        tmp_path / "x.png",
        "--json",
        tmp_path / "x.json",
    ]
    done = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": str(hidden)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"model simulated: --plot: there is no Python module {module}: install python3-matplotlib and python3-pandas\n"
    )
    assert not (tmp_path / "x.png").exists() and not (tmp_path / "x.json").exists()


def test_ticks_keep_their_distance():
    from gloo_bypass_tools.model import plot

    assert plot.rank_ticks({2, 4, 8, 16, 23, 32, 64, 128}) == [128, 64, 32, 16, 8, 4, 2]


def without(report, *way):
    made = copy.deepcopy(report)
    place = made
    for key in way[:-1]:
        place = place[key]
    del place[way[-1]]
    return made


@pytest.mark.parametrize(
    "report, said",
    [
        ({}, "no 'schema'"),
        (REPORT | {"schema": "gloo-bypass/model-fit/1"}, "fabric_simulation --json"),
        (REPORT | {"results": []}, "no results"),
        (without(REPORT, "inputs", "loss"), "no 'loss'"),
        (without(REPORT, "results", 1, "model", "physics_s"), ": no 'physics_s'"),
        (REPORT | {"results": [RUN | {"ranks": 1}]}, "not at least 2"),
        (REPORT | {"results": [RUN | {"time_s": 3}]}, "no 'median'"),
    ],
)
def test_what_is_no_simulation_is_refused(model, written, report, said):
    path = written(report)
    status, output, errors = model("simulated", path)
    assert status == 2 and output == "" and errors.count("\n") == 1 and said in errors and str(path) in errors


def test_names_must_be_as_many_as_files(model, written):
    status, _, errors = model("simulated", written(REPORT), "--name", "a", "--name", "b")
    assert status == 2 and "--name: 2 for 1 files" in errors
