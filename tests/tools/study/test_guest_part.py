"""Studies over RDMA, and TCP beside it: command lines, the guest's part, omissions and their reasons, and the
comparisons."""

import json

import pytest
from conftest import MACHINE, write_run
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.study import (
    catalogue,
    command,
    commands,
    definition,
    estimates,
    guest_part,
    prediction,
    reading,
    rendering,
    sweep_tables,
    transports,
)
from gloo_bypass_tools.study.plan import Cell, cells_of, plan_of

PROGRAMS = commands.Programs(
    "fabric-run", "fabric", "all_reduce_perf", "python3", "rank_probe.py", "ddp_train", "capture_analyser"
)
WORLD_SIZE, LOSS, FLAP, EDGE = (catalogue.STUDIES[name] for name in ("world-size", "loss", "flap", "edge-latency"))
ALL_FOUR = ("TCP", "DPDK", "TCP-netem", "RDMA")
THERE = ("TCP-netem", "RDMA")


def training_plan(**changes):
    return plan_of(WORLD_SIZE, "small", **{"transports": ALL_FOUR, "variants": ("ws=2",), "guest": THERE} | changes)


def words(transport, **changes):
    return commands.command_of(training_plan(**changes), WORLD_SIZE, Cell("ws=2", transport), PROGRAMS, "/out")


def value(listed, flag):
    return listed[listed.index(flag) + 1]


@pytest.mark.parametrize("transport, kind", [("RDMA", "RDMA"), ("TCP-netem", "TCP")])
def test_command_inTheGuest_HasLinksOfTheKernelAndASmallModel(transport, kind):
    listed = words(transport)
    assert (value(listed, "--transport"), value(listed, "--links"), value(listed, "--where")) == (kind, "netem", "host")
    assert (value(listed, "--model"), value(listed, "--seq-length"), value(listed, "--interval")) == (
        "tiny",
        "8",
        "3.0",
    )
    assert "--samples" not in listed and "--capture" in listed and value(listed, "--step-markers") == "{markers}"
    assert ("--env" in listed) == (kind == "RDMA")


def test_command_rdmaOnThisMachine_IsTheStudysOwnModel():
    listed = words("RDMA", guest=())
    assert (value(listed, "--model"), value(listed, "--seq-length"), value(listed, "--interval")) == (
        "distilgpt2",
        "64",
        "1.0",
    )
    assert value(words("DPDK"), "--model") == "distilgpt2" and "--where" not in words("DPDK")


def test_command_flapInTheGuest_GoesOnUntilTheRanksTrain():
    plan = plan_of(FLAP, "small", transports=("TCP", "RDMA"), guest=("RDMA",), steps=40)
    counts = [
        sum(word.startswith("at=") for word in commands.command_of(plan, FLAP, Cell("200ms", one), PROGRAMS, "/out"))
        for one in ("TCP", "RDMA")
    ]
    assert counts == [definition.TIMES_DOWN, definition.GUEST_TIMES_DOWN]
    # Training that lasts as long as that has as many.
    run = {"cell": {"transport": "RDMA"}, "step_slowest_s": [3.0] * 100, "ar_slowest_s": [0.2] * 99 + [1.2]}
    point = FLAP.variant("200ms")
    assert sweep_tables.times_down(run, plan, point) == round(300 / 10.2)
    assert max(sweep_tables.lost_times(run, plan, point)) == pytest.approx(1.0)


def test_flap_downInMostSteps_HasNoTimeLost():
    plan, point = plan_of(FLAP, "small"), FLAP.variant("200ms")
    run = {"cell": {"transport": "TCP"}, "step_slowest_s": [4.4] * 15, "ar_slowest_s": [0.4] * 15}
    assert sweep_tables.lost_times(run, plan, point) == []


def test_limits_inTheGuest_AreLonger():
    plan, variant = training_plan(guest_model="distilgpt2"), WORLD_SIZE.variant("ws=2")
    assert commands.training_limit_s(plan, variant, "RDMA") > 5 * commands.training_limit_s(plan, variant, "TCP")


def test_memory_ofTheGuest_IsForTheLargestCell():
    def memory_mib(study, **changes):
        return guest_part.memory_mib(plan_of(study, "small", **changes), study)

    assert memory_mib(WORLD_SIZE, variants=("ws=2",)) == guest_part.LEAST_MIB == memory_mib(EDGE, bytes=2**20)
    assert memory_mib(WORLD_SIZE, guest_model="distilgpt2") > 4 * 3000
    assert memory_mib(EDGE, bytes=2**30) > 4 * 5 * 1024 and memory_mib(LOSS, bytes=2**30) > 4 * 5 * 1024


