"""scripts/study techniques: the arithmetic of its tables, its input, and two small trainings over emulated links."""

import argparse
import json
import os
import pathlib
import subprocess

import matplotlib
import pytest
from conftest import MACHINE, ROOT, right_to_namespaces
from gloo_bypass_tools.study import panels
from gloo_bypass_tools.study.commands import model_flags
from gloo_bypass_tools.report import marked_tables
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study.printed import technique_entries as entries
from gloo_bypass_tools.study.printed import technique_runs as stored
from gloo_bypass_tools.study.printed import technique_pictures, techniques, trainer

PAGE = ROOT / "docs/studies/techniques"
SCRIPT = (ROOT / "scripts/study", "techniques")
BUILD = pathlib.Path(os.environ.get("STUDY_BUILD", ROOT / "build"))


def run_of(losses, seconds=1.0, sent=1000, point="p"):
    return techniques.Run(
        point,
        "open",
        "TCP",
        [
            [{"event": "start"}]
            + [
                {
                    "event": "step",
                    "step": number + 1,
                    "loss_mean": loss,
                    "t_step_s": seconds,
                    "bytes_sent": sent,
                    "t_ar_s": 0.1,
                }
                for number, loss in enumerate(losses)
            ]
        ],
    )


def test_Run_Totals_AreOfAllStepsAndMeansLeaveTheFirstOut():
    run = techniques.Run(
        "p",
        "open",
        "TCP",
        [
            [
                {"event": "step", "step": n + 1, "loss_mean": 1.0, "t_step_s": s, "bytes_sent": b, "t_ar_s": 0}
                for n, (s, b) in enumerate([(9, 900), (1, 100), (1, 0), (3, 100), (1, 0)])
            ]
        ],
    )
    assert run.seconds[-1] == 15 and run.bytes[-1] == 1100
    assert run.mean_seconds() == 1.5 and run.mean_bytes() == 50


def test_RanksThatDoNotWait_AreCountedWheneverTheirStepsEnd():
    """The slow rank's first step ends after the fast one's fourth."""
    fast, slow = (
        [{"event": "step", "loss_mean": None, "loss": loss, "t_step_s": seconds, "bytes_sent": 100} for loss in losses]
        for losses, seconds in (([9, 7, 5, 3, 1], 1.0), ([8, 6, 4, 2, 0], 4.5))
    )
    run = techniques.Run("p", "slow rank", "TCP", [fast, slow])
    assert [step["loss_mean"] for step in run.steps] == [8, 4, 4.5, 5, 1]
    assert run.seconds == pytest.approx([2, 4, 5, 13.5, 22.5]) and run.bytes[-1] == 500


def test_Entries_HavePointsThatCanBeNamed():
    for study in entries.STUDIES.values():
        assert not any("," in point for point in study.points) and set(study.ranks) <= set(study.points)


def test_CommonLoss_IsThatOfWhoLearntLeast():
    fast, slow = run_of([5, 4, 3, 2, 1, 0, 0]), run_of([6, 6, 5, 5, 4, 4, 4])
    target = stored.common_loss([fast, slow])
    assert target == pytest.approx(4.4)
    assert fast.reaching(target) == (5, 5.0, 5000) and slow.reaching(target) == (7, 7.0, 7000)


def test_ModelFlags_AreTheTinyModelUnlessFlagsChoose():
    assert model_flags(["--steps", "3"]) == ["--model", "tiny"]
    for flags in (["--model", "gpt2"], ["--model=gpt2"], ["--model-config", "c.json"]):
        assert model_flags(flags) == []
        assert model_flags(flags, entries.EIGHT_BLOCKS) == []
    assert model_flags([], entries.EIGHT_BLOCKS) == list(entries.EIGHT_BLOCKS)


