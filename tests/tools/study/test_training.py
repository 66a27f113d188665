"""The studies of training: starting a run, reading its files, its tables, and one study with the programs
themselves."""

import argparse
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MACHINE, ROOT, right_to_namespaces, write_training_run
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.study import (
    catalogue,
    command,
    commands,
    measurement,
    options,
    prediction,
    reading,
    rendering,
    training_prediction,
    training_rendering,
    training_tables,
)
from gloo_bypass_tools.study.definition import Point
from gloo_bypass_tools.study.plan import Cell, plan_from, plan_of, steps_of

STUDY = catalogue.STUDIES["world-size"]
TCP2 = Cell("ws=2", "TCP")
PROGRAMS = commands.Programs(
    "fabric-run", "fabric", "all_reduce_perf", "python3", "rank_probe.py", "ddp_train", "capture_analyser"
)


def plan_for(**changes):
    return plan_of(STUDY, "small", **{"variants": ("ws=2", "ws=4")} | changes)


def event(size=656e6, seconds=4.0):
    return {"bytes": size, "seconds": seconds}


def run_record(variant, transport, events, sha="a" * 64):
    return {
        "cell": {"variant": variant, "transport": transport},
        "repeat": 1,
        "folder": "raw/none",
        "t_step_s": [10.0, 20.0],
        "t_ar_s": [5.0, 4.0],
        "loss": 3.0,
        "sha256": sha,
        "lost_frames": 0,
        "ranks": [],
        "capture": {
            "events": events,
            "total_bytes": 2e9,
            "total_s": 40.0,
            "faults": [],
            "bytes_by_kind": {},
            "matrix": {
                "before": [{"from": "10.77.0.2", "to": "10.77.0.3", "bytes": 327e6}],
                "training": [{"from": "10.77.0.3", "to": "10.77.0.2", "bytes": 1e9}],
            },
        },
    }


def row(rows, variant, metric, statistic):
    return next((one for one in rows if (one.variant, one.metric, one.statistic) == (variant, metric, statistic)), None)


def test_command_variant_IsTheTrainersOptions():
    variant = Point("x", ranks=4, batch=16, precision="fp64", barrier=True)
    listed = commands.command_of(plan_for(), replace(STUDY, variants=(variant,)), Cell("x", "DPDK"), PROGRAMS, "/out")
    for flag, value in (
        ("--ranks", "4"),
        ("--batch-size", "16"),
        ("--precision", "fp64"),
        ("--step-markers", "{markers}"),
        ("--metrics", "/out/metrics-{rank}.jsonl"),
    ):
        assert listed[listed.index(flag) + 1] == value
    assert "--barrier" in listed and "--capture" in listed and "GLOO_BYPASS_CONGESTION_CONTROL=bbr" in listed


def test_command_files_AreTheTrainers(tmp_path):
    text = tmp_path / "wiki.txt"
    text.write_text("words")
    parsed = command.parser_of().parse_args(["world-size", "--data", str(text), "--weights", str(text)])
    plan = options.plan_from_options(parsed)
    listed = commands.command_of(plan, STUDY, TCP2, PROGRAMS, "/out")
    assert listed[-4:] == ["--data", str(text), "--weights", str(text)] and options.files_problem(plan) == ""
    assert plan_from(STUDY, json.loads(json.dumps(plan.as_record()))) == plan
    record = {
        "machine": MACHINE,
        "runs": [],
        "plan": plan.as_record(),
        "kernel_tcp": {"congestion_control": "cubic", "tcp_rmem": "1 2 3", "tcp_wmem": "1 2 3"},
        "environment": {},
    }
    notes = training_rendering.notes_of(record, plan, STUDY)
    assert f"on {text}, a token a byte, weights of {text} at first." in " ".join(" ".join(notes).split())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--data", "/nowhere"], "--data /nowhere: is not there, or cannot be read"),
        (["--vocab", __file__], "--vocab and --merges go together"),
        (["--data", __file__, "--transports", "TCP-netem,RDMA"], "--data: not with "),
    ],
)
def test_command_filesThatCannotBe_AreRefusedFirst(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["world-size", *arguments])
    assert ended.value.code == 2 and said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "study, variant, steps", [("batch-size", "bs=8", 25), ("batch-size", "bs=16", 12), ("world-size", "ws=4", 12)]
)
def test_steps_epoch_AreThePublishedOnes(study, variant, steps):
    one = catalogue.STUDIES[study].variant(variant)
    assert steps_of(plan_for(steps=0), one) == steps and steps_of(plan_for(steps=4), one) == 4
    assert steps_of(plan_for(steps=99), one) == steps