@pytest.mark.parametrize(
    "listed, found",
    [
        (ALL_FOUR, [("DPDK", "TCP"), ("RDMA", "TCP-netem")]),
        (("TCP", "RDMA"), []),
        (("RDMA", "TCP-netem", "DPDK"), [("TCP-netem", "RDMA")]),
    ],
)
def test_compared_transports_AreThoseOnOneMachine(listed, found):
    assert (
        transports.compared(training_plan(transports=listed, guest=tuple(one for one in listed if one in THERE)))
        == found
    )


def test_model_rdmaOverEqualEdges_IsAnnouncedAndRead():
    plan = plan_of(LOSS, "small", bytes=4 * 2**20)
    tcp, netem, rdma = (prediction.reduce_s(plan, LOSS.variant("0"), one) for one in ("TCP", "TCP-netem", "RDMA"))
    # A notice and the data: two ways an iteration; announcement, question, data and completion: four of two iterations,
    # and twelve begin and end.
    assert tcp == netem == pytest.approx(12 * 5e-3, rel=0.1) and rdma == pytest.approx(30 * 5e-3, rel=0.1)


def test_reading_rdmaSweep_CountsWhatTheDevicesBeganAnew(tmp_path):
    plan, cell = (plan_of(LOSS, "small", rounds=2, bytes=4 * 2**20), Cell("random-1", "RDMA"))
    folder = write_run(tmp_path / "run", plan.at(LOSS.variant("random-1")), cell)
    record = json.loads((folder / "fabric.json").read_text())
    record |= {
        "links": "netem",
        "kernel": "6.1",
        "processor": "QEMU",
        "edges": [one | {"offered_bytes": None} for one in record["edges"]],
    }
    (folder / "fabric.json").write_text(json.dumps(record))
    found = reading.run_of(folder, plan, LOSS, cell)
    assert (
        found["resent"] == {"retransmitted": None, "timeouts": 6}
        and found["fabric"]["offered_bytes"] is None
        and found["fabric"]["netem"] == "Linux 6.1 on QEMU"
    )


@pytest.fixture
def undrawn(monkeypatch):
    """Pages take their time, and do not matter everywhere."""
    monkeypatch.setattr(rendering, "render", lambda folder: ())
    monkeypatch.setattr(rendering, "show", lambda console: None)


def study(*arguments):
    return command.main([str(argument) for argument in arguments])


def test_study_withTransportsOfTheGuest_TakesOverItsPart(doubled, capsys):
    results = doubled()
    assert (
        study(
            "world-size",
            "--variants",
            "ws=2",
            "--steps",
            3,
            "--transports",
            "TCP,TCP-netem,RDMA",
            "--repeats",
            2,
            "--output",
            results,
        )
        == 0
    )
    record = json.loads((results / "results.json").read_text())
    assert [(run["cell"]["transport"], run["repeat"], run["folder"].split("/")[0]) for run in record["runs"]] == [
        ("TCP", 1, "raw"),
        ("TCP", 2, "raw"),
        *((one, repeat, "guest") for repeat in (1, 2) for one in THERE),
    ]
    assert (
        all((results / run["folder"] / "fabric.json").exists() for run in record["runs"])
        and record["state"] == "complete"
    )
    assert record["guest"]["machine"]["kernel"] and all((results / stage["log"]).exists() for stage in record["stages"])
    assert "--memory 4096" in (results / "logs" / "guest.log").read_text()
    page = (results / "index.html").read_text()
    assert (
        "Measured and modelled, the tiny model" in page
        and "<th>RDMA, guest</th>" in page
        and ("whose processor is emulated") in page
    )
    assert "ws=2, in the guest: the parameters end bit for bit the same" in capsys.readouterr().out


def test_study_ofSlowEdges_HasOneGuestForAllCells(undrawn, doubled):
    results = doubled()
    assert (
        study(
            "edge-latency",
            "--variants",
            "base,300ms",
            "--losses",
            "0",
            "--repeats",
            1,
            "--transports",
            "TCP,RDMA",
            "--output",
            results,
        )
        == 0
    )
    record = json.loads((results / "results.json").read_text())
    assert len([stage for stage in record["stages"] if "in the guest" in stage["name"]]) == 1
    assert [run["cell"]["transport"] for run in record["runs"]] == ["TCP"] * 4 + ["RDMA"] * 4