def test_Waiting_IsAShareOfTheSteps_WhereRanksShareAModel():
    def rank(waits):
        return [
            {
                "event": "step",
                "loss_mean": 5,
                "t_step_s": 2.0,
                "t_wait_s": wait,
                "t_barrier_s": 0.1,
                "bytes_sent": 1,
                "t_ar_s": 0,
            }
            for wait in waits
        ]

    run = techniques.Run("p", "open", "TCP", [rank([1.9] + [0.3] * 5), rank([0] + [0.7] * 5)])
    assert run.waiting == pytest.approx(0.3)
    plain = run_of([5] * 6)
    lines = techniques.table([plain, run], plain).splitlines()
    assert "| waiting |" in lines[0] and "| 1.00 x | | 5.000" in lines[2] and "| 0.50 x | 30 % | 5.000" in lines[3]
    assert len({line.count("|") for line in lines}) == 1 and run_of([5] * 6).waiting is None
    # The wait for gradients counts too, where a model has several copies.
    waits = {"t_wait_s": 0.5, "t_barrier_s": 0.1, "t_ar_exposed_s": 0.4}
    assert "| 50 % |" in techniques.table([measured("p", 2.0, 1000, **waits)], None)


def test_Table_StandsAgainstTheFirstPoint():
    first, second = run_of([5] * 6, seconds=2.0), run_of([5] * 6, seconds=0.5, point="q")
    lines = techniques.table([first, second], first).splitlines()
    assert "| 1.00 x |" in lines[2] and "| q | TCP | 1.0 kB | 500 ms | 4.00 x | 5.000 | 5 steps | 2.50 s |" in lines[3]
    assert "| q | TCP | 1.0 kB | 500 ms | | 5.000 |" in techniques.table([second], None)


# ---- Runs that fail.


@pytest.fixture
def measuring(study, monkeypatch, tmp_path):
    """Measures two points over two links by a double: `fault(point, link)` is raised where it is not None."""
    for name in techniques.PROGRAMS:
        program = tmp_path / "build" / name
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
    for check in ("check_tools", "check_right"):
        monkeypatch.setattr(techniques.enclosure, check, lambda: None)

    def measure(fault, *more):
        def train(_given, _study, point, link, transport):
            if (why := fault(point, link)) is not None:
                raise why
            return measured(point, 2.0, 1000, link, transport)

        monkeypatch.setattr(techniques, "train", train)
        words = ("techniques", "compression", "--points", "none,bf16", "--links", "open,50Mbit", "--steps", 6)
        return study(*words, "--build", tmp_path / "build", *more)

    return measure


def test_ARunThatFails_IsSaid_AndTheOthersGoOn(measuring, tmp_path):
    def fault(point, link):
        return RuntimeError("none, open, TCP: it was slow") if (point, link) == ("none", "open") else None

    status, output, errors = measuring(fault, "--json", tmp_path / "a-run.json", "--output", tmp_path / "out")
    assert status == 1 and errors.count("not measured: none, open, TCP: it was slow\n") == 1
    assert [line.split("|")[5].strip() for line in output.splitlines() if line.startswith("| bf16")] == ["", "1.00 x"]
    assert [(row.link, row.point) for row in stored.read(tmp_path / "a-run.json").rows] == [
        ("open", "bf16"),
        ("50Mbit", "none"),
        ("50Mbit", "bf16"),
    ]
    lines = {name: len((tmp_path / f"out/{name}.csv").read_text().splitlines()) for name in ("open", "50Mbit")}
    assert lines == {"open": 1 + 6, "50Mbit": 1 + 12} and (tmp_path / "out/open.svg").exists()
    # What failed is measured with the rest's file.
    status, output, _ = measuring(lambda *_: None, "--json", tmp_path / "a-run.json")
    assert status == 0 and output.startswith("1 runs") and len(stored.read(tmp_path / "a-run.json").rows) == 4


def test_Interrupted_EndsAllAndKeepsWhatIsMeasured(measuring, tmp_path):
    status, output, _ = measuring(
        lambda point, _: KeyboardInterrupt() if point == "bf16" else None, "--output", tmp_path / "out"
    )
    assert status == 130 and "| none | TCP |" in output and "50Mbit (" not in output
    assert len((tmp_path / "out/open.csv").read_text().splitlines()) == 1 + 6


def test_FileThatCannotBeWritten_PrintsTheTableFirst(measuring):
    status, output, errors = measuring(lambda *_: None, "--json", "/dev/full")
    assert status == 1 and "| none | TCP |" in output and errors.splitlines()[-1].endswith("No space left on device")


