"""scripts/study keep: from results folders to docs/studies/runs, and the pages' tables made again."""

from functools import partial
from pathlib import Path

from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.report import marked_tables
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.study.summaries import stored, tables

FOLDER = ROOT / "docs/studies"
RUNS, RESULTS, GLANCE = "runs", "results.md", "README.md"
ABOUT = "keep a study's summary in docs/studies/runs"
DESCRIPTION = """Copies the summary of a complete study, its machine and commit into docs/studies/runs, under the next \
number, and makes the tables of docs/studies/results.md again, which show all kept runs of a study side by side, and \
of README.md beside it. Without a folder it makes the tables alone. "scripts/study published --draw \
docs/studies/published" makes those of the published figures."""


def add_options(parser):
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULTS", help="a results folder of a study")
    parser.add_argument("--into", default=FOLDER, metavar="DIR", type=Path, help="default docs/studies")


def run_of(path, kept):
    """The run to keep of a results folder. RecordError says why not."""
    from gloo_bypass_tools.study import rendering  # it loads what draws, which takes a second

    folder = ResultsFolder(path)
    record, _, study, summary = rendering.summarised(folder)
    run = stored.of_results(folder.place("results.json"), record, study, summary)
    stored.check_beside(path, run, kept.get(study.name, ()))
    return run


def run(given):
    """Everything is read and checked before anything is written."""
    kept, new = stored.read_all(given.into / RUNS), []
    for path in given.results:
        new.append(run_of(path, kept))
        kept.setdefault(new[-1].study, []).append(new[-1])
    renewals = {
        given.into / RESULTS: partial(tables.renewed, kept=kept, place=given.into / RESULTS),
        given.into / GLANCE: partial(tables.renewed_glance, kept=kept, place=given.into / GLANCE),
    }
    for page, renewed in renewals.items():
        marked_tables.check(page, renewed)
    for run_of_study in new:
        print(f"kept: {stored.write(run_of_study, given.into / RUNS)}")
    kept.update(stored.read_all(given.into / RUNS))  # with as many digits as the files have
    for page, renewed in renewals.items():
        if marked_tables.renew(page, renewed):
            print(f"renewed: {page}")
    return 0
