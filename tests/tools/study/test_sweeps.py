"""The sweeps: the programs' arguments at a point, the model, reading and drawing, runs that fail."""

import csv
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import MACHINE, ROOT, right_to_namespaces, write_run, write_training_run
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.study import (
    catalogue,
    command,
    commands,
    definition,
    options,
    prediction,
    reading,
    rendering,
    sweep_tables,
)
from gloo_bypass_tools.study.plan import Cell, cells_of, plan_from, plan_of

PROGRAMS = commands.Programs(
    "fabric-run", "fabric", "all_reduce_perf", "python3", "rank_probe.py", "ddp_train", "capture_analyser"
)
LOSS, FLAP, BUCKET, STRAGGLERS, ALGORITHM = (
    catalogue.STUDIES[name] for name in ("loss", "flap", "bucket", "stragglers", "algorithm")
)
SWEEPS = [one for one in catalogue.STUDIES.values() if one.layout == definition.SWEEP]
ALL = pytest.mark.parametrize("study", SWEEPS, ids=lambda study: study.name)


def plan_for(study, **changes):
    return plan_of(study, "small", **changes)


def words(study, name, transport="DPDK", limit=()):
    return commands.command_of(plan_for(study), study, Cell(name, transport), PROGRAMS, Path("/out"), limit)


def value(listed, flag):
    return listed[listed.index(flag) + 1]


def fabric_settings(listed):
    return dict(part.split("=") for part in value(listed, "--defaults").split(","))


@ALL
def test_sweep_namesAndBase_AreThereOnce(study):
    names = [point.name for point in study.variants]
    assert (
        len(set(names)) == len(names) and study.base in names and set(study.quantities) <= set(sweep_tables.QUANTITIES)
    )
    assert not options.problem_of(plan_for(study), study)
    assert len({cell.slug for cell in cells_of(plan_for(study))}) == 2 * len(names)


@ALL
def test_plan_throughItsRecord_IsTheSame(study):
    plan = plan_for(study, sysctls=(("net.a", "b"),))
    assert plan_from(study, json.loads(json.dumps(plan.as_record()))) == plan


def test_command_randomLoss_IsOnEveryEdge():
    listed = words(LOSS, "random-5")
    assert fabric_settings(listed)["loss"] == "5%" and "--edge" not in listed and value(listed, "--ranks") == "4"
    assert value(listed, "--json") == "/out.json" and "GLOO_BYPASS_STATS=/out/stats-%r.json" in listed


@pytest.mark.parametrize("name, mean", [("burst-0.1", 0.001), ("burst-5", 0.05)])
def test_command_burstLoss_HasTheSameMean(name, mean):
    found = {
        key: float(text.rstrip("%")) / 100
        for key, text in fabric_settings(words(LOSS, name)).items()
        if key.startswith("burst")
    }
    in_burst = found["burst_enter"] / (found["burst_enter"] + found["burst_leave"])
    assert in_burst * found["burst_loss"] == pytest.approx(mean, rel=1e-4)


def test_command_flap_IsEventsOfTheLink():
    events = [word for word in words(FLAP, "200ms") if word.startswith("at=")]
    assert events[:2] == ["at=3s,from=r0,to=r1,both=true,down=200ms", "at=5.2s,from=r0,to=r1,both=true,down=200ms"]
    assert len(events) == definition.TIMES_DOWN and not [word for word in words(FLAP, "none") if word.startswith("at=")]


def test_command_bucketAndBatch_AreTheTrainers():
    listed = words(BUCKET, "500MiB")
    assert (value(listed, "--bucket-cap-mb"), value(listed, "--first-bucket-mb")) == ("500.0", "1")
    strong = catalogue.STUDIES["strong-scaling"]
    assert [int(value(words(strong, f"ws={n}"), "--batch-size")) * n for n in (2, 3, 4)] == [24, 24, 24]