@pytest.mark.parametrize(
    "asked, estimate_s, limit_s",
    [(None, 1700.0, 34_000), (None, 9.0, 600), (None, None, 86_400), (None, 1e6, 604_800), (900, 1700.0, 900)],
)
def test_Limit_OfARun_FollowsItsEstimate(asked, estimate_s, limit_s):
    assert trainer.limit_s(asked, estimate_s) == limit_s


def test_Limit_IsFabricRuns(monkeypatch, tmp_path):
    taken = []

    def run(words, _name):
        taken.append(words)
        raise RuntimeError

    monkeypatch.setattr(trainer, "run", run)
    given = argparse.Namespace(flags=[], ranks=2, steps=100, timeout=None, build=tmp_path)
    study = entries.STUDIES["compression-distilgpt2"]
    with pytest.raises(RuntimeError):
        techniques.train(given, study, "none", "200Mbit", "TCP")
    (words,) = taken
    assert words[words.index("--timeout") + 1] > 10 * 1700  # which plain steps take here


# ---- Stored runs.


def measured(point, seconds, sent, link="open", transport="TCP", **more):
    """A techniques.Run of six steps."""
    step = {
        "event": "step",
        "loss_mean": 5,
        "t_step_s": seconds,
        "bytes_sent": sent,
        "t_ar_s": 0.1,
        "t_ar_exposed_s": 0.1,
    }
    return techniques.Run(point, link, transport, [[step | more | {"step": number} for number in range(6)]])


def stored_file(tmp_path, *runs, study="compression", name="a-run.json", **changes):
    described = {"commit": "0123abc", "load_before": 0.1, "processor": "A", "cores": 2, "memory_gib": 8.0}
    described |= {"operating_system": "Debian", "kernel": "6", "programs": {"ddp_train": "a" * 64}}
    described |= {"files": {}, "environment": {}, "kernel_tcp": {"congestion_control": "bbr"}}
    text = stored.text_of(described, 0.02, study, 2, ["--batch-size", "4"], map(stored.row_record, runs))
    path = tmp_path / name
    path.write_text(json.dumps(json.loads(text) | changes))
    return path


def test_StoredRun_IsWhatWasMeasured(tmp_path):
    costs = {"t_compress_s": 0.25, "t_decompress_s": 0.125}
    path = stored_file(tmp_path, measured("none", 2.0, 8_000_000), measured("bf16", 2.5, 4_000_000, **costs))
    run = stored.read(path)
    assert (run.study, run.ranks, run.flags, run.machine["cores"]) == ("compression", 2, ("--batch-size", "4"), 2)
    assert run.at("open", "TCP", "none").compress_s is None and run.at("open", "TCP", "none").exposed_s == 0.1
    row = run.at("open", "TCP", "bf16")
    assert row.steps_s == (2.5,) * 5 and (row.compress_s, row.decompress_s, row.sent_bytes) == (0.25, 0.125, 4_000_000)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"schema": "x"}, "schema 'x'"),
        ({"study": "moon"}, "no study 'moon'"),
        ({"rows": []}, "'rows' is empty"),
        ({"rows": [{"link": "moon", "point": "none"}]}, "no link 'moon'"),
        ({"rows": [{"link": "open", "point": "moon"}]}, "no point 'moon'"),
        ({"rows": [{"link": "open", "point": "none", "steps_s": []}]}, "'steps_s' is empty"),
        ({"rows": [{"link": "open", "point": "none", "steps_s": [0]}]}, "steps_s"),
        ({"rows": [{"link": "open", "point": "none", "steps_s": [1.0], "losses": [1.0]}]}, "no 'sent_bytes'"),
        ({"more": 1}, "'more' is unknown"),
    ],
)
def test_StoredRun_Damaged_IsRefused(tmp_path, changes, said):
    with pytest.raises(RecordError, match=said):
        stored.read(stored_file(tmp_path, measured("none", 2.0, 8_000_000), **changes))


