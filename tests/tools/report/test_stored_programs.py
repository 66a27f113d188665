"""The stored run: its requirements, and its contents."""

import math

import pytest
from gloo_bypass_tools.report import programs, stored_programs
from gloo_bypass_tools.report.programs import Key
from gloo_bypass_tools.report.records import RecordError
from program_runs import row_record

TOKEN = Key("decoding", programs.TOKEN)


def test_Read_WholeRun_HasRowsAndRatios(write_run):
    run = stored_programs.read(write_run())
    assert run.row(TOKEN, "DPDK").median_us == 12500.0 and run.row(TOKEN, "UDP") is None
    assert run.ratio(TOKEN, "DPDK") == (4.0, 4.0, 4.0) and run.ratio(TOKEN, "UDP") is None
    assert run.doubt == "" and run.title == "2 ranks of 1 thread on 2 cores of a processor"


def test_Ratio_OfDifferencesBelowZero_CannotBeSaid(write_run):
    def below(record):
        for row in record["rows"]:
            if row["quantity"] == programs.EXPOSED and row["transport"] == "DPDK":
                row.update(median_us=-5.0, p99_us=-5.0, mean_us=-5.0, rounds_us=[-5.0])

    assert stored_programs.read(write_run(below)).ratio(Key("training", programs.EXPOSED), "DPDK") is None


def test_Doubt_WhatSendsNothingTookLonger_IsSaid(write_run):
    assert (
        "training, step without its all-reduces: 1.20 times as long"
        in stored_programs.read(write_run(alone_us=(500.0, 600.0))).doubt
    )
    assert stored_programs.read(write_run(alone_us=(500.0, 540.0))).doubt == ""


def test_Read_RunBesideOtherLibraries_HasTheirVersions(write_run):
    run = stored_programs.read(write_run(lambda record: record.update(libraries={"MPICH": "mpich 5.0.2"})))
    assert run.libraries == {"MPICH": "mpich 5.0.2"} and stored_programs.read(write_run()).libraries == {}


def test_Title_OfARunOnGpus_HasTheirNames(write_run):
    def on_gpus(record):
        record["gpus"] = ["NVIDIA H200", "NVIDIA H200"]
        record["rows"].append(row_record("cuda_training", programs.STEP, "TCP", 1000.0))

    assert stored_programs.read(write_run(on_gpus)).title.endswith("cores of a processor, with 2 NVIDIA H200")
    assert "NVIDIA" not in stored_programs.read(write_run(lambda record: record.update(gpus=["NVIDIA H200"]))).title


def first_row(**changed):
    return lambda record: record["rows"][0].update(changed)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda run: run.pop("torch"), "no 'torch'"),
        (lambda run: run.update(gpus=[3]), "gpus: '0' is 3"),
        (lambda run: run.update(schema="x"), "schema 'x'"),
        (lambda run: run.update(note=1), "'note' is unknown"),
        (lambda run: run.update(libraries={"MPICH": 5}), "libraries: 'MPICH'"),
        (lambda run: run.update(commit="main"), "'commit' is 'main'"),
        (lambda run: run.update(torch="new"), "'torch' is 'new'"),
        (lambda run: run.update(date="today"), "'date' is 'today'"),
        (lambda run: run.update(rows=[]), "'rows' is empty"),
        (lambda run: run.update(ranks=1.5), "'ranks' is 1.5"),
        (lambda run: run.update(ranks=1), "from 2 on"),
        (lambda run: run.update(effort="much"), "'effort' is 'much'"),
        (lambda run: run.update(transports=["TCP", "TCP"]), "no list of different names"),
        (lambda run: run["machine"].pop("cores"), "machine: no 'cores'"),
        (lambda run: run["rows"].append(run["rows"][0]), "is there already"),
        (lambda run: run["rows"].append([]), "expected an object, found list"),
        (lambda run: run["rows"].append(row_record("decoding", "token", "UDP", 1.0)), "none of the run's TCP, DPDK"),
        (first_row(program="games"), "'program' is 'games'; there are decoding"),
        (first_row(median_us=math.nan), "'median_us' is nan"),
        (first_row(median_us=0), "'median_us' is 0, not above 0"),
        (first_row(p99_us=1.0), "'p99_us' is 1.0, below the median"),
        (first_row(bytes=-4), "'bytes' is -4"),
        (first_row(compute_ms=-1), "'compute_ms' is -1"),
        (first_row(rounds_us=[]), "not the median of 'rounds_us'"),
        (first_row(rounds_us=[1.0]), "not the median of 'rounds_us'"),
        (first_row(speed=1), "'speed' is unknown"),
        (first_row(rounds_us=["fast"]), "rounds_us: '0' is 'fast'"),
        (first_row(samples=0), "'samples' is 0"),
    ],
)
def test_Read_Wrong_IsRefusedWithItsPlace(write_run, change, said):
    with pytest.raises(RecordError) as raised:
        stored_programs.read(write_run(change))
    assert said in str(raised.value) and "run.json" in str(raised.value)
