"""Readers of the trainer's and the benchmark's files: correct files are read completely, wrong ones refused with place
and reason."""

import json
from pathlib import Path

import pytest
from conftest import DIGEST, benchmark_report, idle_entry, reduce_result, training_records, write_lines
from gloo_bypass_tools.report import records


def test_training_whole_file_gives_steps_and_run(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", training_records("TCP", rank=1, steps=3))
    steps, run = records.read_training(path, "TCP", repeat=2, warm_up=1)
    assert [row["warm_up"] for row in steps] == [True, False, False]
    assert {row["rank"] for row in steps} == {1}
    assert steps[1]["step_s"] == 3.0 and steps[1]["exposed_s"] == 0.5 and steps[1]["sent_bytes"] == 327650304
    assert run["sha256"] == DIGEST and run["parameters"] == 81912576 and run["steps"] == 3


def test_training_steps_that_were_repeated_count_once(tmp_path):
    start, *steps, summary = training_records("TCP", steps=4)
    again = [step | {"generation": 1, "t_step_s": 7.0} for step in steps[2:]]
    first = [step | {"generation": 0} for step in steps[:3]]
    lines = [start, *first, {"event": "restart", "generation": 1}, *again, summary]
    path = write_lines(tmp_path / "a.jsonl", lines)
    rows, run = records.read_training(path, "TCP", repeat=1, warm_up=1)
    assert [row["step"] for row in rows] == [1, 2, 3, 4] and run["steps"] == 4
    assert [row["step_s"] for row in rows] == [9.0, 3.0, 7.0, 7.0]
    assert records.StepsSoFar(path).look()[0] == 4


def test_training_of_another_transport_is_refused(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", training_records("TCP"))
    with pytest.raises(records.RecordError, match=r"a.jsonl:1: the run used transport TCP, not DPDK"):
        records.read_training(path, "DPDK", 1, 1)


def test_training_whose_bytes_nobody_counted_is_refused(tmp_path):
    lines = training_records("DPDK")
    lines[-1]["bytes_source"] = "none"
    path = write_lines(tmp_path / "a.jsonl", lines)
    with pytest.raises(records.RecordError, match="whether they went over DPDK is not known"):
        records.read_training(path, "DPDK", 1, 1)


def test_training_without_end_is_refused(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", training_records("TCP")[:-1])
    with pytest.raises(records.RecordError, match="the run did not end"):
        records.read_training(path, "TCP", 1, 1)


def test_training_unknown_bytes_are_missing_not_zero(tmp_path):
    lines = training_records("TCP")
    for line in lines[1:-1]:
        line["bytes_sent"] = None
    steps, _ = records.read_training(write_lines(tmp_path / "a.jsonl", lines), "TCP", 1, 1)
    assert steps[0]["sent_bytes"] is None


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("t_step_s", "3", "'t_step_s' is '3', not a finite number"),
        ("loss", float("nan"), "'loss' is nan, not a finite number"),
        ("t_ar_s", None, "'t_ar_s' is None, not a finite number"),
        ("t_ar_s", True, "not a finite number"),
        ("t_forward_s", ..., "no 't_forward_s'"),
    ],
)
def test_training_bad_value_is_named_with_its_line(tmp_path, key, value, said):
    lines = training_records("TCP")
    if value is ...:
        del lines[2][key]
    else:
        lines[2][key] = value
    with pytest.raises(records.RecordError, match="a.jsonl:3: .*" + said):
        records.read_training(write_lines(tmp_path / "a.jsonl", lines), "TCP", 1, 1)


def test_training_cut_line_is_named(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", training_records("TCP"))
    path.write_text(path.read_text()[:-20])
    with pytest.raises(records.RecordError, match="a.jsonl:5: not JSON"):
        records.read_training(path, "TCP", 1, 1)


def test_training_missing_file_is_one_line(tmp_path):
    with pytest.raises(records.RecordError, match="cannot be read: No such file"):
        records.read_training(tmp_path / "none", "TCP", 1, 1)


def test_steps_so_far_of_a_file_being_written_counts_whole_lines(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", training_records("TCP", steps=3)[:-1])
    whole = path.read_text()
    path.write_text(whole[:-5])
    steps = records.StepsSoFar(path)
    assert steps.look() == steps.look() and steps.look()[0] == 2 and steps.look()[1]["step"] == 2
    path.write_text(whole)
    assert steps.look()[0] == 3 and steps.look()[1]["step"] == 3
    assert records.StepsSoFar(tmp_path / "none").look() == (0, None)


def test_all_reduce_report_gives_a_row_for_each_size_and_transport(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps(benchmark_report([reduce_result(4, {"TCP": 97.0, "DPDK": 9.0}), reduce_result(64, {"TCP": 98.0})]))
    )
    rows = records.read_all_reduce(path)
    assert [(row["transport"], row["bytes"], row["p50_us"]) for row in rows] == [
        ("TCP", 4, 97.0),
        ("DPDK", 4, 9.0),
        ("TCP", 64, 98.0),
    ]
    assert rows[0]["samples"] == 20 * 5 * 2 and rows[0]["ranks"] == 2


def test_all_reduce_foreign_schema_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(benchmark_report([]) | {"schema": "other/9"}))
    with pytest.raises(records.RecordError, match="schema 'other/9'"):
        records.read_all_reduce(path)


def test_all_reduce_missing_value_is_named_with_its_place(tmp_path):
    result = reduce_result(4, {"TCP": 97.0})
    del result["transports"][0]["p99_us"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(benchmark_report([result])))
    with pytest.raises(records.RecordError, match=r"results\[0\]: no 'p99_us'"):
        records.read_all_reduce(path)


def test_idle_report_gives_a_row_for_each_rank(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(benchmark_report(idle=[idle_entry("TCP", 0.2)])))
    assert [(row["rank"], row["cpu_percent"]) for row in records.read_idle(path)] == [(0, 0.2), (1, 0.2)]


def test_frame_without_rows_has_its_columns():
    assert list(records.frame_of([], records.STEP_COLUMNS).columns) == list(records.STEP_COLUMNS)


def test_files_that_the_programs_really_wrote_are_read():
    """fixtures/ holds real output of ddp_train and all_reduce_perf: a change of their format shows here."""
    fixtures = Path(__file__).parent / "fixtures"
    steps, run = records.read_training(fixtures / "ddp_train.jsonl", "DPDK", 1, 1)
    assert len(steps) == 4 and run["parameters"] == 81912576 and len(run["sha256"]) == 64
    assert all(row["step_s"] > row["forward_s"] > 0 and row["sent_bytes"] > 327e6 for row in steps)
    rows = records.read_all_reduce(fixtures / "all_reduce_perf.json")
    assert [(row["transport"], row["bytes"], row["wrong"]) for row in rows] == [
        ("TCP", 40_000_000, 0),
        ("DPDK", 40_000_000, 0),
    ]
    idle = records.read_idle(fixtures / "idle.json")
    assert [(row["transport"], row["rank"]) for row in idle] == [("TCP", 0), ("TCP", 1), ("DPDK", 0), ("DPDK", 1)]
