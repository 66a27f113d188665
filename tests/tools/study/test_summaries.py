"""scripts/study keep: what it keeps of a study of each layout, what it refuses, and the tables of the page."""

import json
import math
import re

import pytest
from conftest import MACHINE, ROOT, RUNS, study_folder
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.study import catalogue, command
from gloo_bypass_tools.study.plan import plan_of
from gloo_bypass_tools.study.summaries import keeping, stored, tables
from gloo_bypass_tools.study.summaries.lines import Line

COMMIT = "0123abcdef"
BATCH = catalogue.STUDIES["batch-size"]


def trained(variant, transport, step_s):
    return {
        "cell": {"variant": variant, "transport": transport},
        "repeat": 1,
        "t_step_s": [step_s, 2 * step_s],
        "t_ar_s": [step_s / 2, step_s / 2],
        "loss": 3.0,
        "sha256": "a" * 64,
        "ranks": [{"rank": 0, "cpu_percent": 150.0, "peak_bytes": 2**31}],
        "capture": {
            "events": [{"bytes": 686e6, "seconds": 4.0}],
            "total_bytes": 2e9,
            "total_s": 40.0,
            "bytes_by_kind": {},
            "matrix": {"before": [], "training": []},
        },
    }


def training_folder(path, **changes):
    folder = ResultsFolder.create(path)
    plan = plan_of(BATCH, "published", variants=("bs=8", "bs=16"))
    record = {
        "schema": "gloo-bypass/study/1",
        "study": "batch-size",
        "state": "complete",
        "plan": plan.as_record(),
        "machine": MACHINE | {"commit": COMMIT},
        "failures": [],
        "left_out": [],
        "kernel_tcp": {"congestion_control": "bbr"},
        "environment": {},
        "programs": {"trainer": "a" * 64},
        "stages": [{"seconds": 30.0}, {"seconds": 33.0}],
        "repeat_command": "scripts/study batch-size --build /a/b --scale published --output=/c",
        "runs": [trained(*one) for one in (("bs=8", "TCP", 4.0), ("bs=8", "DPDK", 5.0), ("bs=16", "TCP", 8.0))],
    }
    folder.write_json("results.json", record | changes)
    return folder.path


@pytest.fixture
def kept(tmp_path):
    """Two runs of a study in a folder like docs/studies."""
    into = tmp_path / "studies"
    into.mkdir()
    (into / "results.md").write_text("# Results\n\n<!-- table: batch-size -->\n<!-- end of table -->\n")
    (into / "README.md").write_text("<!-- table: glance -->\n<!-- end of table -->\n")
    for date in ("2026-01-01", "2026-01-02"):
        machine = MACHINE | {"commit": COMMIT, "date": f"{date} 00:00 UTC"}
        path = training_folder(tmp_path / date, machine=machine)
        assert command.main(["keep", str(path), "--into", str(into)]) == 0
    return into


def test_Keep_OfTraining_HasEveryFigureAndWhatItWasMeasuredOn(kept):
    runs = stored.read_all(kept / "runs")["batch-size"]
    assert [one.name for one in sorted((kept / "runs").iterdir())] == ["batch-size-1", "batch-size-2"]
    run = runs[0]
    assert (run.commit, run.seconds, run.machine["cores"], run.date.isoformat()) == (COMMIT, 63.0, 2, "2026-01-01")
    found = {(one.metric, one.statistic, one.transport): one for one in run.lines if one.table == "5.8"}
    step = found["t_step", "median", "DPDK"]  # bs=8 alone
    assert (step.published, step.measured, step.unit, step.model) == (20296.0, 7500.0, "ms", None)
    event = next(one for one in run.lines if one.metric == "bytes_per_event" and one.statistic == "median")
    assert event.measured == 686 and event.model == pytest.approx(686, rel=0.01)


def test_Kept_Files_AreReadAsWritten(kept):
    folder = kept / "runs/batch-size-1"
    run = stored.read(folder)
    assert stored.files_of(run) == {name: (folder / name).read_bytes() for name in ("run.json", "summary.csv")}


# Of more digits than the file has, the last of which decides how the page rounds.
def test_Keep_ShowsTheFiguresThatItStores(kept, tmp_path):
    seconds = 4.0 * 6.0150000001 / 6.0
    path = training_folder(tmp_path / "more", runs=[trained("bs=8", "TCP", seconds)])
    assert command.main(["keep", str(path), "--into", str(kept)]) == 0
    page = kept / "results.md"
    assert tables.renewed(page.read_text(), stored.read_all(kept / "runs"), page) == page.read_text()