def test_study_guestThatFails_KeepsTheOthersAndSaysWhy(doubled, capsys):
    results = doubled(guest="echo rdma-guest: the guest ended by itself: out of memory >&2; exit 125")
    assert study("flap", "--variants", "none", "--transports", "TCP,RDMA", "--output", results) == 1
    record = json.loads((results / "results.json").read_text())
    assert [run["cell"]["transport"] for run in record["runs"]] == ["TCP"] and record["state"] == "failed"
    assert (
        "out of memory" in capsys.readouterr().out
        and "<b>RDMA</b> was not run: in the guest, 1 runs: RDMA exited" in (results / "index.html").read_text()
    )


def test_study_runThatFailsInTheGuest_LeavesTheOthersOfIt(undrawn, doubled, capsys):
    results = doubled({"RDMA": "fail"})
    assert study("loss", "--variants", "0", "--transports", "TCP-netem,RDMA", "--output", results) == 1
    record = json.loads((results / "results.json").read_text())
    assert [run["cell"]["transport"] for run in record["runs"]] == ["TCP-netem"]
    assert [one["log"].split("/")[0] for one in record["failures"]] == [
        "guest"
    ] and "in the guest: repeat 1" in capsys.readouterr().out


def test_study_bucketsOfATinyModel_AreLeftOutAndSaid(undrawn, doubled, capsys):
    results = doubled()
    assert study("bucket", "--variants", "25MiB", "--transports", "TCP,RDMA", "--output", results) == 1
    (one,) = json.loads((results / "results.json").read_text())["left_out"]
    assert one["what"] == "RDMA" and one["why"].startswith("in the guest the tiny model trains")
    assert "RDMA is left out: in the guest the tiny model trains" in capsys.readouterr().out
    assert (
        study("bucket", "--transports", "RDMA", "--output", results.with_name("other")) == 2
        and not results.with_name("other").exists()
    )
    assert capsys.readouterr().err.startswith("study: RDMA: in the guest the tiny model trains")


def test_study_inTheGuestAlone_NeedsNoRightHere(undrawn, doubled, monkeypatch):
    results = doubled()

    def refuse():
        raise command.FabricRunError("no right to make network namespaces here")

    monkeypatch.setattr(command.enclosure, "check_right", refuse)
    assert study("loss", "--variants", "0", "--transports", "RDMA", "--output", results) == 0
    assert study("loss", "--variants", "0", "--transports", "TCP,RDMA", "--output", results.with_name("other")) == 2


def test_study_withoutAGuest_RunsTheOthersAndSaysWhy(undrawn, doubled, monkeypatch, capsys):
    results = doubled()

    def refuse(*_):
        raise command.FabricRunError("the guest cannot be had: no <kernel>")

    monkeypatch.setattr(command.place, "choose", refuse)
    assert study("flap", "--variants", "none", "--transports", "TCP,RDMA", "--output", results) == 1
    assert "RDMA is left out: the guest cannot be had: no <kernel>" in capsys.readouterr().out
    assert json.loads((results / "results.json").read_text())["left_out"] == [
        {"what": "RDMA", "why": "the guest cannot be had: no <kernel>"}
    ]
    assert study("flap", "--transports", "RDMA", "--output", results.with_name("other")) == 2
    assert capsys.readouterr().err == "study: RDMA: the guest cannot be had: no <kernel>\n"


def test_order_ofAnotherKind_IsRefused(tmp_path):
    folder = ResultsFolder.create(tmp_path / "guest")
    folder.write_json(guest_part.ORDER, {"schema": "other"})
    with pytest.raises(RecordError, match="order.json: schema 'other'"):
        guest_part.read_order(folder)
    assert study("in-guest", folder.path) == 2


def run_record(transport, sha):
    return {
        "cell": {"variant": "none", "transport": transport},
        "repeat": 1,
        "folder": "raw/none",
        "t_step_s": [0.1] * 3,
        "t_ar_s": [0.01] * 3,
        "t_exposed_s": [0.01] * 3,
        "step_slowest_s": [0.1] * 3,
        "ar_slowest_s": [0.01] * 3,
        "sha256": sha,
        "lost_frames": 0,
        "fabric_s": 6.0,
        "limited_by": "",
        "ranks": [],
        "capture": {
            "events": [{"bytes": 4e5, "seconds": 0.1}],
            "bytes_by_kind": {},
            "matrix": {
                phase: [{"from": "10.77.0.2", "to": "10.77.0.3", "bytes": 4e5}] for phase in ("before", "training")
            },
        },
    }


