"""scripts/study collectives: its cells, what it reads, its model, its tables and its page; and a tiny study itself."""

import json
import os
import pathlib
import subprocess
from types import SimpleNamespace

import pytest
from conftest import ROOT
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.fabric_run.failures import FabricRunError
from gloo_bypass_tools.model import steps
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study.collectives import links, measurement, predictions, stored, tables
from gloo_bypass_tools.study.printed import collectives as command

SCRIPT = (ROOT / "scripts/study", "collectives")
BUILD = pathlib.Path(os.environ.get("STUDY_BUILD", ROOT / "build"))
PAGE = ROOT / "docs/studies/collectives"
ALGORITHMS = ["one-shot", "direct", "ring", "two-level-ring"]
SCHEDULE = BUILD / "tools/schedule/schedule"
needs_schedule = pytest.mark.skipif(not SCHEDULE.exists(), reason=f"{SCHEDULE} is not built")


def why_no_study():
    for name in command.PROGRAMS:
        if not (BUILD / name).exists():
            return f"{BUILD / name} is not built"
    try:
        enclosure.check_tools()
        enclosure.check_right()
    except FabricRunError as error:
        return str(error)
    return ""


# ---- What is compared.


@pytest.mark.parametrize("effort", links.EFFORTS)
def test_Cells_EachEffort_GoOverEveryLink(effort):
    cells = measurement.cells_of(links.EFFORTS[effort], links.LINKS)
    assert {cell.link.name for cell in cells} == {
        link.name for link in links.LINKS if link.ranks(links.EFFORTS[effort])
    }
    assert all(size % 4 == 0 for cell in cells for size in cell.band.sizes())
    assert all(cell.ranks >= cell.link.least_ranks for cell in cells)


def test_Contenders_OfALink_HaveEachAlgorithmOnce_AndTwoLevelsWhereHostsAreShared():
    runs = measurement.Measurement("build", "folder", "output", ALGORITHMS)
    for link in links.LINKS:
        cells = [cell for cell in measurement.cells_of(links.EFFORTS["short"], [link]) if cell.ranks == 4]
        one_band = [cell for cell in cells if cell.band is cells[0].band]
        names = [name for cell in one_band for name in runs.contenders(cell)]
        assert len(set(names)) == len(names) and {"one-shot", "ring", links.GLOO} <= set(names)
        assert ("two-level-ring" in names) == link.shared
        assert link.default is None or link.default in names


def test_TwoHosts_HaveHalfOfTheRanksEach():
    assert links.BY_NAME["two-hosts"].hosts(4) == (0, 0, 1, 1) and links.BY_NAME["hosts"].hosts(4) == ()


# ---- What is read.


def report(wrong=0, described="2 ranks of one host: flat shared memory, 1 thread each"):
    figures = {"wrong": wrong, "p50_us": 2.0, "p99_us": 3.0, "round_time_us": [2.0, 2.5]}
    return {
        "schema": "gloo-bypass/all_reduce_perf/1",
        "build": {"commit": "0123abc"},
        "ranks": [{"devices": {"DPDK": "memif", "DPDK/own": described}}] * 2,
        "results": [{"size": 64, "transports": [{"transport": name, **figures} for name in ("DPDK", "DPDK/own")]}],
    }


def figures(tmp_path, record):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(record))
    return measurement.figures_of(path, {links.GLOO: "DPDK", links.FLAT: "DPDK/own"})


def test_Report_Sound_GivesRowsByContender(tmp_path):
    commit, rows = figures(tmp_path, report())
    assert commit == "0123abc" and [row["contender"] for row in rows] == [links.GLOO, links.FLAT]
    assert rows[1] == {"bytes": 64, "contender": "flat", "p50_us": 2.0, "p99_us": 3.0, "rounds_us": [2.0, 2.5]}


@pytest.mark.parametrize(
    "change, said", [({"wrong": 3}, "3 elements"), ({"described": "2 ranks over memif in /x"}, "another executor")]
)
def test_Report_WrongSumOrExecutor_IsRefused(tmp_path, change, said):
    with pytest.raises(measurement.CellError, match=said):
        figures(tmp_path, report(**change))


def test_Report_FlatMemoryUnderAnAlgorithmsName_IsRefused():
    with pytest.raises(measurement.CellError, match="ring: rank 0 has another executor"):
        measurement.check_executor("ring", "DPDK/own:ring", [{"DPDK/own:ring": "flat shared memory"}])


def test_Repeats_MedianOfMediansAndWorstTail():
    rows = [{"p50_us": one, "p99_us": 10 * one, "rounds_us": [one]} for one in (3.0, 1.0, 2.0)]
    row = measurement.row_of(("hosts", 2, 64, "ring"), rows)
    assert (row["p50_us"], row["p99_us"], row["rounds_us"]) == (2.0, 30.0, [3.0, 1.0, 2.0])
    assert measurement.row_of(("hosts", 2, 64, "ring"), rows[:2])["p50_us"] == 2.0, "of an even number too"


