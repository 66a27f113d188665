"""The README's picture: the requirements on a stored run, and the drawing."""

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from gloo_bypass_tools.report import results_chart, stored_run
from gloo_bypass_tools.report.records import RecordError

ROOT = Path(__file__).resolve().parents[3]
FIXTURE = Path(__file__).with_name("fixtures") / "stored_run.json"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run():
    return stored_run.read(FIXTURE)


def changed(tmp_path, change):
    record = json.loads(FIXTURE.read_text())
    change(record)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(record))
    return path


def test_Read_Fixture_HasEveryRowAndItsRatio(run):
    assert len(run.rows) == len(json.loads(FIXTURE.read_text())["rows"])
    row = next(row for row in run.rows if row.key == ("inside a machine", "memif", 4, "DPDK"))
    assert run.ratio(row) == pytest.approx(111.0 / 4.2, rel=0.01)
    assert run.ratio(next(row for row in run.rows if row.link == "vhost 1500")) is None


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda run: run.pop("commit"), "no 'commit'"),
        (lambda run: run.update(commit="main"), "'commit' is 'main'"),
        (lambda run: run.update(date="22 November"), "'date' is '22 November'"),
        (lambda run: run.update(machine=" "), "'machine' is empty"),
        (lambda run: run.update(note="x"), "'note' is unknown"),
        (lambda run: run.update(rows=[]), "'rows' is empty"),
        (lambda run: run.update(rates=[{"copy_GBps": {"1": 5.0}}]), "rates[0]: no 'add_GBps'"),
        (lambda run: run.update(rates=[{"copy_GBps": {"1": 0}, "add_GBps": {"1": 5.0}}]), "'1' is 0"),
        (lambda run: run.update(rates=[{"copy_GBps": {"all": 5}, "add_GBps": {"1": 5.0}}]), "'all' is 5"),
        (lambda run: run.update(rates=[{"copy_GBps": {"1": "5"}, "add_GBps": {"1": 5.0}}]), "'5', not a finite number"),
        (lambda run: run["rows"].append(3), "expected an object, found int"),
        (lambda run: run["rows"].append(run["rows"][0]), "is there already"),
        (lambda run: run["rows"][2].pop("link"), "rows[2]: no 'link'"),
        (lambda run: run["rows"][2].update(speed=1), "rows[2]: 'speed' is unknown"),
        (lambda run: run["rows"][2].update(bytes=0), "rows[2]: 'bytes' is 0, not a whole number from 1 on"),
        (lambda run: run["rows"][2].update(bytes=1.5), "rows[2]: 'bytes' is 1.5, not a whole number"),
        (lambda run: run["rows"][2].update(median_us=math.nan), "rows[2]: 'median_us' is nan, not a finite number"),
        (lambda run: run["rows"][2].update(p99_us=0.001), "rows[2]: 'p99_us' is 0.001, below the median"),
        (lambda run: run["rows"][2].update(bus_GBps="fast"), "rows[2]: 'bus_GBps' is 'fast', not a finite number"),
    ],
)
def test_Read_Wrong_IsRefusedWithItsPlace(tmp_path, change, said):
    with pytest.raises(RecordError) as raised:
        stored_run.read(changed(tmp_path, change))
    assert said in str(raised.value) and "run.json" in str(raised.value)


def points(svg, kind):
    """The corners of each line of one transport, in the order of the file."""
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in ElementTree.fromstring(svg).iter(f"{SVG}polyline")
        if f"t-{kind}" in line.get("class").split()
    ]


def test_Svg_Fixture_DrawsEachPlaceOnceAndFasterLower(run):
    svg = results_chart.svg(run)
    titles = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text") if text.get("class") == "title"]
    assert titles == ["inside a machine", "between two namespaces", "300 ms, 1 % loss"]
    tcp, ours = points(svg, "tcp")[0], points(svg, "dpdk")[0]
    assert len(tcp) == len(ours) == 6
    assert all(one[0] == other[0] and one[1] < other[1] for one, other in zip(tcp, ours)), "less time is a larger y"
    xs = [x for x, _ in tcp]
    assert xs == sorted(set(xs))