def test_Page_ShowsRunsSideBySide_AndWhatIsSlower(kept, capsys):
    text = (kept / "results.md").read_text()
    assert "| T_step | bs=8 | 20.3 s | 6.00; 6.00 s | **7.50; 7.50 s** |" in text
    assert re.search(r"\| bytes of an event \| bs=8 \| 656 MB \| 686; 686 MB \((1.00|0.99)\d\) \|", text)
    assert (
        "2. `scripts/study batch-size --scale published`, commit 0123abc, 2 cores of A Processor <script>, Linux 6.1"
        in text
    )
    line = "| [batch-size](results.md#batch-size) | step, 2 ranks, 16 samples each | 29.4 s | 12.0 s | - |"
    assert line in (kept / "README.md").read_text()
    assert command.main(["keep", "--into", str(kept)]) == 0 and "renewed" not in capsys.readouterr().out


# Such as threads, on which times depend.
def test_Page_RunsOfOtherSettings_NamesThem(kept, tmp_path):
    machine = MACHINE | {"commit": COMMIT, "date": "2026-01-04 00:00 UTC"}
    settings = {"OMP_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "HASWELL"}
    path = training_folder(tmp_path / "more", machine=machine, environment=settings)
    assert command.main(["keep", str(path), "--into", str(kept)]) == 0
    lines = [line for line in (kept / "results.md").read_text().splitlines() if "`scripts/study" in line]
    assert [line.endswith("; OMP_NUM_THREADS=2; OPENBLAS_CORETYPE=HASWELL") for line in lines] == [False, False, True]


@pytest.mark.parametrize(
    "page, said",
    [
        ("<!-- table: barrier -->\n<!-- end of table -->\n", "no place for the table of 'batch-size'"),
        (
            "<!-- table: batch-size -->\n<!-- end of table -->\n<!-- table: barrier -->\n<!-- end of table -->\n",
            "nobody",
        ),
    ],
)
def test_Page_WithOtherTablesThanTheKeptRuns_IsRefused(kept, capsys, page, said):
    (kept / "results.md").write_text(page)
    assert command.main(["keep", "--into", str(kept)]) == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize(
    "date, plan, said",
    [
        ("2026-01-02 00:00 UTC", {}, "is kept already"),
        ("2026-01-03 00:00 UTC", {"steps": 4}, "its steps is 4, and that of the kept runs 0"),
        ("2026-01-03 00:00 UTC", {"mtu": 9000}, "its mtu is 9000, and that of the kept runs 1500"),
    ],
)
def test_Keep_OfWhatCannotStandBesideTheKept_IsRefusedAndLeavesNothing(kept, tmp_path, capsys, date, plan, said):
    machine = MACHINE | {"commit": COMMIT, "date": date}
    changed = plan_of(BATCH, "published", **{"variants": ("bs=8", "bs=16")} | plan).as_record()
    path = training_folder(tmp_path / "other", machine=machine, plan=changed)
    new = training_folder(tmp_path / "new", machine=MACHINE | {"commit": COMMIT, "date": "2026-01-04 00:00 UTC"})
    assert command.main(["keep", str(new), str(path), "--into", str(kept)]) == 2
    assert said in capsys.readouterr().err
    assert sorted(one.name for one in (kept / "runs").iterdir()) == ["batch-size-1", "batch-size-2"]


def test_Numbers_OfKeptRuns_AreNotUsedAgain(kept, tmp_path):
    (kept / "runs/batch-size-1/run.json").unlink()
    (kept / "runs/batch-size-1/summary.csv").unlink()
    (kept / "runs/batch-size-1").rmdir()
    path = training_folder(tmp_path / "third", machine=MACHINE | {"commit": COMMIT, "date": "2026-01-05 00:00 UTC"})
    assert command.main(["keep", str(path), "--into", str(kept)]) == 0 and (kept / "runs/batch-size-3").exists()


def test_Keep_OfADamagedRecord_IsOneLine(tmp_path, capsys):
    for change in ({"runs": [{"cell": {}}]}, {"stages": [{}]}, {"kernel_tcp": None}):
        path = training_folder(tmp_path / str(len(str(change))), **change)
        assert command.main(["keep", str(path), "--into", str(tmp_path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_Runs_WithAnotherFolder_AreRefused(kept):
    (kept / "runs/notes").mkdir()
    with pytest.raises(RecordError, match="is no folder of a kept run"):
        stored.read_all(kept / "runs")


def test_Lines_OfSweepsAndEdges_HaveTheSameForm(tmp_path):
    folder = study_folder(tmp_path / "edge", runs=RUNS)
    record = json.loads((folder.path / "results.json").read_text())
    record["machine"]["commit"] = COMMIT
    folder.write_json("results.json", {"left_out": [], "programs": {}, "failures": []} | record)
    made = stored.read(stored.write(keeping.run_of(folder.path, {}), tmp_path))
    assert {one.metric for one in made.lines} == {"t_ar"} and {one.statistic for one in made.lines} == {"median", "p99"}
    assert any("1 % lost" in one.variant for one in made.lines)
    assert all(one.unit == "s" and one.measured > 0 for one in made.lines)
    text = tables.table(catalogue.STUDIES["edge-latency"], [made])
    assert text.startswith("|  |  | published |") and text.count("\n") == 1 + len(tables.by_figure(STUDY, [made]))


STUDY = catalogue.STUDIES["edge-latency"]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"state": "interrupted"}, "not complete"),
        ({"failures": [{"stage": "x", "reason": "y", "log": "z"}]}, "not complete"),
        ({"machine": MACHINE | {"commit": f"{COMMIT} with uncommitted changes"}}, "'commit' is"),
        ({"guest": {"machine": {}}}, "in a guest"),
    ],
)
def test_Keep_OfWhatIsNotWhole_IsRefusedAndLeavesNothing(tmp_path, capsys, changes, said):
    path = training_folder(tmp_path / "results", **changes)
    assert command.main(["keep", str(path), "--into", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "old, new, said",
    [
        (",686,", ",x,", "measured is 'x', not a finite number"),
        ("t_step", "", "column 'metric' is ''"),
        ("table,variant", "variant,table", "the first line is not table,variant"),
    ],
)
def test_Read_OfADamagedSummary_NamesTheLine(kept, old, new, said):
    path = kept / "runs/batch-size-1/summary.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RecordError, match="summary.csv:[0-9]+: .*" + said.replace("(", "[(]")):
        stored.read(path.parent)


def test_Read_OfAnotherStudysFolder_IsRefused(kept):
    (kept / "runs/batch-size-1").rename(kept / "runs/barrier-1")
    with pytest.raises(RecordError, match="is of the study 'batch-size'"):
        stored.read_all(kept / "runs")


def line(transport, metric, measured, model=None):
    return Line("", "bs=8", metric, "median", "s", transport, None, measured, model)


@pytest.mark.parametrize(
    "metric, value, slower",
    [
        ("t_step", 1.02, True),
        ("t_step", 1.005, False),
        ("busbw", 0.98, True),
        ("busbw", 1.2, False),
        ("oh_ar", 9, False),
    ],
)
def test_Slower_IsByWhatTheMetricMeans(metric, value, slower):
    assert tables.is_slower(metric, value, 1.0) == slower


def test_Cell_WithoutRuns_IsADash():
    assert tables.cell((), 1.0) == "-"
    assert tables.cell([line("TCP", "t_step", 2.0, 1.0)], None) == "2.00 s (2.000)"


def test_Page_InTheTree_HasHowFarBytesAreFromTheModel():
    off = {True: 0.0, False: 0.0}  # by whether it is over TCP
    for run in (one for runs in stored.read_all(ROOT / "docs/studies/runs").values() for one in runs):
        for line in run.lines:
            figure = line.metric, line.statistic
            if figure == ("bytes_per_event", "median") and line.model and tables.FLOW not in line.variant:
                is_tcp = line.transport == "TCP"
                off[is_tcp] = max(off[is_tcp], abs(100 * (line.measured / line.model - 1)))
    text = " ".join((ROOT / "docs/studies/README.md").read_text().split())
    said = re.search(r"agree with the model within ([\d.]+) % \(TCP's, [^)]*within ([\d.]+) %\)", text)
    assert list(map(float, said.groups())) == [math.ceil(10 * off[is_tcp]) / 10 for is_tcp in (False, True)]


@pytest.mark.parametrize("name, renewed", [("results.md", tables.renewed), ("README.md", tables.renewed_glance)])
def test_Page_InTheTree_HasTheTablesOfItsRuns(name, renewed):
    page, kept = ROOT / "docs/studies" / name, stored.read_all(ROOT / "docs/studies/runs")
    text = page.read_text()
    assert kept and renewed(text, kept, page) == text, "scripts/study keep"