def test_command_straggler_IsTheProbesAffair():
    listed = words(STRAGGLERS, "0.25", limit=("--limit-rank", 1, "--limit-share", 0.25))
    assert listed.index("--limit-rank") < listed.index("ddp_train") and value(listed, "--limit-share") == "0.25"
    plan = plan_for(STRAGGLERS)
    slow, free = (commands.run_limit_s(plan, STRAGGLERS, Cell(name, "TCP")) for name in ("0.25", "free"))
    assert slow == 4 * free


def test_command_algorithm_IsAllReducePerfs():
    listed = words(ALGORITHM, "halving_doubling-1MiB", "TCP")
    assert (value(listed, "--algorithm"), value(listed, "-b"), fabric_settings(listed)["delay"]) == (
        "halving_doubling",
        str(2**20),
        "5ms",
    )


@pytest.mark.parametrize("name", ["random-1", "burst-1"])
def test_model_lostFrames_HaveTheMean(name):
    luck = np.random.default_rng(3)
    point, frames = LOSS.variant(name), 200_000
    lost = sum(prediction.lost_of(frames, point, luck) for _ in range(10))
    # Bursts: some 5,000 of them, each with 4 lost; 5 % are some 3 standard deviations.
    assert lost / (10 * frames) == pytest.approx(0.01, rel=0.05)


def test_model_loss_CostsMoreWithMoreOfIt():
    plan = plan_for(LOSS)
    times = [prediction.reduce_s(plan, LOSS.variant(name), "DPDK") for name in ("0", "random-0.1", "random-5")]
    assert times == sorted(times) and times[2] > 1.5 * times[0]
    # In bursts the same share of frames spoils fewer segments.
    assert prediction.reduce_s(plan, LOSS.variant("burst-0.5"), "DPDK") < prediction.reduce_s(
        plan, LOSS.variant("random-0.5"), "DPDK"
    )


def test_model_algorithms_AreRoundsAndBytes():
    plan = plan_for(ALGORITHM)
    small = {
        name: [
            prediction.reduce_s(plan, ALGORITHM.variant(f"{name}-64KiB"), transport) for transport in ("TCP", "DPDK")
        ]
        for name in ("ring", "halving_doubling", "bcube")
    }
    # Four rounds of 5 ms, six of the ring; over TCP those of ring and bcube wait for a notice first.
    assert small["halving_doubling"] == pytest.approx([0.02, 0.02], rel=0.02)
    assert small["bcube"] == pytest.approx([0.04, 0.02], rel=0.02)
    assert small["ring"] == pytest.approx([0.06, 0.03], rel=0.02)


BASE = {"t_step": 4.0, "t_ar": 1.5, "t_exposed": 0.5, "cpu": 0.8}


def model(study, name, key, base=None, cores=2, **changes):
    return sweep_tables.model_of(
        plan_for(study, **changes), study, study.variant(name), "TCP", key, BASE if base is None else base, cores
    )


def test_model_bucket_MeetsItsBaseAndExposesOneBigBucket():
    assert model(BUCKET, "25MiB", "t_ar") == pytest.approx(1.5, rel=0.01)
    assert model(BUCKET, "500MiB", "t_exposed") > model(BUCKET, "25MiB", "t_exposed")
    assert model(BUCKET, "500MiB", "t_step") == pytest.approx(4.0 + model(BUCKET, "500MiB", "t_exposed") - 0.5)
    assert model(BUCKET, "1MiB", "bytes_per_event") == pytest.approx(686.2e6, rel=0.01)
    assert (
        model(BUCKET, "1MiB", "t_ar", model="tiny") == pytest.approx(1.5, rel=0.01)
        and model(BUCKET, "1MiB", "t_ar", base={}) is None
    )


def test_model_straggler_HasItsProcessorTimeAtItsShare():
    assert model(STRAGGLERS, "free", "t_step") == 4.0
    assert model(STRAGGLERS, "0.25", "t_step") == pytest.approx(4.0 * 0.8 / 0.25)
    # It needs 0.4 of a core at most: half a core is no limit.
    assert model(STRAGGLERS, "0.5", "t_step", base=BASE | {"cpu": 0.4}) == 4.0


