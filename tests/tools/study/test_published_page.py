"""scripts/study published: the formulas, a row for each figure, what is measured, and the page."""

import datetime
import json

import pytest
from conftest import MACHINE, ROOT
from gloo_bypass_tools.model.prediction import Prediction
from gloo_bypass_tools.report import machine, measurements
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study import command
from gloo_bypass_tools.study.printed import published
from gloo_bypass_tools.study.published import articles, benchmarks, formulas, measured, rows, tables
from gloo_bypass_tools.study.summaries import stored
from gloo_bypass_tools.study.summaries.lines import Line

PAGE = ROOT / "docs/studies/published"
RUN = benchmarks.Run(
    "0123abc",
    datetime.date(2026, 11, 28),
    machine.stored(MACHINE),
    0.1,
    0.0,
    (
        {"transport": "TCP", "ranks": 2, "bytes": 67108864, "time_us": 30000.0, "busbw_gbps": 2.2},
        {"transport": "TCP", "ranks": 4, "bytes": 67108864, "time_us": 120000.0, "busbw_gbps": 0.8},
    ),
    ({"type": "fp32", "seconds": 9.5}, {"type": "fp64", "seconds": 10.5}),
    {"plain_s": [1.0, 1.2, 1.1], "ddp_s": [1.21, 1.2, 1.3]},
)


def kept_run(study, *lines):
    told = (
        "scripts/study",
        {},
        "0123abc",
        datetime.date(2026, 11, 28),
        machine.stored(MACHINE),
        {},
        {},
        {},
        0.0,
        1.0,
        (),
    )
    return stored.Run(study, *told, lines)


def figure(study, variant, metric):
    return next(one for one in articles.read() if (one.study, one.variant, one.metric) == (study, variant, metric))


@pytest.mark.parametrize(
    "study, variant, metric, value",
    [
        ("70B fp32", "8 ranks", "volume_per_rank", 490.0),  # 2 x 7/8 x 280 GB
        ("70B fp32", "4 ranks, 50 GB/s", "allreduce_time", 8.4),
        ("bucket size, 7B, 8 ranks", "10 MB", "buckets", 2800.0),
        ("memory, 70B, per rank", "ZeRO-1", "memory", 350.0),  # (2 + 2 + 8/8) x 70
        ("memory, 70B, per rank", "ZeRO-2", "memory", 227.5),
        ("memory, 120M bf16", "total", "memory", 960.0),
        ("staleness exp(-0.1 t)", "t=15", "rate_ratio", 22.313),
        ("PowerSGD, 4096 x 4096, rank 4", "", "compression", 512.0),
        ("overlap, 100 layers, 80 ms backward, 100 ms all-reduce", "", "step", 100.8),
        ("volume", "2 to 4 ranks", "bytes_ratio", 1.5),
    ],
)
def test_Formulas_AreThoseOfTheLiterature(study, variant, metric, value):
    assert formulas.predict(figure(study, variant, metric)).value == pytest.approx(value, rel=1e-4)


def test_Benchmark_FollowsFromItsOwnPair_AndCountsAsNoModel():
    found = [one for one in articles.read() if one.study.startswith(formulas.BENCHMARK)]
    assert len(found) == 66 and not any(formulas.predict(one).modelled for one in found)
    pair = [
        formulas.predict(figure(f"all_reduce_perf, {one}", "mean", "busbw")).value
        for one in ("PCIe pair", "host bridge pair")
    ]
    assert pair == [pytest.approx(18.51, rel=0.01), pytest.approx(13.54, rel=0.01)]


def test_EveryFigure_HasARow_AndItsReasonWhereNothingWasMeasured():
    listed = rows.all_of(measured.Sources({}, None, {}))
    assert len(listed) == len(measurements.read()) + len(articles.read()) == 469 + 196
    assert all(row.why and not row.measured for row in listed)


def test_Page_InTheTree_SaysOfEveryArticlesFigureWhyItWasNotMeasured():
    in_tree = published.sources(PAGE.parent / "runs", benchmarks.read(PAGE / published.RUN_FILE))
    assert not [row for row in rows.of_articles(in_tree) if row.why == rows.NO_RUN]


def test_Modelled_CountsNoFigureThatOnlyFollowsFromOthers():
    row = next(one for one in rows.thesis(measured.Sources({}, None, {})) if one.label[1] == "th_peak" and one.model)
    assert not row.modelled and tables.cells(row)[3].startswith("*")


def test_Measured_OfTheThesis_AreAllKeptRunsValues():
    line = Line("5.8", "bs=8", "t_step", "median", "s", "TCP", 20.271, 5.0, None)
    other = Line("5.8", "bs=8", "t_step", "median", "s", "DPDK", 20.271, 4.0, None)
    runs = [kept_run("batch-size", line, other), kept_run("batch-size", Line(**vars(line) | {"measured": 6.0}))]
    source = measured.Sources({"batch-size": runs}, RUN, {})
    wanted = measurements.figure("5.8", "batch-size", "bs=8", "t_step", "median")
    assert measured.of_thesis(wanted, source) == {"TCP": [5.0, 6.0], "DPDK": [4.0]}
    loop = next(one for one in measurements.read() if one.metric == "loop_duration" and one.variant == "fp64")
    assert measured.of_thesis(loop, source) == {measured.ALONE: [10.5]}
    row = rows.Row(rows.THESIS, "Table 5.8", wanted.key[2:], "s", 20.0, Prediction(10.0, ""), {"TCP": [5.0, 6.0]}, "")
    assert tables.cells(row) == ["bs=8, t_step, median", "s", "20", "10 (0.5)", "5; 6 (0.275)", "", "", "", ""]


