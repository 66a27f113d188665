"""From a folder of raw files to CSV, plots and the page."""

import csv
import json
import re

import pytest
from conftest import DIGEST, write_measurement
from gloo_bypass_tools.report import page, published, records, rendering
from gloo_bypass_tools.report.results import ResultsFolder

PNG = b"\x89PNG\r\n\x1a\n"


def test_render_whole_measurement_writes_everything(measurement):
    _, made = rendering.render(measurement)
    for name in ("steps.csv", "runs.csv", "all_reduce.csv", "idle.csv", "summary.csv", "index.html"):
        assert measurement.place(name).stat().st_size > 100
    for name in ("step_breakdown", "all_reduce_time", "bandwidth", "latency", "loss"):
        assert measurement.place(f"plots/{name}.png").read_bytes().startswith(PNG)
    assert made.same_bits is True
    lines = list(csv.DictReader(measurement.place("summary.csv").open()))
    step = next(line for line in lines if line["quantity"].startswith("Step") and line["transport"] == "DPDK")
    assert float(step["times_better"]) == pytest.approx(1.2) and int(step["samples"]) == 2 * 2 * 3
    assert len(list(csv.DictReader(measurement.place("steps.csv").open()))) == 2 * 2 * 2 * 4


def test_page_needs_nothing_from_outside(measurement):
    rendering.render(measurement)
    text = measurement.place("index.html").read_text()
    assert "<script" not in text
    for reference in re.findall(r"""(?:src|href|srcset|url)\s*[=(]\s*["']?([^"')\s>]+)""", text):
        assert reference.startswith("data:image/png;base64,"), reference
    assert "@import" not in text and "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)


def test_page_tells_the_answer_and_escapes_what_it_was_given(measurement):
    rendering.render(measurement)
    text = measurement.place("index.html").read_text()
    assert "Identical." in text and DIGEST in text
    assert "A Processor &lt;script&gt;" in text
    assert "21.5" in text and "656.28" in text and "655.30" in text
    assert "scripts/compare --steps 4" in text
    assert text.count("not reached") == 0 and text.count(">reached") == 5


def test_beside_has_the_published_run_with_a_barrier():
    rows = {row.label: row for row in published.beside((), (), 2)}
    assert [row.published for row in rows.values()] == pytest.approx([656.28, 21.491, 4.222, 26.4])
    assert {row.table for row in rows.values()} == {"5.2", "5.3"}


@pytest.mark.parametrize(
    "change", [{"ranks": 4}, {"batch_size": 16}, {"model": "tiny"}, {"trainer_arguments": ["--precision", "bf16"]}]
)
def test_beside_is_of_the_published_training_alone(measurement, change):
    plan = json.loads(measurement.place("results.json").read_text())["plan"]
    assert published.comparable(plan) and published.comparable(plan | {"trainer_arguments": []})
    assert not published.comparable(plan | change)


def test_page_of_different_bits_says_so(tmp_path):
    folder = write_measurement(tmp_path / "r", {"TCP": DIGEST, "DPDK": "0" * 64})
    _, made = rendering.render(folder)
    assert made.same_bits is False
    assert "The runs did not end with the same bits" in folder.place("index.html").read_text()


def test_render_what_a_failure_left_says_what_is_missing(tmp_path):
    folder = write_measurement(
        tmp_path / "r",
        ("TCP",),
        "failed",
        [{"stage": "train over DPDK", "reason": "train over DPDK exited", "log": "x"}],
    )
    _, made = rendering.render(folder)
    text = folder.place("index.html").read_text()
    assert made.same_bits is None and "This measurement is incomplete." in text and "train over DPDK exited" in text


def test_render_nothing_measured_still_makes_a_page(tmp_path):
    folder = write_measurement(tmp_path / "r", ())
    record = json.loads(folder.place("results.json").read_text())
    folder.write_json("results.json", record | {"all_reduce": [], "idle": []})
    rendering.render(folder)
    assert "On what" in folder.place("index.html").read_text()


def test_render_twice_gives_the_same_bytes(measurement):
    rendering.render(measurement)
    first = {path: path.read_bytes() for path in measurement.path.rglob("*") if path.is_file()}
    rendering.render(measurement)
    assert first == {path: path.read_bytes() for path in measurement.path.rglob("*") if path.is_file()}


def test_load_foreign_folder_is_refused(tmp_path):
    with pytest.raises(records.RecordError, match="results.json: cannot be read"):
        rendering.load(ResultsFolder(tmp_path))
    (tmp_path / "results.json").write_text('{"schema": "x"}')
    with pytest.raises(records.RecordError, match="schema 'x'"):
        rendering.load(ResultsFolder(tmp_path))


def test_notes_of_a_busy_machine_call_the_figures_provisional(measurement):
    loaded = rendering.load(measurement)
    loaded.record["machine"]["load_before"] = 3.0
    assert any("provisional" in note for note in page.notes(loaded, rendering.summarise(loaded)))