def test_GoingOn_WithWhatWasMeasuredOtherwise_IsRefused(tmp_path, monkeypatch):
    text, path = tmp_path / "text", tmp_path / "a-run.json"
    text.write_text("before")
    given = argparse.Namespace(
        json=path, study="compression", ranks=2, flags=[f"--data={text}"], steps=6, build=tmp_path
    )

    def begun():
        return techniques.begun(given, MACHINE | {"commit": "0123abc"} | techniques.set_up(given))

    described = MACHINE | {"commit": "0123abc"} | techniques.set_up(given)
    techniques.write_stored(given, described, 0.0, None, [stored.row_record(measured("none", 2.0, 8_000_000))])
    assert list(begun().files) == ["--data"] and begun().kernel_tcp == described["kernel_tcp"]
    with monkeypatch.context() as changed, pytest.raises(RecordError, match="differs in environment: choose another"):
        changed.setenv("GLOO_BYPASS_CONGESTION_CONTROL", "bbr")
        begun()
    with monkeypatch.context() as changed, pytest.raises(RecordError, match="differs in kernel_tcp"):
        changed.setattr(techniques, "kernel_tcp", lambda: {"congestion_control": "another"})
        begun()
    text.write_text("after")
    with pytest.raises(RecordError, match="differs in files"):
        begun()
    text.write_text("before")
    # An older file, which does not say it.
    record = json.loads(path.read_text())
    del record["kernel_tcp"]
    path.write_text(json.dumps(record))
    assert stored.read(path).kernel_tcp == {}
    with pytest.raises(RecordError, match="differs in kernel_tcp"):
        begun()


@pytest.mark.parametrize("load, quiet", [(2.16, False), (0.1, True)])
def test_Section_SaysWhetherTheMachineWasQuiet(tmp_path, load, quiet):
    run = stored.read(stored_file(tmp_path, measured("none", 2.0, 8_000_000), load_before=load))
    text = stored.section(run)
    assert text.startswith(stored.table(run)) and f"2 cores of A, Linux 6, {run.date}; load {load:.2f} before" in text
    assert ("not quiet" not in text) == quiet


def test_BreakEven_IsWhereCostAndSavingAreEqual(tmp_path):
    """Half a second more computing, 4 MB less to send: 64 Mbit/s."""
    runs = [measured("none", 2.0, 8_000_000), measured("bf16", 2.5, 4_000_000), measured("sign", 1.9, 1_000_000)]
    run = stored.read(stored_file(tmp_path, *runs, measured("qsgd 16", 2.5, 9_000_000)))
    plain, bf16, sign = (run.at("open", "TCP", point) for point in ("none", "bf16", "sign"))
    assert stored.break_even(plain, bf16) == pytest.approx(64e6) and stored.break_even(plain, sign) is None
    lines = stored.table(run).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["", "below 64", "at any", "at none"]


def test_Table_HasALineForEachPointAndACellForEachLink(tmp_path):
    runs = [
        measured(point, seconds, 1_000_000, link, transport)
        for link, slow in (("open", 0), ("200Mbit", 2))
        for transport, more in (("TCP", 0), ("DPDK", 0.5))
        for point, seconds in (("none", 2 + slow + more), ("bf16", 1 + slow + more))
    ]
    header, _, none, bf16 = stored.table(stored.read(stored_file(tmp_path, *runs))).splitlines()
    assert "200Mbit: step in s, TCP; DPDK" in header
    assert "| 4.00 (1.00 x); 4.50 (0.89 x) |" in none and "| 3.00 (1.33 x); 3.50 (1.14 x) |" in bf16


def test_Table_WithoutTheFirstPoint_HasTimesWithoutRatios(tmp_path):
    cells = (("none", 2.0, "50Mbit"), ("bf16", 4.0, "50Mbit"), ("bf16", 2.5, "open"))
    rows = [measured(point, seconds, 1_000_000, link) for point, seconds, link in cells]
    for rows in (rows, rows[::-1]):
        _, _, first, second = stored.table(stored.read(stored_file(tmp_path, *rows))).splitlines()
        assert "| none | 1 MB | - | 2.00 (1.00 x) |" in first and "| bf16 | 1 MB | 2.50 | 4.00 (0.50 x) |" in second