# ---- The model, on the schedules that ranks execute.


@pytest.fixture(name="program")
def fixture_program():
    return predictions.Program(SCHEDULE)


@needs_schedule
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_Schedules_OnLinksOfTheirOwn_TakeWhatTheLiteratureSays(program, ranks):
    """R. Thakur, R. Rabenseifner, W. Gropp, 2005. Vectors of one slice."""
    alpha, beta, size = 1e-3, 1e6, 64 * ranks * 16
    link, byte_s = steps.Link(alpha, beta), size / beta
    wanted = {
        "one-shot": alpha + byte_s,
        "direct": 2 * (alpha + byte_s / ranks),
        "ring": 2 * (ranks - 1) * (alpha + byte_s / ranks),
    }
    if ranks & (ranks - 1) == 0:
        rounds = ranks.bit_length() - 1
        wanted["halving-doubling"] = 2 * rounds * alpha + 2 * byte_s * (ranks - 1) / ranks
    for name, time_s in wanted.items():
        assert steps.time_s(program.schedule(ranks, size, (), name), link) == pytest.approx(time_s), name


@needs_schedule
def test_Schedules_EveryAlgorithm_EndsOnSharedCores(program):
    for name in program.algorithms():
        hosts = (0, 0, 1, 1)
        schedule = program.schedule(4, 1 << 22, hosts, name)
        assert steps.time_s(schedule, steps.Link(1e-5, 1e9, 2)) > sum(steps.sent_bytes(schedule)) / 1e9 / 2


@needs_schedule
def test_Predictions_RingOfTheModel_IsFoundAgain(program):
    link = steps.Link(2e-5, 5e8, 2)
    rows = [
        {"link": "hosts", "ranks": 4, "bytes": size, "contender": name}
        | {"p50_us": 1e6 * steps.time_s(program.schedule(4, size, (), name), link)}
        for size in (64, 4096, 1 << 20)
        for name in ("ring", "one-shot")
    ]
    parameters, choices = predictions.add_predictions(program, rows, 2)
    assert parameters[0]["alpha_us"] == pytest.approx(20, rel=0.01)
    assert parameters[0]["beta_GBps"] == pytest.approx(0.5, rel=0.02)
    assert all(row["model_us"] == pytest.approx(row["p50_us"], rel=0.02) for row in rows)
    assert [one["table"] for one in choices] == ["one-shot", "one-shot", "direct"]
    assert choices[0]["own_cores"] == "one-shot" and choices[2]["own_cores"] == "ring"


# ---- Tables of a stored run.


def row(contender, p50_us, size=64, link="hosts", model_us=None):
    return {
        **{"link": link, "ranks": 2, "bytes": size, "contender": contender},
        **{"p50_us": p50_us, "p99_us": 2 * p50_us, "rounds_us": [p50_us], "model_us": model_us},
    }


def run_of(tmp_path, rows, **changes):
    record = {
        **{"schema": stored.SCHEMA, "commit": "0123abc", "date": "2026-11-27", "load_before": 0.1},
        **{"machine": {"processor": "a processor", "cores": 2, "kernel": "6.1"}, "others_cores": 0.0, "rates": []},
        **{"effort": "short", "left_out": [], "model": [], "rows": rows},
        "choices": [
            {"link": "hosts", "ranks": 2, "bytes": 64, "default": None, "table": "one-shot", "own_cores": "direct"}
        ]
        + [{"link": "memory", "ranks": 2, "bytes": 64, "default": "flat", "table": "one-shot"}],
    }
    path = tmp_path / "run.json"
    path.write_text(stored.text_of(record | changes))
    return stored.read(path)


def test_Table_Losers_StandBesideTheFastest_WithModelAndVerdict(tmp_path):
    run = run_of(
        tmp_path, [row("Gloo's ring", 9.0), row("one-shot", 5.0, model_us=5.5), row("ring", 4.0, model_us=4.1)]
    )
    lines = tables.tables_of_link(run, links.BY_NAME["hosts"]).splitlines()
    assert lines[-3] == "| 2 ranks | Gloo's ring | one-shot | ring | the table |"
    assert lines[-1] == "| 64 B | 9 us | 5 us (5.5 us) | **4 us** (4.1 us) | **one-shot, 1.25 x** |"


def test_Choices_NotTheFastest_AreListed(tmp_path):
    run = run_of(tmp_path, [row("one-shot", 5.0), row("ring", 4.0)])
    text = tables.choices_table(run)
    assert text.startswith("the table: 0 of 1 choices are the fastest, or within 10 %.")
    assert "| 2 | 64 B | one-shot (the table) | 5 us | ring | 4 us | 1.25 x | direct |" in text


def test_Choices_WithinTheTolerance_AreGood(tmp_path):
    text = tables.choices_table(run_of(tmp_path, [row("one-shot", 4.3), row("ring", 4.0)]))
    assert text == "the table: 1 of 1 choices are the fastest, or within 10 %."


