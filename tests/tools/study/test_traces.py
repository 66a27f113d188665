"""A run's raw files over time, and the pictures drawn from them."""

import json

import pytest
from conftest import plan_for, probe
from gloo_bypass_tools.report import plots as report_plots
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study import catalogue, columns, event_plots, matrix_plot, trace_plots, traces
from gloo_bypass_tools.study.plan import plan_of

PNG = b"\x89PNG\r\n"
CAPTURE = {
    "first_frame_unix_s": 1002.0,
    "interval_s": 0.5,
    "bytes_by_interval": [10, 20, 30],
    "directions_over_time": [
        {"from": "10.77.0.2", "to": "10.77.0.3", "interval_s": 1.0, "bytes_by_interval": [30, 30]}
    ],
    "steps": [{"begin_s": 0.5, "duration_s": 1.0, "complete": True}, {"begin_s": 3.0, "complete": False}],
}


def clocked(rank, began):
    """Sampled at 0 and 2 s: 1 s of processor time, 9 bytes each way."""
    return probe(rank) | ({} if began is None else {"began_unix_s": began})


def raw_folder(folder, began=(1000.0, 1001.0), capture=CAPTURE):
    folder.mkdir()
    for rank, at in enumerate(began):
        (folder / f"probe-{rank}.json").write_text(json.dumps(clocked(rank, at)))
    if capture is not None:
        (folder / "analysis.json").write_text(json.dumps({"schema": "gloo-bypass/capture/1", "captures": [capture]}))
    return folder


def test_trace_clocks_BringSamplesAndCaptureTogether(tmp_path):
    trace = traces.trace_of(raw_folder(tmp_path / "run"))
    assert trace.one_clock and [rank.at_s for rank in trace.ranks] == [[0.0, 2.0], [1.0, 3.0]]
    assert trace.ranks[0].cpu_percent == [50.0] and trace.ranks[0].sent_bit_s == [36.0]
    assert trace.total.edges_s == [2.0, 2.5, 3.0, 3.5] and trace.total.cumulative == [0, 10, 30, 60]
    assert trace.directions["r0", "r1"].edges_s == [2.0, 3.0, 4.0]
    assert trace.events == [(2.5, 3.5)]


def test_trace_filesBeforeTheClock_BeginEachAtNought(tmp_path):
    old = {key: value for key, value in CAPTURE.items() if key != "directions_over_time"}
    trace = traces.trace_of(raw_folder(tmp_path / "run", began=(None, 1001.0), capture=old))
    assert (
        not trace.one_clock
        and trace.total.begin_s == 0.0
        and trace.directions == {}
        and trace.ranks[1].at_s == [0.0, 2.0]
    )


def test_trace_missingFiles_LeaveTheirPartOut(tmp_path):
    (tmp_path / "none").mkdir()
    assert traces.trace_of(tmp_path / "none") is None
    assert traces.trace_of(raw_folder(tmp_path / "uncaptured", capture=None)).total is None
    assert traces.trace_of(raw_folder(tmp_path / "unsampled", began=())).ranks == []


@pytest.mark.parametrize(
    "changes, said", [({"bytes_by_interval": ["x"]}, "not numbers of 0 or more"), ({"interval_s": None}, "interval_s")]
)
def test_trace_damagedAnalysis_IsRefused(tmp_path, changes, said):
    with pytest.raises(RecordError, match=said):
        traces.trace_of(raw_folder(tmp_path / "run", capture=CAPTURE | changes))


def test_trace_bytesNotCounted_AreNone():
    one = probe(0)
    one["samples"][0]["sent_bytes"] = None
    assert traces.rank_trace(one, None).sent_bit_s == [None]


@pytest.mark.parametrize("count, most, expected", [(5, 5, [1] * 5), (5, 3, [2, 2, 1]), (0, 3, []), (7, 2, [4, 3])])
def test_series_coarser_KeepsAllBytes(count, most, expected):
    coarse = traces.Series(1.0, 0.5, [1] * count).coarser(most)
    assert coarse.bytes == expected and len(coarse.bytes) <= most and coarse.begin_s == 1.0


def test_directions_large_LeaveAcknowledgementsOut():
    def series(size):
        return traces.Series(0.0, 1.0, [size])

    trace = traces.RunTrace(
        [],
        series(1),
        {("r0", "r1"): series(1000), ("r1", "r0"): series(19), ("r0", "r2"): series(21), ("r1", "r2"): series(990)},
        [],
        True,
    )
    assert trace_plots.large_directions({("ws=2", "TCP"): trace}, ["ws=2"]) == [
        ("r0", "r1"),
        ("r1", "r2"),
        ("r0", "r2"),
    ]
    assert trace_plots.large_directions({("ws=4", "TCP"): trace}, ["ws=2"]) == []


