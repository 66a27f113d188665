"""Medians, tails and ratios against values worked out by hand."""

import pandas
import pytest
from gloo_bypass_tools.report import records, steadiness, summary

BOTH = ["TCP", "DPDK"]


def steps_of(values):
    """Rows (transport, repeat, warm_up, step_s) with the rest filled in."""
    rows = [
        dict.fromkeys(records.STEP_COLUMNS, 1.0)
        | {
            "transport": transport,
            "repeat": repeat,
            "rank": 0,
            "warm_up": warm_up,
            "step_s": seconds,
            "all_reduce_s": seconds / 2,
            "tokens_per_s": 100 / seconds,
        }
        for transport, repeat, warm_up, seconds in values
    ]
    return records.frame_of(rows, records.STEP_COLUMNS)


def row(rows, key):
    return next(row for row in rows if row.key == key)


def test_figure_of_samples_is_median_and_bad_end():
    values = list(range(1, 102))
    assert summary.figure_of(values) == summary.Figure(51.0, 100.0, 101)
    assert summary.figure_of(values, "higher") == summary.Figure(51.0, 2.0, 101)
    assert summary.figure_of([]) is None and summary.figure_of([None, None]) is None


@pytest.mark.parametrize(
    "baseline, other, better, wanted",
    [
        (2.0, 1.0, "lower", 2.0),
        (1.0, 2.0, "lower", 0.5),
        (1.0, 3.0, "higher", 3.0),
        (1.0, 0.0, "lower", None),
        (0.0, 1.0, "higher", None),
        (1.0, 2.0, "", None),
        (None, 2.0, "lower", None),
    ],
)
def test_times_better_above_one_is_better_for_times_and_rates(baseline, other, better, wanted):
    assert summary.times_better(baseline, other, better) == wanted


def test_training_rows_leave_warm_up_out_and_pair_repeats():
    steps = steps_of(
        [
            ("TCP", 1, True, 90.0),
            ("TCP", 1, False, 3.0),
            ("TCP", 2, False, 4.0),
            ("TCP", 2, False, 4.0),
            ("DPDK", 1, True, 90.0),
            ("DPDK", 1, False, 2.0),
            ("DPDK", 2, False, 2.0),
            ("DPDK", 2, False, 2.0),
        ]
    )
    one = row(summary.training_rows(steps, BOTH), "step_s")
    assert one.figures["TCP"].median == 4.0 and one.figures["DPDK"].median == 2.0
    assert one.ratios["DPDK"] == summary.Ratio(2.0, 1.5, 2.0)
    rate = row(summary.training_rows(steps, BOTH), "tokens_per_s")
    assert rate.ratios["DPDK"].value == pytest.approx(2.0)
    share = row(summary.training_rows(steps, BOTH), "share_percent")
    assert share.figures["TCP"].median == 50.0 and share.ratios == {}


def test_training_rows_of_one_repeat_have_no_range():
    steps = steps_of([("TCP", 1, False, 3.0), ("DPDK", 1, False, 2.0)])
    assert row(summary.training_rows(steps, BOTH), "step_s").ratios["DPDK"] == summary.Ratio(1.5)


def test_training_rows_without_the_second_transport_have_no_ratio():
    one = row(summary.training_rows(steps_of([("TCP", 1, False, 3.0)]), BOTH), "step_s")
    assert list(one.figures) == ["TCP"] and one.ratios == {}


def test_training_rows_of_nothing_are_none():
    assert summary.training_rows(steps_of([]), BOTH) == []
    assert summary.training_rows(steps_of([("TCP", 1, True, 3.0)]), BOTH) == []


def reduces_of(values):
    rows = [
        dict.fromkeys(records.REDUCE_COLUMNS, 1.0)
        | {
            "transport": transport,
            "ranks": ranks,
            "bytes": size,
            "elements": size // 4,
            "p50_us": p50,
            "p99_us": p99,
            "samples": 200,
        }
        for transport, ranks, size, p50, p99 in values
    ]
    return records.frame_of(rows, records.REDUCE_COLUMNS)


