"""The commands as a user runs them, with doubles of the programs that they start."""

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from conftest import ROOT
from program_doubles import make_build, make_program
from test_processes import gone

from gloo_bypass_tools.report import command

QUICK = ["--transports", "TCP,DPDK", "--steps", "3", "--repeats", "2", "--sizes", "4:1M:16", "--idle", "1"]


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def compare(tmp_path, capsys):
    """Runs the command in this process: its modules are loaded once, and its children are real."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments, faults=None):
        build = make_build(tmp_path / "build", faults)
        status = command.compare([*QUICK, "--build", str(build), "--output", str(tmp_path / "out"), *arguments])
        return Done(status, *capsys.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def record_of(tmp_path):
    return json.loads((tmp_path / "out" / "results.json").read_text())


def test_compare_two_transports_prints_one_table_and_writes_a_folder(tmp_path, compare):
    done = compare()
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("Step, T_step, s", "identical results", "40 MB, 10M elements"):
        assert said in done.stdout
    record = record_of(tmp_path)
    assert record["state"] == "complete"
    assert [(one["transport"], one["repeat"]) for one in record["training"]] == [
        ("TCP", 1),
        ("DPDK", 1),
        ("TCP", 2),
        ("DPDK", 2),
    ]
    assert (tmp_path / "out" / "index.html").exists()
    assert not list((tmp_path / "out").rglob("*.partial"))
    command_line = record["stages"][0]["command"]
    assert command_line.startswith("GLOO_DEVICE_TRANSPORT=TCP ") and "--seed 1" in command_line
    assert (
        record["repeat_command"].startswith("scripts/compare --transports TCP,DPDK --steps 3")
        and "--output" not in record["repeat_command"]
    )


def test_compare_out_of_time_leaves_repeats_out_but_not_the_first(tmp_path, compare):
    assert compare("--minutes", "0.1", "--no-benchmark").returncode == 0
    assert [(one["transport"], one["repeat"]) for one in record_of(tmp_path)["training"]] == [("TCP", 1), ("DPDK", 1)]


@dataclass(frozen=True)
class Page:
    tiles: list
    text: str


def page_of(tmp_path):
    text = (tmp_path / "out" / "index.html").read_text()
    tiles = re.findall(r'<div class="tile(.*?)"><b class="(.*?)">(.*?)</b><span>(.*?)</span>', text)
    return Page([tuple(part.strip() for part in tile) for tile in tiles], text)


def tile_about(page, words):
    (tile,) = [tile for tile in page.tiles if words in tile[3]]
    return tile


def test_compare_machine_that_was_not_steady_is_measured_again_in_shorter_turns(tmp_path, compare):
    done = compare("--no-benchmark", "--steps", "9", faults={"TCP": "slow at first"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2.50 times as fast over DPDK as over TCP: measuring again, in turns of 3 steps" in done.stdout
    record = record_of(tmp_path)
    assert [(one["transport"], one["repeat"]) for one in record["set_aside"]["training"]] == [
        ("TCP", 1),
        ("DPDK", 1),
        ("TCP", 2),
        ("DPDK", 2),
    ]
    again = record["training"]
    assert [one["transport"] for one in again] == ["TCP", "DPDK"] * 4 and "training-again-1-TCP" in again[0]["files"][0]
    assert "--steps 3 " in record["stages"][-1]["command"] and "--steps 9 " in record["stages"][0]["command"]
    page = page_of(tmp_path)
    assert tile_about(page, "training step")[2].startswith("1.00") and "in doubt" not in page.text
    assert "it was measured again in turns of 3 steps; only these have figures here" in page.text
    assert "3 steps, 1 of them warm-up" in " ".join(page.text.split())


def test_compare_machine_that_is_never_steady_has_the_doubt_on_its_cards(tmp_path, compare):
    done = compare("--no-benchmark", faults={"TCP": "slow"})
    assert done.returncode == 0, done.stdout + done.stderr
    page = page_of(tmp_path)
    for words in ("training step", "all-reduce in training"):
        kind, look, value, label = tile_about(page, words)
        assert (kind, look, value) == ("doubt", "", "in doubt")
        assert "2.50\u202f× as fast" in label and "which sends nothing" in label
    assert "(2.00?)" in done.stdout and "2.00\u202f×" not in done.stdout
    assert page.text.count("in doubt: the machine was not steady") == 2  # of the targets
    assert '<b class="good">2.00' not in page.text
    assert "What training says about that transport is in doubt" in page.text


def test_compare_turns_again_that_fail_leave_the_first_figures_and_the_doubt(tmp_path, compare):
    done = compare("--no-benchmark", faults={"TCP": "slow", "DPDK": "fails again"})
    assert done.returncode == command.FAILED
    record = record_of(tmp_path)
    assert "set_aside" not in record and [one["transport"] for one in record["training"]] == ["TCP", "DPDK"] * 2
    assert tile_about(page_of(tmp_path), "training step")[2] == "in doubt"


def with_programs(tmp_path, faults=None):
    (tmp_path / "build" / "plugin" / "python" / "gloo_bypass").mkdir(parents=True)
    return ["--no-training", "--compare-programs", str(make_program(tmp_path / "compare-programs", faults))]


def test_compare_through_torch_distributed_is_in_the_table_and_on_the_page(tmp_path, compare):
    done = compare(*with_programs(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Through torch.distributed, PyTorch 2.13.0+cpu" in done.stdout
    assert "Tensor-parallel decoding, tokens/s" in done.stdout
    page = page_of(tmp_path)
    assert tile_about(page, "tensor-parallel decoding")[1:3] == ("good", "4.00\u202f×")
    assert "<h2>Through torch.distributed</h2>" in page.text and "adds to 2 ms of computing" in page.text
    assert record_of(tmp_path)["programs"] == ["raw/programs.json"]


def test_compare_through_torch_distributed_unsteady_has_the_doubt(tmp_path, compare):
    done = compare(*with_programs(tmp_path, {"compare-programs": "unsteady"}))
    assert done.returncode == 0 and "what is said of torch.distributed is in doubt" in done.stdout
    assert "(4.00?)" in done.stdout
    assert tile_about(page_of(tmp_path), "tensor-parallel decoding")[2] == "in doubt"


def test_compare_through_torch_distributed_fails_with_its_reason(tmp_path, compare):
    done = compare(*with_programs(tmp_path, {"compare-programs": "fail"}))
    assert done.returncode == command.FAILED
    assert "torch.distributed exited with status 2" in done.stdout and "No module named 'torch'" in done.stdout
    assert record_of(tmp_path)["all_reduce"]


def test_compare_without_the_plug_in_leaves_torch_distributed_out(tmp_path, compare):
    assert compare("--no-training").returncode == 0
    assert record_of(tmp_path)["left_out"][0]["what"] == "The comparison through torch.distributed"


def test_compare_stores_how_fast_the_machine_was(tmp_path, compare):
    assert compare("--no-training").returncode == 0
    record = record_of(tmp_path)
    assert len(record["rates"]) in (0, 2) and record["others_cores"] >= 0
    if record["rates"]:
        assert "copies 64 MiB at " in page_of(tmp_path).text


def test_compare_failing_training_names_it_and_reports_the_rest(tmp_path, compare):
    done = compare(faults={"DPDK": "fail"})
    assert done.returncode == command.FAILED
    assert "train over DPDK, repeat 1 exited with status 1" in done.stdout
    assert "the reason it failed" in done.stdout and "logs/training-1-DPDK.log" in done.stdout
    record = record_of(tmp_path)
    assert record["state"] == "failed" and len(record["failures"]) == 1
    assert [one["transport"] for one in record["training"]] == ["TCP", "TCP"] and record["all_reduce"]
    assert (tmp_path / "out" / "index.html").exists()


def test_compare_different_bits_fails_and_says_so(tmp_path, compare):
    done = compare("--no-benchmark", faults={"DPDK": "other bits"})
    assert done.returncode == command.FAILED
    assert "DIFFERENT results" in done.stdout


def test_compare_silent_fallback_is_a_failure(tmp_path, compare):
    done = compare("--no-benchmark", faults={"DPDK": "other transport"})
    assert done.returncode == command.FAILED
    assert "the run used transport TCP, not DPDK" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_compare_interrupted_ends_its_children_and_keeps_results(tmp_path, number):
    build = make_build(tmp_path / "build", {"DPDK": "hang"})
    pid_file = tmp_path / "pid"
    child = subprocess.Popen(
        [ROOT / "scripts" / "compare", *QUICK, "--no-benchmark", "--build", build, "--output", tmp_path / "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"DOUBLE_PID_FILE": str(pid_file)},
    )
    try:
        until = time.monotonic() + 60
        while not (pid_file.exists() and pid_file.read_text().endswith("\n")):
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.02)
        child.send_signal(number)
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == command.INTERRUPTED, output
    assert gone(int(pid_file.read_text()))
    assert record_of(tmp_path)["state"] == "interrupted"
    assert (tmp_path / "out" / "raw" / "training-1-TCP-rank0.jsonl").exists()
    assert "it was interrupted" in (tmp_path / "out" / "index.html").read_text()


def test_compare_existing_output_is_refused(tmp_path, compare):
    (tmp_path / "out").mkdir()
    done = compare()
    assert done.returncode == command.BAD_INPUT
    assert done.stderr.count("\n") == 1 and "exists already" in done.stderr
    assert os.listdir(tmp_path / "out") == []


def test_compare_relative_folders_are_those_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parser = command.compare_parser()
    options = parser.parse_args(["--output", "out", "--build", "mine"])
    command.check(parser, options)
    assert (options.output, options.build) == (tmp_path / "out", tmp_path / "mine")


def test_compare_without_programs_says_what_to_run(tmp_path):
    done = subprocess.run(
        [ROOT / "scripts" / "compare", "--build", tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == command.BAD_INPUT and "run scripts/build first" in done.stderr


def test_report_draws_a_folder_again(measurement, capsys):
    assert command.report([str(measurement.path)]) == 0
    assert "identical results" in capsys.readouterr().out
    assert measurement.place("index.html").exists()


def test_report_of_no_results_is_one_line(tmp_path):
    done = subprocess.run(
        [ROOT / "scripts" / "report", tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == command.BAD_INPUT
    assert done.stderr.count("\n") == 1 and "results.json: cannot be read" in done.stderr


def test_quickstart_runs_on_what_is_built(tmp_path):
    build = make_build(tmp_path / "build")
    done = subprocess.run(
        [
            ROOT / "scripts" / "quickstart",
            "--no-install",
            "--no-build",
            "--no-guest",
            *QUICK,
            "--build",
            build,
            "--output",
            tmp_path / "out",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Results go to" in done.stdout and "identical results" in done.stdout


class NotedDisplay:
    """Records a Display's calls."""

    def __init__(self, is_terminal):
        self.console, self.notes, self.lines = SimpleNamespace(is_terminal=is_terminal), [], []

    def advance(self, completed=None, total=None, note=""):
        self.notes.append((completed, total, note))

    def line(self, text):
        self.lines.append(text)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_build_counter_counts_ninjas_steps_in_place_or_every_30_s(tmp_path, is_terminal):
    now, log, display = [100.0], tmp_path / "build.log", NotedDisplay(is_terminal)
    tick = command.build_counter(display, log, lambda: now[0])
    long = f"[123/444] Compiling {'x' * 100}/b.cc"
    for after_s, said in (
        (0, "The Meson build system"),
        (29, "[1/444] c++ a.cc"),
        (31, long),
        (60, "[200/444] c++ c.cc"),
        (61, "[201/444] c++ d.cc"),
    ):
        now[0] = 100.0 + after_s
        log.write_text(said + "\n")
        tick()
    assert display.notes == [
        (None, None, "The Meson build system"),
        (1, 444, "building: 1 of 444"),
        (123, 444, "building: 123 of 444"),
        (200, 444, "building: 200 of 444"),
        (201, 444, "building: 201 of 444"),
    ]
    assert display.lines == ([] if is_terminal else ["building: 123 of 444", "building: 201 of 444"])