def test_tracePlots_oneTransportMissing_AreDrawn(tmp_path):
    by_run = {("a", "TCP"): traces.trace_of(raw_folder(tmp_path / "run"))}
    for draw in (trace_plots.throughput, trace_plots.cumulative):
        assert draw(by_run, ["a"], ("TCP", "DPDK"), report_plots.LIGHT).startswith(PNG)
    assert trace_plots.ranks(by_run, "a", "a", ("TCP", "DPDK"), report_plots.DARK).startswith(PNG)


@pytest.mark.parametrize("megabytes, text", [(0, ""), (0.02, "<0.1"), (1.84, "1.8"), (1542.3, "1,542")])
def test_matrix_figures_AreShort(megabytes, text):
    assert matrix_plot.figure_text(megabytes) == text


def test_matrix_shades_RiseWithTheBytes():
    shades = [matrix_plot.shade_of(megabytes, 1000) for megabytes in (0, 0.1, 1, 1000)]
    assert shades[:2] == [0, 0] and 0 < shades[2] < shades[3] == pytest.approx(1)


def test_eventGroups_published_StandBesideEachTransport():
    plan = plan_of(catalogue.STUDIES["world-size"], "small")
    figures = [figure for figure in event_plots.training_tables.measurements.read() if figure.study == "world-size"]
    run = {
        "cell": {"variant": "ws=2", "transport": "TCP"},
        "capture": {
            "events": [{"bytes": 1, "seconds": one} for one in (2.0, 4.0, 9.0)],
            "total_bytes": 1,
            "total_s": 1,
        },
        "t_step_s": [],
        "t_ar_s": [],
    }
    groups = event_plots.groups_of(event_plots.DURATION, plan, [run], figures, lambda variant, transport: None)
    assert [(one.variant, one.name) for one in groups] == [
        (variant, name) for variant in ("ws=2", "ws=4") for name in ("published", "TCP", "DPDK")
    ]
    assert groups[0].spread == {"median": 3.732, "max": 8.961}
    assert (
        groups[1].spread == {"min": 2.0, "p25": 3.0, "median": 4.0, "p75": 6.5, "max": 9.0} and groups[2].spread == {}
    )
    assert event_plots.event_plot(event_plots.DURATION, plan, groups, report_plots.LIGHT).startswith(PNG)
    assert event_plots.event_plot(event_plots.DURATION, plan, [groups[0]], report_plots.LIGHT) is None


@pytest.mark.parametrize(
    "record, expected",
    [
        ({}, [("DPDK", "nothing of it was measured", True), ("RDMA", "it was not asked for", False)]),
        (
            {"failures": [{"stage": "repeat 1: base, DPDK", "reason": "no memory"}]},
            [("DPDK", "no memory", True), ("RDMA", "it was not asked for", False)],
        ),
        (
            {"state": "interrupted", "left_out": [{"what": "RDMA", "why": "no guest"}]},
            [("DPDK", "the study was interrupted before", True), ("RDMA", "no guest", False)],
        ),
    ],
)
def test_columns_transportWithoutRuns_IsNamedWithTheReason(record, expected):
    found = columns.absent_of({"state": "failed", "runs": [{"cell": {"transport": "TCP"}}]} | record, plan_for())
    assert [(one.transport, one.why, one.planned) for one in found] == expected


def test_columns_otherLinkOfATransport_IsThatTransport():
    record = {"state": "complete", "runs": [{"cell": {"transport": "DPDK-netdev"}}]}
    assert [one.transport for one in columns.absent_of(record, plan_for(transports=("DPDK-netdev",)))] == [
        "TCP",
        "RDMA",
    ]
    record = {"state": "complete", "runs": [{"cell": {"transport": "TCP-netem"}}]}
    assert [one.transport for one in columns.absent_of(record, plan_for(transports=("TCP-netem",)))] == [
        "TCP",
        "DPDK",
        "RDMA",
    ]


def test_columns_failureOfTcpOverNetem_IsNotThatOfTcp():
    record = {
        "state": "failed",
        "runs": [],
        "failures": [{"stage": "repeat 1, 1 of 2: ws=2, TCP-netem", "reason": "no memory"}],
    }
    found = columns.absent_of(record, plan_of(catalogue.STUDIES["precision"], "small", transports=("TCP", "TCP-netem")))
    assert [one.transport for one in found] == ["TCP", "TCP-netem", "DPDK", "RDMA"]
    assert [(one.transport, one.why) for one in found][:2] == [
        ("TCP", "nothing of it was measured"),
        ("TCP-netem", "no memory"),
    ]
