"""The pages of studies: every section that there are data for, a column for each transport, nothing from elsewhere."""

import json
import re

import pytest
from conftest import MACHINE, RUNS, probe, study_folder
from gloo_bypass_tools.report import plots
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.study import page as study_page
from gloo_bypass_tools.study import catalogue, rendering
from gloo_bypass_tools.study.plan import plan_of

EDGES = [
    {"from": "10.77.0.2", "to": "10.77.0.3", "bytes": 327e6},
    {"from": "10.77.0.3", "to": "10.77.0.2", "bytes": 2e4},
]


def training_run(transport):
    return {
        "cell": {"variant": "bs=8", "transport": transport},
        "repeat": 1,
        "folder": f"raw/{transport}",
        "t_step_s": [10.0, 20.0],
        "t_ar_s": [5.0, 4.0],
        "loss": 3.0,
        "sha256": "a" * 64,
        "lost_frames": 0,
        "ranks": [],
        "capture": {
            "events": [{"bytes": 686e6, "seconds": 4.0}],
            "total_bytes": 2e9,
            "total_s": 40.0,
            "faults": [],
            "bytes_by_kind": {},
            "matrix": {"before": EDGES, "training": EDGES},
        },
    }


def training_folder(path, raw=True, **changes):
    folder = ResultsFolder.create(path)
    plan = plan_of(catalogue.STUDIES["batch-size"], "small", variants=("bs=8",))
    folder.write_json(
        "results.json",
        {
            "schema": "gloo-bypass/study/1",
            "study": "batch-size",
            "state": "complete",
            "plan": plan.as_record(),
            "machine": MACHINE,
            "failures": [],
            "kernel_tcp": {},
            "environment": {},
            "stages": [],
            "repeat_command": "scripts/study batch-size",
            "runs": [training_run(transport) for transport in plan.transports],
        }
        | changes,
    )
    for transport in plan.transports if raw else ():
        place = folder.place(f"raw/{transport}")
        place.mkdir()
        (place / "probe-0.json").write_text(json.dumps(probe(0)))
        (place / "analysis.json").write_text(
            json.dumps(
                {
                    "schema": "gloo-bypass/capture/1",
                    "captures": [
                        {"first_frame_unix_s": 1.0, "interval_s": 1.0, "bytes_by_interval": [1, 2], "steps": []}
                    ],
                }
            )
        )
    return folder


LEFT_OUT = [{"what": "RDMA", "why": "there is no <guest>"}]


def drawn(folder):
    """The page and the names of the plots. Coarse, as in conftest's fixture, which a module's fixture cannot use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "DOTS_PER_IN", 40)
        rendering.render(folder)
    return folder.place("index.html").read_text(), {path.stem for path in folder.place("plots").glob("*.png")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return drawn(training_folder(tmp_path_factory.mktemp("training") / "study", left_out=LEFT_OUT))


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    return drawn(study_folder(tmp_path_factory.mktemp("edge") / "study", runs=RUNS, left_out=LEFT_OUT))


@pytest.mark.parametrize(
    "names, said",
    [(("TCP",), "TCP"), (("TCP", "DPDK"), "TCP and DPDK"), (("TCP", "DPDK", "RDMA"), "TCP, DPDK and RDMA")],
)
def test_page_transports_AreListedInWords(names, said):
    assert study_page.in_words(names) == said


@pytest.fixture(params=["trained", "edge"])
def page(request):
    return request.getfixturevalue(request.param)[0]


def test_page_training_HasEverySectionAndItsPlots(trained):
    text, names = trained
    for heading in (
        "Published, measured, modelled",
        "Events",
        "Traffic over time",
        "Who sent to whom",
        "The ranks",
        "On what",
        "Once more",
    ):
        assert f"<h2>{heading}</h2>" in text
    assert names == {
        "events",
        "throughput-events",
        "bytes-events",
        "throughput",
        "cumulative",
        "matrix-bs8",
        "ranks-bs8",
    }
    assert text.count("<img ") == 7


def test_csv_events_AreOneLineEach(tmp_path):
    record = {"runs": [training_run("TCP"), {"cell": {"variant": "0.1"}, "ranks": [], "times_s": [1.0]}]}
    rendering.write_csv(folder := ResultsFolder.create(tmp_path / "study"), record, [])
    assert (
        folder.place("events.csv").read_text()
        == "variant,transport,repeat,event,bytes,seconds\nbs=8,TCP,1,1,686000000.0,4.0\n"
    )
    assert not folder.place("samples.csv").exists()


def test_page_trainingWithoutRawFiles_HasWhatTheResultsHave(tmp_path):
    text, names = drawn(training_folder(tmp_path / "study", raw=False))
    assert "<h2>Events</h2>" in text and "<h2>Who sent to whom</h2>" in text and "<h2>The ranks</h2>" not in text
    assert names == {"events", "throughput-events", "bytes-events", "matrix-bs8"}


def test_page_pictures_AreDescribed(page):
    assert "<img " in page and not re.search(r'<img (?![^>]*alt="[^"]{20,}")', page)


def test_page_fabricLostFrames_SaysInHowManyRuns(tmp_path):
    page, _ = drawn(study_folder(tmp_path / "study", runs=[*RUNS[:-1], RUNS[-1] | {"lost_beside": 7}]))
    assert f"In 1 run of {len(RUNS)} the fabric itself lost frames beside the links, up to 7 in one" in " ".join(
        page.split()
    )


def test_page_rdmaNotRun_HasAColumnThatSaysSo(page):
    assert "<th>RDMA <small>not run</small></th>" in page
    assert "<b>RDMA</b> was not run: there is no &lt;guest&gt;." in page
    heads = re.search(r"<table class=\"tight\">\s*<thead>(.*?)</thead>", page, re.S)[1].count("<th")
    first = re.search(r"<tbody>\s*<tr>(.*?)</tr>", page, re.S)[1].count("<td")
    assert heads == first


def test_page_anywhere_NeedsNothingElse(page):
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>")
    assert not re.search(r'(?:src|href|srcset)="(?!data:)', page) and "@import" not in page and "<script" not in page
    assert "@media print" in page and "A Processor &lt;script&gt;" in page and "commit abc" in page