def test_Measured_OfADirection_IsThatOfWorldSize():
    line = Line("5.5", "ws=2, r0->r1", "bytes_per_event", "min", "MB", "TCP", 328.112, 344.0, 342.0)
    source = measured.Sources({"world-size": [kept_run("world-size", line)]}, None, {})
    wanted = measurements.figure("5.5", "flow-symmetry", "rank0->rank1", "bytes_per_event", "min")
    assert measured.of_thesis(wanted, source) == {"TCP": [344.0]}


def test_Measured_OfArticles_AreScaledAndCompared():
    size = 327650304
    sent = {("TCP", "none"): size, ("TCP", "bf16"): size / 2, ("TCP", "topk 1 % in fp16"): 0.015 * size}
    lines = [
        Line("5.14", f"ws={ranks}", "bytes_per_event", "median", "MB", "TCP", None, size, None)
        for ranks, size in ((2, 655.3), (4, 1965.9))
    ]
    lines += [
        Line("", point, metric, "median", "s", "TCP", None, value, None)
        for point, metric, value in (
            ("25MiB", "t_step", 4.0),
            ("100MiB", "t_step", 5.0),
            ("100MiB", "t_ar", 2.0),
            ("100MiB", "t_exposed", 0.5),
        )
    ]
    kept = {"world-size": [kept_run("world-size", *lines)], "bucket": [kept_run("bucket", *lines)]}
    source = measured.Sources(kept, RUN, sent)

    def value(*asked, column="TCP"):
        return measured.of_article(figure(*asked), source)[column][0]

    volume, buckets = "volume a step, 70B, 8 ranks", "bucket size, 7B, 8 ranks"
    assert value(volume, "fp16", "volume_per_rank") == pytest.approx(245.0)
    assert value(volume, "top 1 %", "volume_per_rank") == pytest.approx(7 * 280 * 0.015)  # to all others
    assert measured.of_article(figure(volume, "PowerSGD rank 4", "volume_per_rank"), source) == {}
    assert value("top 1 %, 50 ms all-reduce, fp16 values, int32 indices", "", "compression") == pytest.approx(
        33.33, 1e-3
    )
    assert value("70B fp32", "2 ranks", "volume_per_rank") == pytest.approx(280, rel=1e-3)
    assert value("volume", "2 to 4 ranks", "bytes_ratio") == pytest.approx(1.5, rel=1e-3)
    assert value("shared bus", "2 to 4 ranks", "allreduce_ratio_measured") == 4.0
    assert value("all_reduce_perf, PCIe pair", "67108864 bytes", "time_in_place") == 30000.0
    assert value("one-rank cost", "DDP against plain", "overhead_low", column=measured.ALONE) == pytest.approx(
        100 / 11, 0.01
    )
    assert (value(buckets, "100 MB", "step_ratio"), value(buckets, "100 MB", "overlap")) == (1.25, 75.0)
    assert measured.of_article(figure(buckets, "25 MB", "step_ratio"), source) == {}


def test_Loop_IsOfAllPublishedPasses(tmp_path):
    path, one = tmp_path / "arithmetic.json", {"type": "fp32", "p50_s": 0.085, "seconds_for_published_passes": 8.5341}
    loops = [one, one | {"type": "bf16"}]
    path.write_text(json.dumps({"schema": "gloo-bypass/arithmetic_perf/1", "loop": loops}))
    assert benchmarks.loops_of(path) == [{"type": "fp32", "seconds": 8.534}]


def test_Run_IsReadAsWritten(tmp_path):
    benchmarks.write(RUN, tmp_path / "run.json")
    assert benchmarks.read(tmp_path / "run.json") == RUN


@pytest.mark.parametrize(
    "change, said",
    [
        ({"schema": "another"}, "schema 'another'"),
        ({"more": 1}, "'more' is unknown"),
        ({"loop": [{"type": "fp32", "seconds": 0}]}, "loop\\[0\\]: 'seconds' is 0, not above 0"),
        ({"one_rank": {"plain_s": [], "ddp_s": []}}, "'plain_s' is empty"),
    ],
)
def test_Run_ThatIsDamaged_IsRefused(tmp_path, change, said):
    path = tmp_path / "run.json"
    benchmarks.write(RUN, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError, match=said):
        benchmarks.read(path)


@pytest.mark.parametrize(
    "line, said",
    [
        ("a,b,c,d,furlongs,1", "unit 'furlongs' is none of"),
        ("a,b,c,d,s,-1", "value is '-1', not a number of 0 or more"),
        (",b,c,d,s,1", "column 'article' is ''"),
    ],
)
def test_Articles_WithAWrongLine_AreRefused(tmp_path, line, said):
    path = tmp_path / "x.csv"
    path.write_text(f"{','.join(articles.COLUMNS)}\n{line}\n")
    with pytest.raises(RecordError, match="x.csv:2: " + said):
        articles.read(path)


def test_BadInput_IsOneLineAndStatusTwo(capsys):
    assert command.main(["published", "--draw", "/no/such"]) == 2
    assert capsys.readouterr().err.startswith("study: /no/such")
    with pytest.raises(SystemExit) as ended:
        command.main(["published", "--build", "/no/such"])
    assert ended.value.code == 2


def test_Page_InTheTree_HasTheTablesOfItsRuns():
    text = (PAGE / published.PAGE).read_text()
    assert published.renewed(text, PAGE) == text, "scripts/study published --draw docs/studies/published"