def test_eventBytes_twoRanks_ArePayloadAndHeaders():
    found = training_prediction.event_bytes(plan_for(), STUDY.variant("ws=2"), "TCP")
    assert found.payload == 2 * 327_650_304
    # 66 bytes of header for 1,448 of data, and a few acknowledgements.
    assert 1 + 66 / 1448 < found.frames / found.payload < 1.06
    assert training_prediction.event_bytes(plan_for(model="tiny"), STUDY.variant("ws=2"), "TCP").payload == 2 * 183_808


def test_rows_sampledFigures_StandBesideThePublished():
    plan = plan_for(variants=("ws=2",))
    rows = training_tables.rows_of(
        plan, STUDY, [run_record("ws=2", "TCP", [event(100e6, 1.0), event(200e6, 4.0), event(600e6, 6.0)])]
    )
    one = row(rows, "ws=2", "bytes_per_event", "median")
    assert (one.published, one.measured["TCP"]) == (656.271, 200.0) and one.model["TCP"] == pytest.approx(685, rel=0.01)
    assert row(rows, "ws=2", "th_peak", "max").measured["TCP"] == pytest.approx(800.0)
    assert row(rows, "ws=2", "th_avg_overall", "mean").measured["TCP"] == pytest.approx(0.4)
    assert row(rows, "ws=2", "oh_ar", "median").measured["TCP"] == pytest.approx(35.0)
    assert row(rows, "ws=2", "t_step", "p75").measured["TCP"] == pytest.approx(17500)


def test_rows_variantThatNobodyPublished_HasItsOwn():
    study, plan = catalogue.STUDIES["precision"], plan_for(study="precision", variants=("fp32", "bf16"))
    runs = [run_record(variant, "TCP", [event(size)]) for variant, size in (("fp32", 650e6), ("bf16", 325e6))]
    assert row(training_tables.rows_of(plan, study, runs), "fp32", "bytes_per_event", "median").published == 656.271
    assert {one.variant for one in training_tables.rows_of(plan, study, runs)} == {"fp32"}
    rows = training_tables.own_rows(plan, study, runs)
    half = row(rows, "bf16", "bytes_per_event", "median")
    assert {one.variant for one in rows} == {"bf16"} and half.published is None and half.measured["TCP"] == 325.0
    assert half.model["TCP"] == pytest.approx(
        training_prediction.event_bytes(plan, study.variant("fp32"), "TCP").frames / 2e6, rel=0.001
    )


def test_rows_partOfAnEpoch_HaveNoSumsAndCounts():
    runs = [run_record("ws=2", "TCP", [event()] * 25)]
    assert row(training_tables.rows_of(plan_for(), STUDY, runs), "ws=2", "total_bytes", "sum") is None
    whole = training_tables.rows_of(plan_for(steps=0), STUDY, runs)
    assert row(whole, "ws=2", "total_bytes", "sum").measured == {"TCP": 2000.0}
    assert row(whole, "ws=2", "allreduce_events", "count").measured == {"TCP": 25}


def test_targets_bytesOfAnEvent_WithinHalfAPercent():
    plan, frames = (
        plan_for(variants=("ws=2",)),
        training_prediction.event_bytes(plan_for(), STUDY.variant("ws=2"), "TCP").frames,
    )
    (near,) = training_tables.targets_of(plan, STUDY, [run_record("ws=2", "TCP", [event(frames * 1.004)])])
    (far,) = training_tables.targets_of(plan, STUDY, [run_record("ws=2", "TCP", [event(frames * 0.993)])])
    assert (near.met, near.measured, far.met, far.measured) == (True, "+0.40 %", False, "-0.70 %")