def test_all_reduce_rows_tell_small_sizes_by_time_and_large_by_bus_bandwidth():
    rows = summary.all_reduce_rows(
        reduces_of(
            [
                ("TCP", 2, 4, 100.0, 300.0),
                ("DPDK", 2, 4, 10.0, 20.0),
                ("TCP", 2, 40_000_000, 40_000.0, 80_000.0),
                ("DPDK", 2, 40_000_000, 8_000.0, 10_000.0),
            ]
        ),
        BOTH,
    )
    assert [(one.unit, one.ratios["DPDK"].value) for one in rows] == [("us", 10.0), ("GB/s", 5.0)]
    assert rows[0].figures["TCP"] == summary.Figure(100.0, 300.0, 200)
    assert rows[1].figures["TCP"] == summary.Figure(1.0, 0.5, 200)
    assert rows[0].label == "4 B, 1 element" and rows[1].label == "40 MB, 10M elements"


def test_busbw_follows_nccl_tests():
    assert summary.busbw(1_000_000, 1000.0, 2) == pytest.approx(1.0)
    assert summary.busbw(1_000_000, 1000.0, 4) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "size, text", [(4, "4 B"), (1024, "1 KiB"), (65536, "64 KiB"), (2**20, "1 MiB"), (40_000_000, "40 MB")]
)
def test_size_text(size, text):
    assert summary.size_text(size) == text


def runs_of(values):
    return pandas.DataFrame(
        [{"transport": transport, "repeat": 1, "rank": 0, "sha256": digest} for transport, digest in values],
        columns=["transport", "repeat", "rank", "sha256"],
    )


def test_identical_needs_every_rank_of_every_run_and_transport():
    assert summary.identical(runs_of([("TCP", "a"), ("TCP", "a"), ("DPDK", "a")]), BOTH) is True
    assert summary.identical(runs_of([("TCP", "a"), ("DPDK", "b")]), BOTH) is False
    assert summary.identical(runs_of([("TCP", "a"), ("TCP", "b"), ("DPDK", "a")]), BOTH) is False
    assert summary.identical(runs_of([("TCP", "a")]), BOTH) is None
    assert summary.identical(runs_of([]), BOTH) is None


@pytest.mark.parametrize(
    "ratio, least, met",
    [
        (None, 1.0, None),
        (summary.Ratio(1.0), 1.0, True),
        (summary.Ratio(0.99), 1.0, False),
        (summary.Ratio(0.99, 0.97, 1.01), 1.0, None),
        (summary.Ratio(0.9, 0.8, 1.01), 1.0, False),
        (summary.Ratio(2.9), 3.0, False),
    ],
)
def test_target_is_undecided_only_near_it_with_repeats_on_both_sides(ratio, least, met):
    assert summary.target_of("a", "b", ratio, least).met is met


def test_unsteady_forward_passes_of_either_side_are_found_but_not_those_of_the_warm_up():
    def rows(transport, warm, *seconds):
        return [
            {"transport": transport, "repeat": 1, "warm_up": number < warm, "forward_s": one}
            for number, one in enumerate(seconds)
        ]

    steps = rows("TCP", 1, 9.0, 1.0, 1.0) + rows("DPDK", 1, 0.1, 1.04, 1.04) + rows("UDP", 1, 1.0, 0.5, 0.5)
    assert steadiness.unsteady(steps, ["TCP", "DPDK", "UDP"]) == {"UDP": 2.0}
    assert steadiness.unsteady(steps, ["UDP", "TCP"]) == {"TCP": 0.5}
    assert steadiness.unsteady(rows("TCP", 0, 1.0), ["TCP", "DPDK"]) == {} == steadiness.unsteady([], ["TCP"])
    assert steadiness.in_words({"UDP": 2.0, "DPDK": 0.5}, "TCP").endswith(
        "it was 2.00 times as fast over UDP as over TCP and 0.50 times as fast over DPDK as over TCP"
    )


@pytest.mark.parametrize(
    "overall, repeats, found",
    [
        (1.0, [], None),
        (1.04, [1.2, 0.85], None),
        (1.06, [1.06], 1.06),
        (0.9, [0.9], 0.9),
        (1.0, [0.4, 2.18], 0.4),
        (1.0, [0.9, 1.3], 1.3),
    ],
)
def test_unsteady_repeats_that_are_off_both_ways_do_not_cancel_out(overall, repeats, found):
    assert steadiness.unsteady_ratio(overall, repeats) == found


