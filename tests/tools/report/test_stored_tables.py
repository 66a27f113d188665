"""Documents' tables made from stored runs, and the command that makes them."""

import json

import pytest
from gloo_bypass_tools.report import documents, results_chart, stored_run
from gloo_bypass_tools.report.records import RecordError
from program_runs import run_record
from test_results_chart import FIXTURE, ROOT, changed, run  # noqa: F401  run is a fixture


def cells_of(text, beginning):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {beginning}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def slower(record):
    """A run from another hour: ours takes twice as long, with a later date."""
    record["date"] = "2026-11-30"
    for row in record["rows"]:
        if row["transport"] != "TCP":
            row.update(median_us=2 * row["median_us"], p99_us=2 * row["p99_us"])


@pytest.fixture
def tree(tmp_path):
    """A README and a page with all tables, and the fixture as the picture's run."""
    (tmp_path / "docs" / "runs").mkdir(parents=True)
    (tmp_path / "docs" / "results.json").write_text(FIXTURE.read_text())
    (tmp_path / "README.md").write_text(
        "# Title\n\n<!-- table: link-ranges -->\nold\n<!-- end of table -->\nmore\n"
        "<!-- table: program-headline -->\nby hand\n<!-- end of table -->\n"
    )
    (tmp_path / "docs" / "results.md").write_text(
        "".join(f"<!-- table: {name} -->\n<!-- end of table -->\n" for name in documents.TABLES)
    )
    return tmp_path


def test_Renew_WhatIsStored_IsBetweenTheCommentsAndNothingElseChanges(tree):
    changed_pages = documents.renew(tree, documents.read(tree))
    assert changed_pages == [tree / "README.md", tree / "docs" / "results.md"]
    text = (tree / "README.md").read_text()
    assert text.startswith("# Title\n\n<!-- table: link-ranges -->\n| times as fast") and "old" not in text
    assert "|\n<!-- end of table -->\nmore\n" in text
    assert documents.renew(tree, documents.read(tree)) == [], "the same runs make the same tables"


def test_Renew_TableForWhichNothingIsStored_IsLeftAsItIs(tree):
    documents.renew(tree, documents.read(tree))
    assert "<!-- table: program-headline -->\nby hand\n<!-- end of table -->" in (tree / "README.md").read_text()


def test_Renew_RunOfProgramsAdded_IsTaken(tree):
    for name, cores in (("programs-2-cores", 2), ("programs-16-cores", 16)):
        (tree / "docs" / "runs" / f"{name}.json").write_text(json.dumps(run_record(cores=cores)))
    documents.renew(tree, documents.read(tree))
    text = (tree / "README.md").read_text()
    assert "by hand" not in text and "on 2 cores of a processor" in text and "on 16 cores of a processor" in text
    assert (tree / "docs" / "results.md").read_text().count("| `all_reduce`: 8 KiB | ") == 2


def test_Renew_SlowRunOfLinks_MakesRangesAndATableOfItsOwn(tree):
    slow = json.loads(FIXTURE.read_text())
    slower(slow)
    (tree / "docs" / "runs" / "links-slow.json").write_text(json.dumps(slow))
    stored = documents.read(tree)
    fast = documents.link_ranges(documents.Stored(stored.links[:1], ()))
    both = documents.link_ranges(stored)
    assert cells_of(fast, "memif")[1] == "26 x" and cells_of(both, "memif")[1] == "13 to 26 x"
    assert "300 ms" not in both
    assert documents.links(stored).count("| link |") == 2 and "2026-11-30" in documents.links(stored)


def test_Links_OfOneRun_SayWhatLosesAndWhetherTheStateIsKnown(run, tmp_path):  # noqa: F811
    text = documents.links_of_one(run)
    assert "How fast it copies and adds was not recorded." in text
    losing = [line for line in text.splitlines() if "**" in line]
    assert losing and all(float(line.split("**")[1].removesuffix(" x")) < 1 for line in losing)
    rates = [{"copy_GBps": {"1": 5.8}, "add_GBps": {"1": 6.0}}]
    known = stored_run.read(changed(tmp_path, lambda record: record.update(rates=rates)))
    assert "The machine copies 64 MiB at 5.8 GB/s with 1 thread" in documents.links_of_one(known)


def test_Links_RunOfFarLinksAlone_HasNoTable(tmp_path):
    def far_alone(record):
        record["commit"] = "unknown"  # built from an archive
        record["rows"] = [row for row in record["rows"] if row["where"] == documents.FAR_PLACE]

    run_of_far = stored_run.read(changed(tmp_path, far_alone))
    assert run_of_far.rows and documents.links(documents.Stored((run_of_far,), ())) == ""


def test_LinkHeadline_OfTheProjectsOwnRun_HasHostsAndTheFarEdge():
    text = documents.link_headline(documents.Stored((stored_run.read(ROOT / "docs/results.json"),), ()))
    assert cells_of(text, "one float, 2 ranks between hosts, MTU 1500 (UDP)")[3].endswith(" x")
    assert cells_of(text, "16 MiB, 4 ranks, one link of 300 ms")[1].endswith(" s")


def test_Renew_TableThatNobodyMakes_IsRefused(tree):
    (tree / "README.md").write_text("<!-- table: none -->\n<!-- end of table -->\n")
    with pytest.raises(RecordError, match="nobody makes the table 'none'; there are links"):
        documents.renew(tree, documents.read(tree))


def test_Command_Tree_DrawsThePictureAndMakesTheTables(tree, capsys):
    assert documents.draw_results(tree, []) == 0
    assert (tree / "docs" / "results.svg").read_text() == results_chart.svg(stored_run.read(FIXTURE))
    assert "README.md has new tables" in capsys.readouterr().err


def test_Command_BrokenRunOfPrograms_ChangesNoPage(tree, capsys):
    (tree / "docs" / "runs" / "programs-x.json").write_text("{}")
    before = (tree / "README.md").read_text()
    assert documents.draw_results(tree, []) == 2 and "programs-x.json: no 'schema'" in capsys.readouterr().err
    assert (tree / "README.md").read_text() == before


def test_Command_Drawn_IsTheSvg(tmp_path, run):  # noqa: F811
    output = tmp_path / "x.svg"
    assert documents.draw_results(ROOT, [str(FIXTURE), "--output", str(output)]) == 0
    assert output.read_text() == results_chart.svg(run)


def test_Command_BadRunOrFolder_SaysSoInOneLine(tmp_path, capsys):
    path = changed(tmp_path, lambda record: record.pop("rows"))
    assert documents.draw_results(ROOT, [str(path), "--output", str(tmp_path / "x.svg")]) == 2
    assert documents.draw_results(ROOT, [str(FIXTURE), "--output", str(tmp_path / "none/x.svg")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "no 'rows'" in lines[0] and "cannot be written" in lines[1]
    assert not (tmp_path / "x.svg").exists()


def test_StoredResults_Tables_AreMadeOfThem():
    """README.md and docs/ have the tables that scripts/draw-results makes from the stored runs."""
    stored = documents.read(ROOT)
    stale = [
        path.name
        for path in documents.pages(ROOT)
        if documents.renewed(path.read_text(), stored, path) != path.read_text()
    ]
    assert stale == [], "run scripts/draw-results"
