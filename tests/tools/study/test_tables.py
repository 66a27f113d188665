"""Tables of recorded runs: medians, ratios, targets, shares; files, plots and page."""

import csv

import pytest
from conftest import RUNS, STUDY, plan_for, run_record, study_folder
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study import catalogue, edge_tables, rendering


def rows(runs=None, **changes):
    return edge_tables.rows_of(plan_for(**changes), STUDY, RUNS if runs is None else runs)


def test_rows_recordedRuns_HaveMediansAndTheSlowest():
    row = edge_tables.row_at(rows(), "300ms", "default")
    assert row.measured["TCP"].median_s == pytest.approx(4.2) and row.measured["TCP"].p99_s == 4.4
    assert row.times_faster("DPDK", "TCP") == pytest.approx(4.0)
    assert row.ratio("TCP") == pytest.approx(4.2 / row.model["TCP"].schedule_s)


def test_rows_repeats_AreOfAllSamples():
    found = edge_tables.row_at(
        rows([run_record("300ms", "TCP", "default", (1.0, 9.0)), run_record("300ms", "TCP", "default", (2.0, 3.0))]),
        "300ms",
        "default",
    )
    one = found.measured["TCP"]
    assert (one.median_s, one.p99_s, one.samples, len(one.runs)) == (2.5, 9.0, 4, 2)


def test_rows_cellsWithoutRuns_AreLeftOut():
    assert [(row.variant, row.segment, row.loss_percent) for row in rows()] == [
        ("base", "default", 0.0),
        ("300ms", "default", 0.0),
        ("300ms", "two", 0.0),
        ("300ms", "default", 1.0),
    ]
    assert edge_tables.row_at(rows(), "300ms", "default", 1.0).ratio("TCP") is None


def test_rows_published_IsScaledByBytesAndStandsWhereItBelongs():
    row = edge_tables.row_at(rows(), "300ms", "default")
    assert row.published_as == pytest.approx(76.027)
    assert row.published_s == pytest.approx(76.027 * 16 * 2**20 / 327_650_304)
    assert edge_tables.row_at(rows(), "300ms", "two").published_s is None
    assert edge_tables.row_at(rows(), "300ms", "default", 1.0).published_s is None


def test_rows_otherRanks_HaveNothingPublishedAndNoTargets():
    plan = plan_for(ranks=2)
    found = edge_tables.rows_of(plan, STUDY, RUNS)
    assert all(row.published_s is None for row in found) and edge_tables.targets_of(plan, STUDY, found) == []


def test_targets_farEdge_SayWhatIsReached():
    found = {(one.label, one.wanted): one for one in edge_tables.targets_of(plan_for(), STUDY, rows())}
    met = [one.met for one in found.values()]
    # 1.05 s of 0.92, 0.75 of 0.6; with 1 % loss 2.5 of 0.92; two segments with loss were not measured.
    assert met == [True, True, False, None]
    assert "1.5 x" in list(found.values())[2].wanted


def test_targets_slowEdge_AreOfEveryTransport():
    study = catalogue.STUDIES["edge-bandwidth"]
    plan = plan_for(study="edge-bandwidth", variants=("50Mbit",), losses=(0.0,), lossy=())
    runs = [run_record("50Mbit", "TCP", "default", (4.3,)), run_record("50Mbit", "DPDK", "default", (5.5,))]
    found = edge_tables.targets_of(plan, study, edge_tables.rows_of(plan, study, runs))
    assert [(one.label, one.met) for one in found] == [("50 Mbit/s over TCP", True), ("50 Mbit/s over DPDK", False)]


def test_shares_ofTcpsTime_AddUpToIt():
    (one,) = edge_tables.shares_of(plan_for(), STUDY, rows())
    assert (one.transport_s, one.pipeline_s, one.rest_s) == (
        pytest.approx(3.15),
        pytest.approx(0.3),
        pytest.approx(0.75),
    )
    assert one.transport_s + one.pipeline_s + one.rest_s == pytest.approx(one.total_s)
    assert one.growth == pytest.approx(4.2 / 0.4) and one.published_growth == pytest.approx(76.027 / 21.010)
    assert one.modelled_growth == pytest.approx(one.published_growth, rel=0.25)


def test_shares_withoutTcp_AreNone():
    assert edge_tables.shares_of(plan_for(transports=("DPDK",)), STUDY, rows(transports=("DPDK",))) == []


def test_windows_ofBothTransports_AreBytes():
    found = {
        (one.row.variant, one.row.segment, one.row.loss_percent, one.transport): one
        for one in edge_tables.windows_of(rows(), plan_for().settings)
    }
    tcp, dpdk = found["300ms", "default", 0.0, "TCP"], found["300ms", "default", 0.0, "DPDK"]
    assert (tcp.window_bytes, tcp.control, tcp.retransmitted) == (700 * 1448, "cubic", 2)
    assert (dpdk.window_bytes, dpdk.control, dpdk.lost_frames, dpdk.repair_frames) == (5_000_000, "bbr", 2, 6)
    assert tcp.repair_frames is None


def test_render_folder_WritesEverythingAndTheSameAgain(tmp_path):
    folder = study_folder(tmp_path / "study")
    record, plan, _, made = rendering.render(folder)
    page = folder.place("index.html").read_text()
    assert (
        "A Processor &lt;script&gt;" in page
        and "<script" not in page
        and "http" not in page.replace("https://", "http://").split("</style>")[1]
    )
    assert "76.0 s" in page and "not reached" in page
    lines = list(csv.DictReader(folder.place("summary.csv").open()))
    assert len(lines) == 7 and float(lines[0]["median_s"]) == pytest.approx(0.4)
    assert folder.place("plots/time.png").stat().st_size > 1000 and folder.place("plots/loss.png").exists()
    rendering.render(folder)
    assert folder.place("index.html").read_text() == page and plan == plan_for()


def test_render_rdmaInTheGuest_SaysWhereItWas(tmp_path):
    run = run_record("300ms", "RDMA", "default", [8.0])
    run["fabric"]["netem"] = "Linux 6.1.0 on QEMU TCG CPU"
    sentence = edge_tables.elsewhere_of(edge_tables.rows_of(plan_for(transports=("TCP", "RDMA")), STUDY, [run]))
    assert sentence == [
        "RDMA: ranks, and links made by the kernel's netem, were on Linux 6.1.0 on QEMU TCG CPU: "
        "another machine's processor time, the same delays."
    ]
    folder = study_folder(tmp_path / "study", plan=plan_for(transports=("TCP", "RDMA")).as_record(), runs=[run])
    rendering.render(folder)
    assert "Linux 6.1.0 on QEMU TCG CPU" in folder.place("index.html").read_text()


def test_render_interruptedStudy_SaysSo(tmp_path):
    folder = study_folder(tmp_path / "study", runs=RUNS[:1], state="interrupted")
    rendering.render(folder)
    page = folder.place("index.html").read_text()
    assert "it was interrupted" in page and "Whose the time is" not in page


def test_render_nothingMeasured_IsAPageStill(tmp_path):
    folder = study_folder(tmp_path / "study", runs=[])
    rendering.render(folder)
    assert "Nothing was measured." in folder.place("index.html").read_text()


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"schema": "x"}, "schema 'x'"),
        ({"study": "other"}, "'other' is none of edge-latency"),
        ({"plan": {}}, "the plan is not whole"),
        ({"runs": 3}, "'runs' is 3"),
    ],
)
def test_render_otherFolder_IsRefused(tmp_path, changes, said):
    with pytest.raises(RecordError, match=said):
        rendering.render(study_folder(tmp_path / "study", **changes))