def test_Table_HasWhatRanksWaitForEachOther_WhereTheyShareAModel(tmp_path):
    waits = {"t_wait_s": 1.0, "t_barrier_s": 0.5}
    runs = [measured("data parallel", 2.0, 1_000_000), measured("tensor", 3.0, 1_000_000, **waits)]
    run = stored.read(stored_file(tmp_path, *runs, study="parallelism"))
    assert [row.waiting for row in run.rows] == [None, 0.5]
    header, _, plain, tensor = stored.table(run).splitlines()
    assert "| open: step in s, TCP | waiting |" in header and "compressing" not in header
    assert "common loss" not in header  # all have the same
    # With the tenth of a second for which it only waits for gradients.
    assert "| 2.00 (1.00 x) |  |" in plain and "| 3.00 (0.67 x) | 53 % |" in tensor


def learning(point, losses, seconds):
    """A run of one link whose loss falls like this."""
    made = measured(point, seconds, 1_000_000)
    for step, loss in zip(made.steps, losses, strict=True):
        step["loss_mean"] = loss
    return made


def test_Table_HasTheTimeToTheCommonLoss(tmp_path):
    runs = [
        learning("none", [9.0, 8.0, 7.0, 6.0, 5.0, 4.0], 2.0),
        learning("bf16", [9.0, 8.5, 8.0, 7.5, 7.0, 6.5], 1.0),
    ]
    run = stored.read(stored_file(tmp_path, *runs))
    assert stored.common_loss(run.rows) == 7.5  # of bf16's last five steps
    header, _, none, bf16 = stored.table(run).splitlines()
    assert "open: to the common loss of 7.50, TCP" in header
    assert "| 5 steps, 10 s |" in none and "| 6 steps, 6 s |" in bf16
    # An older run has no losses, and the table no such column.
    record = json.loads((tmp_path / "a-run.json").read_text())
    for row in record["rows"]:
        del row["losses"], row["first_s"]
    for name in stored.SET_UP:
        del record[name]
    (tmp_path / "a-run.json").write_text(json.dumps(record))
    assert "common loss" not in stored.table(stored.read(tmp_path / "a-run.json"))


def test_Estimate_IsOfAPlainStep():
    def given(flags=(), steps=10):
        return argparse.Namespace(flags=list(flags), steps=steps, ranks=2)

    study = entries.STUDIES["compression-distilgpt2"]
    slow, quick = (techniques.estimate_s(given(), study, "bf16", link) for link in ("200Mbit", "open"))
    assert slow == pytest.approx(6 + 10 * (2.4 + 327.65 * 8 / 200 + 4e-3 / 2) + 13.1, rel=0.02) and quick < slow
    tiny = techniques.estimate_s(given(["--model=tiny"]), study, "bf16", "open")
    assert tiny == pytest.approx(6 + 10 * 0.05, rel=0.05)
    assert techniques.estimate_s(given(["--model", "gpt2"]), study, "bf16", "open") is None
    assert techniques.estimate_s(given(["--batch-size=2"]), study, "bf16", "open") is None