def test_quickstart_failing_build_names_stage_and_log(tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [
            ROOT / "scripts" / "quickstart",
            "--no-install",
            "--build",
            tmp_path / "file" / "x",
            "--output",
            tmp_path / "out",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == command.FAILED
    assert "build exited with status" in done.stdout and "logs/build.log" in done.stdout
    assert record_of(tmp_path)["state"] == "failed"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sizes", "4:64M"],
        ["--sizes", "8M:4:4"],
        ["--sizes", "x:4:4"],
        ["--transports", "TCP,TCP"],
        ["--transports", "TCP,"],
        ["--transports", "TCP,DPKD"],
        ["--ranks", "1"],
        ["--steps", "1"],
        ["--minutes", "nan"],
        ["--warm-up", "6"],
        ["--no-training", "--no-benchmark"],
    ],
)
def test_options_out_of_range_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as refused:
        command.compare(arguments)
    assert refused.value.code == command.BAD_INPUT
    assert "error:" in capsys.readouterr().err


def test_sizes_are_read_as_the_benchmark_reads_them():
    assert command.sizes_of("4:64M:4") == (4, 64 * 2**20, 4)


def test_repeat_command_leaves_the_output_folder_out():
    assert command.without_output(["--steps", "3", "--output", "x", "--output=y", "--idle", "1"]) == [
        "--steps",
        "3",
        "--idle",
        "1",
    ]


def test_quickstart_help_needs_nothing_installed():
    done = subprocess.run(
        [ROOT / "scripts" / "quickstart", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and "--minutes" in done.stdout