def test_model_scaling_KnowsTheCores():
    weak, strong = catalogue.STUDIES["weak-scaling"], catalogue.STUDIES["strong-scaling"]
    # On four cores computation stays, and the visible bytes grow from 1 to 1.5 S a rank; on two both take twice as
    # long.
    assert model(weak, "ws=4", "t_step", cores=4) == pytest.approx(3.5 + 0.75)
    assert model(weak, "ws=4", "t_step", cores=2) == pytest.approx(2 * 4.25)
    assert model(strong, "ws=4", "t_step", cores=4) == pytest.approx(3.5 / 2 + 0.75)
    assert model(weak, "ws=4", "efficiency", cores=4) == pytest.approx(4.0 / 4.25)
    assert model(weak, "ws=4", "computing", cores=4) == pytest.approx(3.5 / 4.25)


def reduce_record(name, transport, times_s, retransmitted=0):
    return {
        "cell": Cell(name, transport).as_record(),
        "repeat": 1,
        "folder": "raw/none",
        "times_s": list(times_s),
        "fabric": {"offered": 1000},
        "ranks": [],
        "resent": {"retransmitted": retransmitted, "timeouts": 2},
    }


def training_record(name, transport, slowest, sha="a" * 64, repeated=3000):
    return {
        "cell": Cell(name, transport).as_record(),
        "repeat": 1,
        "folder": "raw/none",
        "t_step_s": slowest,
        "t_ar_s": [0.5] * len(slowest),
        "t_exposed_s": [0.1] * len(slowest),
        "step_slowest_s": slowest,
        "ar_slowest_s": [one / 2 for one in slowest],
        "sha256": sha,
        "lost_frames": 6,
        "fabric_s": 6.0,
        "limited_by": "",
        "ranks": [{"rank": 1, "cpu_percent": 80.0, "peak_bytes": 1}],
        "capture": {
            "events": [{"bytes": 686.2e6, "seconds": 1.0}],
            "bytes_by_kind": {"tcp_payload": 9, "tcp_repeated": repeated},
        },
    }


def figure(rows, key, name, transport="TCP"):
    return next(row for row in rows if row.key == key and row.point.name == name).figures[transport]


def test_rows_flap_CountTheTimesDownByTheTime():
    # 40 steps of 0.1 s and two that were hit: 4.7 s with a period of 2.2 s are two times down, as are
    # 3 of the run's 6 s.
    steps = [0.1] * 20 + [0.45] + [0.1] * 20 + [0.35]
    rows = sweep_tables.rows_of(plan_for(FLAP), FLAP, [training_record("200ms", "TCP", steps)], 2)
    lost = figure(rows, "lost_time", "200ms")
    assert (lost.samples, lost.low, lost.high, lost.model) == (2, pytest.approx(0.125), pytest.approx(0.175), 0.2)
    assert (
        figure(rows, "repeated_bytes", "200ms").median == pytest.approx(1.5)
        and figure(rows, "lost_frames", "200ms").median == 3
    )


def test_rows_loss_HaveSharesTimeoutsAndBandwidth():
    rows = sweep_tables.rows_of(
        plan_for(LOSS), LOSS, [reduce_record("random-1", "TCP", (2.0, 4.0, 3.0), retransmitted=20)], 2
    )
    assert figure(rows, "time", "random-1").median == 3.0 and figure(
        rows, "sent_again", "random-1"
    ).median == pytest.approx(2.0)
    assert figure(rows, "busbw", "random-1").median == pytest.approx(1.5 * 4 * 2**20 / 3.0 / 1e6)
    assert not [row for row in rows if row.point.name == "0"]


