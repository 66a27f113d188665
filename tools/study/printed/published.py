"""Every published figure beside the model and what was measured here: 469 of a thesis about DDP over Gloo's TCP, 196 of
four articles.

Measured are the kept runs of studies (scripts/study keep), the stored run of the techniques, and what no study
measures, which this command runs: all-reduces of 8 MiB to 1 GiB on one machine, the published loop of multiplications,
and a step with PyTorch's DDP of one rank. It takes some minutes.

Prints tables in Markdown. --json writes the stored run, from which, with the others, --draw makes the tables of a page
(README.md).
"""

from functools import partial
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.argument_types import result_file
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.report import machine, marked_tables, results
from gloo_bypass_tools.report.lines import show_start
from gloo_bypass_tools.study.printed import technique_runs
from gloo_bypass_tools.study.published import benchmarks, rows, tables
from gloo_bypass_tools.study.published.measured import Sources
from gloo_bypass_tools.study.summaries import keeping, stored

TITLE = "Every published figure beside the model and what was measured here"
RUN_FILE, PAGE = "run.json", "README.md"
TECHNIQUES = keeping.FOLDER / "techniques/compression-distilgpt2-run.json"
OPEN = "open"


def add_options(options):
    add = options.parser.add_argument
    add("--json", type=result_file, metavar="FILE", help="write the stored run")
    about = "a new folder for logs (default results/study-published-<time>)"
    add("--output", type=Path, metavar="DIR", help=about)
    add("--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)")
    about = f"measure nothing: make the tables of DIR/{PAGE} from DIR/{RUN_FILE} and the kept runs beside DIR"
    add("--draw", type=Path, metavar="DIR", help=about)


def problem_of(given):
    return "" if given.draw else program_places.missing(given.build, (benchmarks.PERF, benchmarks.ARITHMETIC))


def sources(kept, run):
    """`kept`: the folder of kept runs."""
    techniques = technique_runs.read(TECHNIQUES)
    sent = {(row.transport, row.point): row.sent_bytes for row in techniques.rows if row.link == OPEN}
    return Sources(stored.read_all(kept), run, sent)


def renewed(text, folder):
    run = benchmarks.read(folder / RUN_FILE)
    listed = rows.all_of(sources(folder.parent / keeping.RUNS, run))
    return tables.renewed(text, listed, run, folder / PAGE)


def run(given):
    if given.draw:
        marked_tables.renew(given.draw / PAGE, partial(renewed, folder=given.draw))
        return 0
    show_start("study", machine.describe(ROOT))
    output = (given.output or results.study_path(ROOT, "published")).absolute()
    enclosure.make_output(output)
    made = benchmarks.measure(given.build.absolute(), ROOT, output)
    if given.json:
        benchmarks.write(made, given.json)
    listed = rows.all_of(sources(keeping.FOLDER / keeping.RUNS, made))
    for make in tables.makers(listed, made).values():
        print(f"{make()}\n")
    return 0