def test_targets_bytesWithFewAcknowledgements_AreWithinWhatTcpMaySend():
    plan, made = plan_for(variants=("ws=4",)), training_prediction.event_bytes(plan_for(), STUDY.variant("ws=4"), "TCP")
    assert made.frames / made.fewest == pytest.approx(1.02, abs=0.005)
    found = [
        training_tables.targets_of(plan, STUDY, [run_record("ws=4", "TCP", [event(size)])])[0]
        for size in (made.frames * 1.004, (made.frames + made.fewest) / 2, made.fewest, made.fewest * 0.993)
    ]
    assert [(one.met, one.measured) for one in found] == [
        (True, "+0.40 %"),
        (True, "+0.00 %"),
        (True, "+0.00 %"),
        (False, "-0.70 %"),
    ]
    dpdk = training_prediction.event_bytes(plan_for(), STUDY.variant("ws=4"), "DPDK")
    assert dpdk.fewest == dpdk.frames


def test_flows_toGroupsAndOfNobody_AreLeftOut():
    run = run_record("ws=2", "TCP", [event()])
    edges = [("10.77.0.2", "10.77.0.3"), ("0.0.0.0", "224.0.0.22"), ("10.77.0.3", "224.0.0.22")]
    run["capture"]["matrix"] = {
        phase: [{"from": start, "to": end, "bytes": 5e6} for start, end in edges] for phase in ("before", "training")
    }
    found = training_tables.flows_of(plan_for(variants=("ws=2",)), STUDY, [run])
    assert [flows for *_, flows in found] == [[("r0", "r1", 5.0)]] * 2


def test_targets_bytesSentAgain_AreSaid():
    plan, run = plan_for(variants=("ws=2",)), run_record("ws=2", "TCP", [event(700e6)])
    run["capture"]["bytes_by_kind"] = {"tcp_payload": 95.0, "tcp_repeated": 5.0}
    (one,) = training_tables.targets_of(plan, STUDY, [run])
    assert one.measured.endswith("(5.0 % were sent again)")


@pytest.mark.parametrize("other, said", [("a" * 64, "bit for bit the same"), ("b" * 64, "different")])
def test_render_bothTransports_SaysWhetherTheBitsAgree(tmp_path, other, said):
    folder = ResultsFolder.create(tmp_path / "study")
    runs = [run_record("ws=2", "TCP", [event()]), run_record("ws=2", "DPDK", [event(700e6)], sha=other)]
    folder.write_json(
        "results.json",
        {
            "schema": "gloo-bypass/study/1",
            "study": "world-size",
            "state": "complete",
            "plan": plan_for().as_record(),
            "machine": MACHINE,
            "failures": [],
            "kernel_tcp": {},
            "environment": {},
            "stages": [],
            "repeat_command": "scripts/study world-size",
            "runs": runs,
        },
    )
    _, plan, _, made = rendering.render(folder)
    page = folder.place("index.html").read_text()
    assert f"the parameters end {said}" in page and "r0→r1: 327.0" in page and plan == plan_for()
    assert folder.place("summary.csv").exists() and folder.place("plots/events.png").exists() and len(made.rows) > 5


def test_reading_run_LeavesWarmUpOutOfTimes(tmp_path):
    found = reading.run_of(write_training_run(tmp_path / "run"), plan_for(steps=3), STUDY, TCP2)
    assert len(found["t_step_s"]) == 2 * 2 and len(found["capture"]["events"]) == 3 and found["lost_frames"] == 2


def test_reading_captureMissedFrames_IsRefused(tmp_path):
    folder = write_training_run(tmp_path / "run")
    record = json.loads((folder / "fabric.json").read_text())
    (folder / "fabric.json").write_text(json.dumps(record | {"capture": {"lost": 5}}))
    with pytest.raises(RecordError, match="fabric.json: 5 frames are not in the run's capture"):
        reading.run_of(folder, plan_for(steps=3), STUDY, TCP2)


def train_two_ranks(study, results):
    words = ("world-size", "--variants", "ws=2", "--transports", "TCP", "--repeats", 1, "--steps", 3)
    return study(*words, "--output", results)


def test_study_captureThatEndedEarly_SaysWhyAndIsNotKept(study, doubled):
    results = doubled({"TCP": "cut"})
    status, output, _ = train_two_ranks(study, results)
    said = " ".join(output.split())
    assert status == 1 and "capture ended early: No space left on device; 7 frames are not in it" in said
    assert list(results.glob("raw/*/fabric.json")) and not list(results.glob("raw/*/capture.pcapng"))