def test_rows_scaling_EfficiencyIsAgainstTheFirstPoint():
    study = catalogue.STUDIES["weak-scaling"]
    runs = [training_record("ws=2", "TCP", [4.0, 4.0]), training_record("ws=4", "TCP", [8.0, 8.0])]
    rows = sweep_tables.rows_of(plan_for(study), study, runs, 2)
    assert figure(rows, "efficiency", "ws=2").median == pytest.approx(100) and figure(
        rows, "efficiency", "ws=4"
    ).median == pytest.approx(50)
    # 0.1 s of 4 s and of 8 s were visible: what else made the efficiency halve is not the all-reduce.
    assert figure(rows, "computing", "ws=2").median == pytest.approx(97.5) and figure(
        rows, "computing", "ws=4"
    ).median == pytest.approx(98.75)
    published = {row.point.name: row.published for row in rows if row.key == "t_step"}
    assert published == {"ws=2": pytest.approx(21.491), "ws=4": None}
    alone = sweep_tables.rows_of(plan_for(study, variants=("ws=4",)), study, runs[1:], 2)
    assert not [row for row in alone if row.key == "efficiency"] and figure(alone, "t_step", "ws=4").model is None


def test_published_StandBesideRunsWithTheSameBarrier():
    found = 0
    for study in catalogue.STUDIES.values():
        for point in study.variants:
            # The published study had a barrier in its variants of that name alone.
            if point.published:
                assert point.barrier == (point.published == ("barrier", "barrier")), (study.name, point)
                found += 1
    assert found > 0


@pytest.mark.parametrize("other, met", [("a" * 64, True), ("b" * 64, False)])
def test_targets_parameters_MustNotDependOnTheSweep(other, met):
    runs = [training_record("none", "TCP", [0.1] * 3), training_record("50ms", "DPDK", [0.1] * 3, sha=other)]
    (one,) = sweep_tables.targets_of(plan_for(FLAP), FLAP, runs)
    assert one.met is met


def test_reading_training_HasTheSlowestOfEachStep(tmp_path):
    found = reading.run_of(
        write_training_run(tmp_path / "run", events=4), plan_for(BUCKET, steps=4), BUCKET, Cell("25MiB", "TCP")
    )
    assert (
        found["step_slowest_s"] == [2.0] * 3
        and found["ar_slowest_s"] == [0.5] * 3
        and found["t_exposed_s"] == [0.1] * 6
    )


@pytest.mark.parametrize(
    "transport, resent", [("TCP", {"retransmitted": 0, "timeouts": 12}), ("DPDK", {"retransmitted": 36, "timeouts": 4})]
)
def test_reading_reduce_SumsAllRanks(tmp_path, transport, resent):
    plan, cell = plan_for(LOSS, rounds=2), Cell("random-1", transport)
    folder = write_run(tmp_path / "run", plan.at(LOSS.variant("random-1")), cell)
    found = reading.run_of(folder, plan, LOSS, cell)
    assert found["resent"] == resent and found["times_s"] == [1.0, 2.0] and found["fabric"]["offered"] == 200


def folder_of(path, study, runs, **changes):
    folder = ResultsFolder.create(path)
    folder.write_json(
        "results.json",
        {
            "schema": "gloo-bypass/study/1",
            "study": study.name,
            "state": "complete",
            "plan": plan_for(study).as_record(),
            "machine": MACHINE,
            "failures": [],
            "kernel_tcp": {"congestion_control": "bbr"},
            "environment": {},
            "stages": [],
            "repeat_command": f"scripts/study {study.name}",
            "runs": runs,
        }
        | changes,
    )
    return folder


def test_render_loss_WritesTablesPlotsAndTheSameAgain(tmp_path):
    folder = folder_of(
        tmp_path / "study",
        LOSS,
        [
            reduce_record(name, transport, (1.0, 1.5))
            for name in ("0", "random-1", "burst-1")
            for transport in ("TCP", "DPDK")
        ],
    )
    _, plan, _, made = rendering.render(folder)
    page = folder.place("index.html").read_text()
    assert "Frames sent again" in page and "<script" not in page and plan == plan_for(LOSS)
    lines = list(csv.DictReader(folder.place("summary.csv").open()))
    assert {line["quantity"] for line in lines} == set(LOSS.quantities) and len(made.rows) == 12
    assert folder.place("plots/time.png").stat().st_size > 1000 and folder.place("plots/sent-again.png").exists()
    rendering.render(folder)
    assert folder.place("index.html").read_text() == page