def test_Draw_RenewsThePage(tmp_path):
    stored_file(tmp_path, measured("none", 2.0, 8_000_000))
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- table: a -->\nold\n<!-- end of table -->\nafter\n")
    ended = subprocess.run([*SCRIPT, "--draw", tmp_path], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "| none | 8 MB |" in page.read_text() and "old" not in page.read_text()
    assert "load 0.10 before" in page.read_text()
    assert "loss, mean of 5 steps" in (tmp_path / "a.svg").read_text()
    page.write_text("<!-- table: b -->\n<!-- end of table -->\n")
    ended = subprocess.run([*SCRIPT, "--draw", tmp_path], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "nobody makes the table 'b'; there are a" in ended.stderr


RENEW = "scripts/study techniques --draw docs/studies/techniques"


def test_Page_InTheTree_HasTheTablesOfItsRuns():
    text = (PAGE / marked_tables.PAGE).read_text()
    assert stored.renewed(text, PAGE) == text, RENEW
    for path in PAGE.glob(f"*{marked_tables.RUN}"):
        assert f"<!-- table: {path.name.removesuffix(marked_tables.RUN)} -->" in text, f"{path.name} has no table"


def test_Page_InTheTree_HasAPictureOfEachRunWithLosses():
    text, pictures = (PAGE / marked_tables.PAGE).read_text(), technique_pictures.pictures_of(PAGE)
    assert {path.name for path in pictures} == {path.name for path in PAGE.glob("*.svg")}, RENEW
    assert pictures and all(f"]({path.name})" in text for path in pictures)


@pytest.mark.skipif(matplotlib.__version__ != "3.6.3", reason="another Matplotlib than Debian 12's draws other bytes")
def test_Pictures_InTheTree_AreThoseOfTheirRuns(tmp_path):
    for path, run in technique_pictures.pictures_of(PAGE).items():
        panels.write_same(lambda run=run: technique_pictures.figure_of(run), tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), RENEW


def test_TooFewSteps_AreRefused():
    with pytest.raises(ValueError):
        run_of([1] * (techniques.WINDOW - 1))


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["compression", "--links", "moon"], "'moon' is none of"),
        (["compression", "--points", "zip"], "'zip' is none of"),
        (["nothing"], "invalid choice"),
        (["sharding", "--steps", "2"], "5 at least"),
        (["sharding", "--", "--steps", "20"], '--steps after "--": it is an option of the study'),
        (["sharding", "--points", "zero 1,zero 2", "--", "--zero=3"], "--zero after \"--\": point 'zero 2' sets it"),
        ([], "say which study"),
        (["--draw", "/no/such"], "/no/such/README.md: No such file"),
    ],
)
def test_BadInput_IsOneLineAndStatusTwo(arguments, reason):
    ended = subprocess.run([*SCRIPT, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and reason in ended.stderr.splitlines()[-1]


@pytest.mark.skipif(not (BUILD / "trainer/ddp_train").exists(), reason="the trainer is not built")
def test_EveryPoint_IsKnownToTheTrainer():
    text = subprocess.run([BUILD / "trainer/ddp_train", "--help"], capture_output=True, text=True, timeout=60).stdout
    flags = {
        flag
        for study in entries.STUDIES.values()
        for point in study.points.values()
        for flag in point.split()
        if flag.startswith("--")
    }
    assert flags and not {flag for flag in flags if flag not in text}


@pytest.mark.skipif(
    bool(right_to_namespaces())
    or not (BUILD / "tools/fabric/fabric").exists()
    or not (BUILD / "trainer/ddp_train").exists(),
    reason=right_to_namespaces() or "the fabric or the trainer is not built",
)
def test_TwoPoints_AreMeasuredAndWritten(tmp_path):
    ended = subprocess.run(
        [
            *SCRIPT,
            "compression",
            "--points",
            "none,topk 1 %",
            "--links",
            "open",
            "--steps",
            "6",
            "--build",
            BUILD,
            "--output",
            tmp_path / "out",
            "--json",
            tmp_path / "a-run.json",
            "--",
            "--seq-length",
            "16",
        ],
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [line for line in ended.stdout.splitlines() if line.startswith(("| none", "| topk"))]
    assert [float(row.split("|")[3].split()[0]) > 100 for row in rows] == [True, False]  # kB a step
    assert len((tmp_path / "out/open.csv").read_text().splitlines()) == 13
    assert "svg" in (tmp_path / "out/open.svg").read_text()
    run = stored.read(tmp_path / "a-run.json")
    assert run.of("point") == ["none", "topk 1 %"] and run.flags == ("--seq-length", "16")
    assert run.at("open", "TCP", "topk 1 %").compress_s > 0 and len(run.rows[0].steps_s) == 5
    # Once more: what is there is not measured again, what is missing is.
    words = [
        *SCRIPT,
        "compression",
        "--links",
        "open",
        "--steps",
        "6",
        "--build",
        BUILD,
        "--json",
        tmp_path / "a-run.json",
    ]
    words += ["--points", "sign,topk 1 %,none", "--", "--seq-length", "16"]
    again = subprocess.run(words, capture_output=True, text=True, timeout=170)
    assert again.returncode == 0 and "1 runs" in again.stdout, again.stderr
    more = stored.read(tmp_path / "a-run.json")
    assert more.rows[:2] == run.rows and more.of("point") == ["none", "topk 1 %", "sign"]  # whatever the order
    assert "to the common loss" in again.stdout
    other = subprocess.run([*words, "--dropout", "0.1"], capture_output=True, text=True, timeout=60)
    assert other.returncode == 2 and "differs in flags: choose another file" in other.stderr