def test_study_noRoomForTheCapture_IsSaidAndNothingIsRun(study, doubled, monkeypatch):
    results = doubled()
    monkeypatch.setattr(measurement.shutil, "disk_usage", lambda _: argparse.Namespace(free=1e8))
    status, output, _ = train_two_ranks(study, results)
    said = " ".join(output.split())
    assert status == 1 and "capture needs about 0.29 GB, and 0.1 GB are free: make room, or choose --output" in said
    assert not list(results.glob("raw/*"))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"complete": False}, "0 whole events between markers, not 3"),
        ({"events": 2}, "2 whole events"),
        ({"digests": ("a" * 64, "b" * 64)}, "different parameters"),
    ],
)
def test_reading_brokenRun_IsRefused(tmp_path, changes, said):
    with pytest.raises(RecordError, match=said):
        reading.run_of(write_training_run(tmp_path / "run", **changes), plan_for(steps=3), STUDY, TCP2)


def flow(start, end, median, least=None, rate=1e6):
    least = median if least is None else least
    return {
        "from": f"10.77.0.{2 + start}",
        "to": f"10.77.0.{2 + end}",
        "th_avg_bit_s": rate,
        "per_step": {
            "bytes": {"min": least, "median": median, "max": median},
            "duration_s": {"median": 2.0},
            "th_peak_bit_s": {"median": 4e8, "max": 9e8},
        },
    }


def flow_run(variant, transport, *flows):
    run = run_record(variant, transport, [event()])
    run["capture"]["directions"] = list(flows)
    run["capture"]["matrix"]["after"] = [{"from": "10.77.0.2", "to": "10.77.0.3", "bytes": 1e6}]
    return run


FAR, SLOW = catalogue.STUDIES["edge-latency-training"], catalogue.STUDIES["edge-bandwidth-training"]


def far_plan(**changes):
    return plan_for(study=FAR.name, **({"variants": ("base", "300ms")} | changes))


def timed_run(variant, transport, reduce_s, rest_s=45.0):
    return run_record(variant, transport, [event(2065e6, reduce_s)]) | {
        "t_step_s": [rest_s + reduce_s],
        "t_ar_s": [reduce_s],
    }


def test_slowEdge_command_HasTheEdgeAndFourRanks():
    listed = commands.command_of(far_plan(), FAR, Cell("300ms", "DPDK"), PROGRAMS, "/out")
    assert (
        listed[listed.index("--edge") + 1] == "from=r3,to=r2,delay=300ms,queue=256MiB"
        and listed[listed.index("--ranks") + 1] == "4"
    )
    assert "--edge" not in commands.command_of(far_plan(), FAR, Cell("base", "DPDK"), PROGRAMS, "/out")


def test_slowEdge_timeOverTcp_IsThatOfThePublishedRunsModel():
    # As scripts/model predict --study edge-latency has it, with larger frames: 59.4 s where the run without limit took
    # 19.5.
    assert training_prediction.reduces_s(far_plan(), FAR.variant("300ms"), "TCP", 19.52) == pytest.approx(
        59.4, rel=0.02
    )
    # No computation, and so nothing that hides: the bytes at the edge's rate.
    crossing = (
        2
        * 3
        / 4
        * 327_650_304
        * 8
        / 50e6
        / prediction.payload_share(plan_of(catalogue.STUDIES["edge-bandwidth"], "small"), "DPDK")
    )
    assert training_prediction.reduces_s(plan_for(), SLOW.variant("50Mbit"), "DPDK", 0.0) == pytest.approx(
        crossing, rel=0.02
    )


def test_slowEdge_rows_StandBesideThePublishedAndTheModel():
    runs = [
        timed_run("base", "TCP", 20.0),
        timed_run("300ms", "TCP", 70.0),
        timed_run("base", "DPDK", 18.0),
        timed_run("300ms", "DPDK", 40.0),
    ]
    rows = training_tables.rows_of(far_plan(), FAR, runs)
    far, base = row(rows, "300ms", "t_ar", "median"), row(rows, "base", "t_ar", "median")
    assert (far.published, far.table, far.measured["TCP"]) == (76027, "5.21", 70000.0)
    assert base.model == {} and far.model["DPDK"] < far.model["TCP"]
    step = row(rows, "300ms", "t_step", "median")
    assert step.model["TCP"] - far.model["TCP"] == pytest.approx(45000.0)
    assert row(rows, "300ms", "oh_ar", "median").model["TCP"] == pytest.approx(
        100 * far.model["TCP"] / step.model["TCP"]
    )
    assert row(rows, "300ms", "t_ar", "p75").model == {}