def test_Svg_TimeTenTimesAsLong_LiesOneDecadeHigher(tmp_path):
    def two_rows(record):
        record["rows"] = [
            dict(record["rows"][0], bytes=size, median_us=time, p99_us=time) for size, time in ((4, 10), (64, 1000))
        ]

    ((low, high),) = points(results_chart.svg(stored_run.read(changed(tmp_path, two_rows))), "tcp")
    assert low[1] - high[1] == pytest.approx(results_chart.HEIGHT, abs=0.2)  # the axis has these two decades


def test_Svg_LargerMtuOfTheSameLink_IsLeftToTheTable(run):
    svg, table = results_chart.svg(run), results_chart.table(run)
    assert "netdev 1500" in svg and "netdev 9000" not in svg
    assert "netdev 1500" in table and "netdev 9000" in table


def test_Svg_Fixture_HasBothSchemesAndColoursOfEachTransport(run):
    light, dark = results_chart.svg(run).split("@media (prefers-color-scheme: dark)")
    for transport in ("TCP", "DPDK", "UDP"):
        one, other = results_chart.colours_of(transport)
        assert one in light and other in dark
    assert len({results_chart.colours_of(name) for name in ("TCP", "DPDK", "UDP", "RDMA", "no such transport")}) == 5


def test_Svg_Names_DoNotOverlapAndStayInside(run):
    svg = ElementTree.fromstring(results_chart.svg(run))
    width = float(svg.get("viewBox").split()[2])
    names = [text for text in svg.iter(f"{SVG}text") if (text.get("class") or "").startswith("name ")]
    assert [name.text for name in names] == [
        "TCP",
        "DPDK, memif",
        "DPDK, netdev 1500",
        "DPDK, vhost 1500",
        "TCP",
        "UDP 1500",
        "TCP",
        "DPDK, memif",
    ]
    places = [(float(name.get("x")), float(name.get("y"))) for name in names]
    bottom = results_chart.TOP + results_chart.HEIGHT
    assert all(x < width - 80 and results_chart.TOP <= y <= bottom + 5 for x, y in places)
    for index, (x, y) in enumerate(places):
        others = [other_y for other_x, other_y in places[:index] if other_x == x]
        assert all(abs(y - other) >= results_chart.LABEL_GAP - 0.1 for other in others)


def test_Svg_HostileText_IsEscaped(tmp_path):
    path = changed(tmp_path, lambda record: record.update(machine="<script>&"))
    assert "&lt;script&gt;&amp;" in results_chart.svg(stored_run.read(path))


def test_Svg_RunWithRates_SaysHowFastTheMachineWas(tmp_path, run):
    rates = [{"copy_GBps": {"1": 5.8}, "add_GBps": {"1": 6.0}}]
    svg = results_chart.svg(stored_run.read(changed(tmp_path, lambda record: record.update(rates=rates))))
    assert "the machine copies 64 MiB at 5.8 GB/s with 1 thread; adds at 6 GB/s with 1 thread." in svg
    assert "the machine copies" not in results_chart.svg(run)


def test_Table_Fixture_MarksWhatLoses(run):
    rows = [line.split(" | ") for line in results_chart.table(run).splitlines()[2:]]
    assert len(rows) == sum(row.transport != "TCP" for row in run.rows)
    for row in rows:
        if row[-1].rstrip(" |"):
            value = float(re.search(r"[\d.]+", row[-1]).group())
            assert ("**" in row[-1]) == (value < 1), row


@pytest.mark.parametrize(
    "count, label", [(4, "4 B"), (1024, "1 KiB"), (65536, "64 KiB"), (16 << 20, "16 MiB"), (40_000_000, "40 MB")]
)
def test_SizeLabel_Powers_AreBinary(count, label):
    assert results_chart.size_label(count) == label


def test_StoredResults_Picture_IsDrawnFromThem():
    """docs/results.svg is the output of scripts/draw-results for docs/results.json."""
    if not (ROOT / "docs/results.json").exists():
        pytest.skip("docs/results.json is not there yet")
    assert (ROOT / "docs/results.svg").read_text() == results_chart.svg(stored_run.read(ROOT / "docs/results.json"))