def test_render_sweep_ComparesOnOneMachineOnly(tmp_path):
    plan = plan_of(FLAP, "small", transports=ALL_FOUR, variants=("none",), guest=THERE, steps=3)
    folder = ResultsFolder.create(tmp_path / "study")
    runs = [run_record(one, "b" * 64 if one in THERE else "a" * 64) for one in ALL_FOUR]
    folder.write_json(
        "results.json",
        {
            "schema": "gloo-bypass/study/1",
            "study": "flap",
            "state": "complete",
            "plan": plan.as_record(),
            "machine": MACHINE,
            "failures": [],
            "kernel_tcp": {"congestion_control": "bbr"},
            "environment": {},
            "stages": [],
            "repeat_command": "scripts/study flap",
            "runs": runs,
            "guest": {"machine": {"cores": 2, "processor": "QEMU <TCG>", "kernel": "6.1"}},
        },
    )
    _, _, _, made = rendering.render(folder)
    page = folder.place("index.html").read_text()
    assert "<th>DPDK / TCP</th><th>RDMA / TCP-netem</th>" in page and "2 cores of QEMU &lt;TCG&gt;, Linux 6.1" in page
    assert [(one.label, one.met) for one in made.targets] == [
        ("parameters at the end, 2 runs", True),
        ("parameters at the end, 2 runs in the guest", True),
    ]


def test_limit_straggler_IsLongerInTheGuestToo():
    study_of = catalogue.STUDIES["stragglers"]
    plan = plan_of(study_of, "small", transports=("TCP", "RDMA"), guest=("RDMA",), steps=3)
    limits = [commands.run_limit_s(plan, study_of, Cell(name, "RDMA")) for name in ("free", "0.25")]
    assert limits[1] == 4 * limits[0]


@pytest.mark.parametrize(
    "changes, study_of, low, high",
    [
        # DistilGPT2, 25 steps over two transports; half of it on four ranks; the tiny model in the guest, four steps.
        ({"transports": ("TCP", "DPDK"), "guest": (), "steps": 0}, WORLD_SIZE, 3, 8),
        ({"transports": ("TCP",), "guest": (), "steps": 0, "variants": ("ws=4",)}, WORLD_SIZE, 2, 6),
        ({"transports": THERE}, WORLD_SIZE, 1, 4),
        ({"transports": ("RDMA",), "guest": ("RDMA",), "guest_model": "distilgpt2", "steps": 0}, WORLD_SIZE, 120, 3000),
    ],
)
def test_estimate_training_IsMinutesOrHours(changes, study_of, low, high):
    plan = training_plan(**changes)
    found_s = sum(estimates.cell_s(plan, study_of, cell, 2) for cell in cells_of(plan))
    assert low <= found_s / 60 <= high
    assert estimates.in_words(plan, found_s).endswith("hours" if found_s > 7200 else "min")


@pytest.mark.parametrize(
    "variant, loss_percent, transport, took_s",
    [
        ("base", 0.0, "TCP", 37),
        ("base", 0.0, "DPDK", 10),
        ("base", 0.0, "UDP", 27),
        ("100ms", 0.0, "TCP", 92),
        ("100ms", 0.0, "DPDK", 27),
        ("100ms", 0.0, "UDP", 34),
        ("100ms", 1.0, "TCP", 216),
        ("100ms", 1.0, "UDP", 33),
        ("200ms", 0.0, "TCP", 183),
    ],
)
def test_estimate_edgeLatencyAtPublishedSize_IsHalfToTwiceWhatItTook(variant, loss_percent, transport, took_s):
    cell = Cell(variant=variant, transport=transport, segment="default", loss_percent=loss_percent)
    assert took_s / 2 <= estimates.cell_s(plan_of(EDGE, "published"), EDGE, cell, 2) <= took_s * 2


@pytest.mark.parametrize("name", ["flap", "loss", "stragglers"])
def test_estimate_sweep_IsLongerInTheGuest(name):
    study_of = catalogue.STUDIES[name]
    plan = plan_of(study_of, "small", transports=("RDMA",))
    there = plan_of(study_of, "small", transports=("RDMA",), guest=("RDMA",), guest_model=study_of.model)
    for cell in cells_of(plan):
        assert estimates.cell_s(plan, study_of, cell, 2) < estimates.cell_s(there, study_of, cell, 2)