def test_slowEdge_withoutItsBase_HasNoModelOfTimes():
    rows = training_tables.rows_of(far_plan(), FAR, [timed_run("300ms", "TCP", 70.0)])
    assert row(rows, "300ms", "t_ar", "median").model == {} and row(rows, "300ms", "bytes_per_event", "median").model


def test_slowEdge_targets_AreOfWhatTheTransportCanHelp():
    made = training_prediction.reduces_s(far_plan(), FAR.variant("300ms"), "DPDK", 18.0)
    runs = [
        timed_run("base", "TCP", 20.0),
        timed_run("300ms", "TCP", 70.0),
        timed_run("base", "DPDK", 18.0),
        timed_run("300ms", "DPDK", 1.2 * made),
    ]
    found = {one.label: one for one in training_tables.slow_edge_targets(far_plan(), FAR, runs)}
    assert (
        set(found) == {"300ms over DPDK, T_ar"}
        and found["300ms over DPDK, T_ar"].met
        and found["300ms over DPDK, T_ar"].measured == "1.20 x"
    )
    plan = plan_for(study=SLOW.name, variants=("base", "50Mbit"))
    slow = training_tables.slow_edge_targets(
        plan, SLOW, [timed_run("base", "TCP", 20.0), timed_run("50Mbit", "TCP", 120.0)]
    )
    assert [one.met for one in slow] == [False]


FLOW_RUNS = [
    flow_run("ws=2", "TCP", flow(0, 1, 343e6, least=342e6), flow(1, 0, 343.5e6)),
    flow_run("ws=4", "TCP", flow(0, 3, 514e6), flow(3, 0, 5e6)),
    flow_run("ws=4", "DPDK", flow(0, 3, 545e6), flow(1, 0, 545e6), flow(0, 1, 60e6)),
]


def test_flows_ofADirection_StandBesideThePublished():
    rows = training_tables.rows_of(plan_for(), STUDY, FLOW_RUNS)
    one = row(rows, "ws=2, r0->r1", "bytes_per_event", "min")
    assert (one.table, one.published, one.measured["TCP"]) == ("5.5", 328.112, 342.0)
    # Each way half of what two ranks send; of four, a quarter of what goes the ring's way.
    assert one.model["TCP"] == pytest.approx(686.2 / 2, rel=0.002) and one.model["DPDK"] > one.model["TCP"]
    ring = row(rows, "ws=4, r0->r3", "bytes_per_event", "median")
    assert (ring.published, ring.measured) == (492.1, {"TCP": 514.0, "DPDK": 545.0}) and ring.model[
        "TCP"
    ] == pytest.approx(514, rel=0.005)
    assert row(rows, "ws=4, r3->r0", "bytes_per_event", "median").model["TCP"] < 15
    assert row(rows, "ws=2, r0->r1", "total_bytes", "sum") is None


def test_flows_wholeEpoch_HaveTotalsOfAllPhases():
    rows = training_tables.rows_of(plan_for(steps=0), STUDY, FLOW_RUNS)
    assert row(rows, "ws=2, r0->r1", "total_bytes", "sum").measured == {"TCP": 328.0}
    assert row(rows, "ws=2, r1->r0", "total_bytes", "sum").measured == {"TCP": 1000.0}


def test_flows_ratios_AreOfTheFirstDirection():
    rows = training_tables.rows_of(plan_for(steps=0), STUDY, FLOW_RUNS)
    ratio = row(rows, "ws=2, r1->r0", "bytes_per_event_ratio", "median")
    assert ratio.published == 1.0 and ratio.measured["TCP"] == pytest.approx(343.5 / 343)
    assert ratio.model["TCP"] == pytest.approx(1, abs=0.001)
    assert row(rows, "ws=2, r1->r0", "total_bytes_ratio", "sum").measured["TCP"] == pytest.approx(1000 / 328)