def test_Choices_OfOneHost_AreNotTheTables(tmp_path):
    """There nothing but flat memory runs: schedules over channels stand beside it to compare."""
    rows = [row(name, us, link="memory") for name, us in (("flat", 1.0), ("one-shot", 3.0), ("ring", 2.0))]
    assert [one.by for one in tables.verdicts(run_of(tmp_path, rows))] == [tables.DEFAULT]


def test_Model_SaysWhetherItNamesTheFastest(tmp_path):
    run = run_of(tmp_path, [row("one-shot", 5.0, model_us=5.0), row("ring", 4.0, model_us=8.0)])
    assert "| 2 | 1.50 | 1.00 to 2.00 | 0 of 1 |" in tables.model_table(run)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"rows": []}, "'rows' is empty"),
        ({"rows": [row("ring", 4.0), row("ring", 4.0)]}, "one twice"),
        ({"rows": [row("ring", 4.0, link="moon")]}, "'moon'"),
        ({"rows": [row("ring", -1.0)]}, "not above 0"),
        ({"effort": "huge"}, "'huge'"),
        ({"more": 1}, "'more' is unknown"),
    ],
)
def test_StoredRun_Damaged_IsRefused(tmp_path, changes, said):
    with pytest.raises(RecordError, match=said):
        run_of(tmp_path, **{"rows": [row("ring", 4.0)]} | changes)


def test_Page_TableThatNobodyMakes_IsRefused(tmp_path):
    run = run_of(tmp_path, [row("ring", 4.0)])
    with pytest.raises(RecordError, match="nobody makes the table 'moon'"):
        tables.renewed("<!-- table: moon -->\n<!-- end of table -->", run, "page")


def test_Page_InTheTree_HasTheTablesOfItsRun():
    run, text = stored.read(PAGE / command.RUN_FILE), (PAGE / command.PAGE).read_text()
    assert tables.renewed(text, run, PAGE) == text, "scripts/study collectives --draw docs/studies/collectives"
    assert all((PAGE / f"{link.name}.svg").exists() for link in run.links())


# ---- The command.


@pytest.mark.parametrize(
    "arguments, status, reason",
    [
        (["--links", "moon"], 2, "'moon' is none of memory"),
        (["--effort", "huge"], 2, "invalid choice"),
        (["--build", "/no/such"], 2, "all_reduce_perf is missing"),
        (["--draw", "/no/such"], 2, "run.json: cannot be read"),
    ],
)
def test_Command_BadInput_IsOneLine(arguments, status, reason):
    ended = subprocess.run([*SCRIPT, *arguments], capture_output=True, text=True, timeout=60)
    assert ended.returncode == status and reason in ended.stderr.splitlines()[-1]


@pytest.mark.skipif(bool(why_no_study()), reason=why_no_study())
def test_Command_TinyStudy_IsMeasuredStoredAndDrawn(tmp_path):
    words = [
        *SCRIPT,
        "--effort",
        "tiny",
        "--build",
        BUILD,
        "--output",
        tmp_path / "logs",
        "--json",
        tmp_path / "run.json",
    ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert "| Memory of one host | 2 |" in ended.stdout and "Emulated links" in ended.stdout
    run = stored.read(tmp_path / "run.json")
    assert [link.name for link in run.links()] == ["memory", "hosts", "far"]
    assert all(row.model_us for row in run.rows if row.contender == "ring")
    # Alpha is a delay there, which no machine can hurry.
    assert all(row.p50_us > links.DELAY_MS * 1e3 for row in run.rows if row.link == "far")
    (tmp_path / "README.md").write_text("<!-- table: far -->\n<!-- end of table -->\n")
    drawn = subprocess.run([*SCRIPT, "--draw", tmp_path], capture_output=True, text=True, timeout=60)
    assert drawn.returncode == 0, drawn.stderr
    assert "| 2 ranks | Gloo's ring | one-shot |" in (tmp_path / "README.md").read_text()
    assert "bidirectional-ring" in (tmp_path / "far.svg").read_text()


def test_Measure_EndedEarly_KeepsWhatThereIsAndSaysWhatIsNot():
    cells = measurement.cells_of(links.EFFORTS["tiny"], links.LINKS)
    row = {"bytes": 64, "contender": "ring", "p50_us": 1.0, "p99_us": 2.0, "rounds_us": [1.0]}
    answers = iter([("0123abc4567d", [row])])

    def rows(cell):
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    runs = SimpleNamespace(rows=rows, commits=set())
    found, left_out, ended = measurement.measure(runs, links.EFFORTS["tiny"], links.LINKS, lambda text: None)
    assert isinstance(ended, KeyboardInterrupt) and [row["link"] for row in found] == [cells[0].link.name]
    assert left_out == [(cell.about, "interrupted") for cell in cells[1:]]