def test_doubted_and_unsteady_are_the_same():
    steps = steps_of([("TCP", 1, False, 3.0), ("TCP", 2, False, 3.0), ("DPDK", 1, False, 3.0), ("DPDK", 2, False, 3.0)])
    steps.loc[(steps["transport"] == "DPDK") & (steps["repeat"] == 1), "forward_s"] = 2.0
    steps.loc[(steps["transport"] == "DPDK") & (steps["repeat"] == 2), "forward_s"] = 0.5
    found = summary.doubted(summary.training_rows(steps, BOTH), BOTH)
    assert found == pytest.approx(steadiness.unsteady(steps.to_dict("records"), BOTH)) and found


def test_identical_in_each_series_of_runs():
    whole, other, short = (runs_of([("TCP", digest), ("DPDK", digest)]) for digest in "abc")
    assert summary.identical_in_each([whole, other], BOTH) is True
    assert summary.identical_in_each([whole, runs_of([])], BOTH) is True
    assert summary.identical_in_each([short, runs_of([("TCP", "x"), ("DPDK", "y")])], BOTH) is False
    assert summary.identical_in_each([runs_of([])], BOTH) is None
    assert summary.identical_in_each([whole, runs_of([("TCP", "x")])], BOTH) is None


@pytest.mark.parametrize("forward, doubtful", [(1.0, False), (1.04, False), (1.2, True), (0.8, True)])
def test_doubt_when_forward_differs_between_transports(forward, doubtful):
    steps = steps_of([("TCP", 1, False, 3.0), ("DPDK", 1, False, 3.0)])
    steps.loc[steps["transport"] == "DPDK", "forward_s"] = forward
    said = summary.doubt(summary.training_rows(steps, BOTH), BOTH)
    assert bool(said) == doubtful
    assert summary.doubt([], BOTH) == ""


def rdma_rows(ring_us, chunked):
    """Rows of the ring over RDMA, and of ring-chunked over RDMA and Gloo's ibverbs: {bytes: (RDMA's, Gloo's)} in
    microseconds."""

    def line(transport, size, p50):
        return dict.fromkeys(records.REDUCE_COLUMNS, 0) | {
            "transport": transport,
            "bytes": size,
            "elements": size // 4,
            "ranks": 2,
            "p50_us": p50,
            "p99_us": p50,
            "samples": 1,
        }

    ring = records.frame_of([line("RDMA", 4, ring_us)], records.REDUCE_COLUMNS)
    bound = records.frame_of(
        [
            line(transport, size, p50)
            for size, pair in chunked.items()
            for transport, p50 in zip(("RDMA", "GLOO_IBVERBS"), pair)
        ],
        records.REDUCE_COLUMNS,
    )
    return summary.all_reduce_rows(ring, ["RDMA"]), summary.bound_rows(bound, ["RDMA", "GLOO_IBVERBS"])


@pytest.mark.parametrize(
    "ring_us, met, said", [(100.0, True, "1/10.0 (100 of 1,000 us)"), (200.0, False, "1/5.0 (200 of 1,000 us)")]
)
def test_rdma_targets_one_element_in_the_ring_is_held_against_gloos_ring_chunked(ring_us, met, said):
    ring, bound = rdma_rows(ring_us, {4: (400.0, 1000.0)})
    one = summary.one_element_target(ring, bound)
    assert one.met is met and one.measured == said


def test_rdma_targets_ring_chunked_is_held_against_itself_at_each_size():
    ring, bound = rdma_rows(100.0, {4: (400.0, 1000.0), 65536: (3000.0, 3600.0), 4 * 2**20: (100_000.0, 150_000.0)})
    nothing = records.frame_of([], records.WRITE_COLUMNS)
    found = {one.label: one for one in summary.rdma_targets(nothing, ring, bound, [])}
    chunked = [one for label, one in found.items() if "ring-chunked all-reduce" in label]
    assert [(one.measured, one.met) for one in chunked] == [("2.50 x", True), ("1.20 x", False), ("1.50 x", True)]
    assert all("1.4 x" in one.wanted for one in chunked)


def test_rdma_targets_without_gloos_transport_are_not_measured():
    one = summary.one_element_target(*rdma_rows(100.0, {}))
    assert one.met is None and one.measured == "not measured"