def test_rows_ratios_AreOfTheFirstVariant():
    runs = [run_record("ws=2", "TCP", [event(100e6)] * 25), run_record("ws=4", "TCP", [event(300e6)] * 12)]
    rows = training_tables.rows_of(plan_for(steps=0), STUDY, runs)
    ratio = row(rows, "ws=4", "bytes_per_event_ratio", "median")
    assert (ratio.published, ratio.measured["TCP"]) == (3.0, 3.0) and ratio.model["TCP"] == pytest.approx(3, abs=0.1)
    assert row(rows, "ws=4", "allreduce_events_ratio", "count").measured["TCP"] == 0.48
    assert row(rows, "ws=4", "t_step_ratio", "median").model == {}
    # Without the first one there is nothing to compare with.
    alone = training_tables.rows_of(plan_for(steps=0, variants=("ws=4",)), STUDY, runs[1:])
    assert not any(one.metric.endswith("_ratio") for one in alone) and alone


def test_rows_ofARank_AreLevelsAndItsShareOfTheBytes():
    ranks = [{"rank": rank, "cpu_percent": cpu, "peak_bytes": 3 * 2**30} for rank, cpu in enumerate((150.0, 170.0))]
    rows = training_tables.rows_of(plan_for(steps=0), STUDY, [run_record("ws=2", "TCP", [event()]) | {"ranks": ranks}])
    assert row(rows, "ws=2", "cpu_utilization", "level").measured["TCP"] == pytest.approx(160.0)
    assert row(rows, "ws=2", "memory", "level").measured["TCP"] == 3.0
    sent = row(rows, "ws=2", "tx_bytes", "sum")
    assert (sent.published, sent.measured["TCP"]) == (8.2, 1.0)


def test_publishedFigures_AreShownByAStudyOrElsewhere():
    """arithmetic_perf prints the loop's figures."""
    shown = {study.published_name for study in catalogue.STUDIES.values()}
    shown |= {name for study in catalogue.STUDIES.values() for name, _ in study.flows}
    for figure in training_tables.measurements.read():
        assert figure.study in shown, figure
        assert figure.metric.removesuffix("_ratio") in {*training_tables.METRICS, "loop_duration"}, figure


def test_targets_ofFlows_AreSymmetryAndOneWay():
    found = {
        one.label: one
        for one in training_tables.targets_of(plan_for(), STUDY, FLOW_RUNS)
        if "bytes of" not in one.label
    }
    assert [(label, one.met) for label, one in found.items()] == [
        ("ws=2 over TCP, r0 to r1 against r1 to r0", True),
        ("ws=4 over DPDK, against the ring's way", False),
    ]
    assert found["ws=2 over TCP, r0 to r1 against r1 to r0"].measured == "-0.15 %"


def test_command_warmUpOfAllSteps_IsRefused(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["world-size", "--steps", "2", "--warm-up", "2"])
    assert ended.value.code == 2 and "leaves none of the 2 steps of ws=2" in capsys.readouterr().err


def programs_problem():
    build = Path(os.environ.get("STUDY_BUILD", "/nowhere"))
    for name in (
        "trainer/ddp_train",
        "plugin/libgloo_bypass.so",
        "tools/fabric/fabric",
        "tools/capture/capture_analyser",
    ):
        if not (build / name).exists():
            return f"{name} is not built (STUDY_BUILD)"
    return right_to_namespaces()


def test_study_ofTheProgramsThemselves_SeesTheSameEventsOverBoth(tmp_path):
    if problem := programs_problem():
        pytest.skip(problem)
    results = tmp_path / "results"
    done = subprocess.run(
        [
            ROOT / "scripts" / "study",
            "barrier",
            "--model",
            "tiny",
            "--variants",
            "barrier",
            "--steps",
            "3",
            "--build",
            os.environ["STUDY_BUILD"],
            "--output",
            results,
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit for bit the same over all transports" in done.stdout
    record = json.loads((results / "results.json").read_text())
    for run in record["runs"]:
        # The tiny model's gradient has 183,808 bytes: each rank sends as many. Within milliseconds, so that frames may
        # reach the fabric before the marker, which takes another way.
        assert len(run["capture"]["events"]) == 3 and all(
            0 < one["bytes"] < 1.3 * 2 * 183_808 for one in run["capture"]["events"]
        )
        assert 3 * 2 * 183_808 < run["capture"]["total_bytes"]
    assert [run["cell"] for run in record["runs"]] == [
        Cell("barrier", transport).as_record() for transport in ("TCP", "DPDK")
    ]
    assert not list(results.glob("raw/*/capture.pcapng"))