def test_render_nothingMeasured_IsAPageStill(tmp_path):
    folder = folder_of(tmp_path / "study", FLAP, [], state="interrupted")
    rendering.render(folder)
    page = folder.place("index.html").read_text()
    assert "Nothing was measured." in page and "it was interrupted" in page


def test_command_reduceSweep_MeasuresPointsInTurn(doubled, capsys):
    results = doubled({"DPDK": "fail"})
    status = command.main(["algorithm", "--variants", "ring-1MiB,bcube-1MiB", "--output", str(results)])
    record = json.loads((results / "results.json").read_text())
    assert status == 1 and [run["cell"]["variant"] for run in record["runs"]] == ["ring-1MiB", "bcube-1MiB"]
    assert len(record["failures"]) == 2 and "DPDK has the reason it failed" in capsys.readouterr().out


def test_command_trainingSweep_AnalysesItsCaptures(doubled, capsys):
    results = doubled()
    assert command.main(["bucket", "--variants", "1MiB,25MiB", "--transports", "TCP", "--output", str(results)]) == 0
    record = json.loads((results / "results.json").read_text())
    assert [stage["name"].partition(": ")[2] for stage in record["stages"]][:2] == ["1MiB, TCP", "1MiB, TCP: analysis"]
    assert "the same; wanted bit for bit the same in all: reached" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("loss", "--variants", "random-3"), "'random-3' is none of 0, random-0.1"),
        (("loss", "--bytes", "30"), "--bytes 30: it must be a multiple of 4"),
        (("algorithm", "--bytes", "1M"), "unrecognized arguments: --bytes"),
        *(
            ((name, "--", "-P", "8"), "unrecognized arguments: -- -P 8")
            for name in command.PRINTED
            if name not in command.TAKE_FLAGS
        ),
        (("flap", "--steps", "1"), "from 2 to 100000"),
        (("stragglers", "--warm-up", "3"), "--warm-up 3 leaves none of the 3 steps of free"),
        (("bucket", "--mtu", "32001"), "from 576 to 32000"),
    ],
)
def test_command_badInput_IsOneLineAndStatus2(capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        command.main(list(arguments))
    assert ended.value.code == 2 and said in capsys.readouterr().err.splitlines()[-1]


def test_options_mtu_IsWhatFabricRunTakes(capsys):
    from gloo_bypass_tools.fabric_run import command as fabric_run

    words = ["--ranks", "2", "--transport", "TCP", "--mtu"]
    assert fabric_run.parse([*words, str(options.LARGEST_MTU), "true"]).mtu == options.LARGEST_MTU
    with pytest.raises(SystemExit):
        fabric_run.parse([*words, str(options.LARGEST_MTU + 1), "true"])
    assert "--mtu" in capsys.readouterr().err


@pytest.mark.skipif("STUDY_BUILD" not in os.environ, reason="no build folder given in STUDY_BUILD")
def test_study_ofTheProgramsThemselves_LosesFramesAndSendsThemAgain(tmp_path):
    if problem := right_to_namespaces():
        pytest.skip(problem)
    results = tmp_path / "results"
    done = subprocess.run(
        [
            ROOT / "scripts" / "study",
            "loss",
            "--variants",
            "random-5",
            "--bytes",
            "256K",
            "--rounds",
            "1",
            "--warm-up",
            "0",
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
    found = {run["cell"]["transport"]: run for run in json.loads((results / "results.json").read_text())["runs"]}
    # Out of some 1,500 frames each; the program checks the all-reduce's result.
    assert all(
        run["fabric"]["lost_randomly"] > 0 and run["resent"]["retransmitted"] > 0 for run in found.values()
    ) and set(found) == {"TCP", "DPDK"}
