"""The published figures: read, checked, and beside the model."""

import pytest
from conftest import ROOT
from gloo_bypass_tools.model import prediction
from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.report.records import RecordError

HEADER = "table,study,variant,metric,statistic,unit,value\n"


def test_published_gives_bytes_seconds_rates_shares_and_counts():
    published = measurements.published
    assert published("5.7", "batch-size", "bs=8", "bytes_per_event", "median") == 656.271e6
    assert published("5.8", "batch-size", "bs=8", "t_ar", "median") == pytest.approx(4.621)
    assert published("5.7", "batch-size", "bs=8", "th_peak", "median") == pytest.approx(1406.9e6)
    assert published("5.6", "batch-size", "bs=8", "th_avg_overall", "mean") == pytest.approx(0.232e9)
    assert published("5.8", "batch-size", "bs=8", "oh_ar", "median") == pytest.approx(0.278)
    assert published("5.6", "batch-size", "bs=16", "allreduce_events", "count") == 12


def test_all_figures_are_there():
    figures = measurements.read()
    assert len(figures) == 469
    assert {figure.study for figure in figures} == {
        "barrier",
        "flow-symmetry",
        "batch-size",
        "precision",
        "ws4-flows",
        "world-size",
        "edge-bandwidth",
        "edge-latency",
    }


def test_figures_of_several_tables_agree():
    """Figures printed twice agree to the printed digits; the framework's T_ar and OH_ar of table 5.11 come from another
    run."""
    base = [
        measurements.published(table, study, variant, "bytes_per_event", "median")
        for table, study, variant in (
            ("5.2", "barrier", "no-barrier"),
            ("5.7", "batch-size", "bs=8"),
            ("5.10", "precision", "fp32"),
            ("5.14", "world-size", "ws=2"),
        )
    ]
    assert base == [656.271e6] * 4


@pytest.mark.parametrize(
    "asked, said",
    [
        (("9.9", "batch-size", "bs=8", "t_ar", "median"), "table '9.9': there are 5.1,"),
        (("5.8", "precision", "bs=8", "t_ar", "median"), "study 'precision' in 5.8: there are batch-size"),
        (("5.8", "batch-size", "bs=9", "t_ar", "median"), "variant 'bs=9' in 5.8 batch-size: there are bs=8, bs=16"),
        (("5.8", "batch-size", "bs=8", "t_er", "median"), "metric 't_er'"),
        (("5.8", "batch-size", "bs=8", "t_ar", "max"), "there are median, p75"),
    ],
)
def test_published_unknown_figure_names_what_there_is(asked, said):
    with pytest.raises(measurements.PublishedError, match=said):
        measurements.published(*asked)


@pytest.mark.parametrize(
    "line, said",
    [
        ("5.1,a,b,c,median,s,x", "x.csv:2: value is 'x'"),
        ("5.1,a,b,c,median,s,-1", "value is '-1'"),
        ("5.1,a,b,c,median,s,nan", "value is 'nan'"),
        ("5.1,a,b,c,median,furlongs,1", "unit 'furlongs' is none of 1, MB"),
        ("5.1,a,b,c,mode,s,1", "statistic 'mode'"),
        ("five,a,b,c,median,s,1", "table 'five'"),
        ("5.1,,b,c,median,s,1", "column 'study' is ''"),
        ("5.1,a,b,c,median,s", "7 columns"),
        ("5.1,a,b,c,median,s,1,2", "7 columns"),
        ("5.1,a,b,c,median,s,1\n5.1,a,b,c,median,s,2", "x.csv:3: the same figure as in line 2"),
    ],
)
def test_read_refuses_a_wrong_line_with_its_number(tmp_path, line, said):
    path = tmp_path / "x.csv"
    path.write_text(HEADER + line + "\n")
    with pytest.raises(RecordError) as refused:
        measurements.read(path)
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "the first line"),
        (b"a,b\n", "the first line"),
        (HEADER.encode(), "no figures"),
        (HEADER.encode() + b"\xff\xfe", "not a CSV file"),
    ],
)
def test_read_refuses_another_file(tmp_path, content, said):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=said):
        measurements.read(path)


def test_every_variant_of_the_file_is_known_to_the_model():
    assert [
        figure for figure in measurements.read() if prediction.setting_of(figure.study, figure.variant) is None
    ] == []
    assert prediction.setting_of("edge-latency", "300ms") == prediction.Setting(ranks=4, delay_s=0.3)
    assert prediction.setting_of("edge-latency", "tomorrow") is None


@pytest.mark.parametrize(
    "figure", [one for one in measurements.read() if one.metric == "allreduce_events"], ids=lambda one: one.variant
)
def test_events_are_exactly_the_published_ones(figure):
    assert prediction.predict(figure).value == figure.value


@pytest.mark.parametrize(
    "figure",
    [
        one
        for one in measurements.read()
        if one.metric == "bytes_per_event" and one.statistic == "median" and one.base > 1e6
    ],
    ids=lambda one: f"{one.table} {one.variant}",
)
def test_bytes_per_event_are_within_half_a_per_cent(figure):
    assert figure.value / prediction.predict(figure).value == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize(
    "figure",
    [
        one
        for one in measurements.read()
        if one.metric in ("th_peak", "th_avg_overall") and one.statistic in ("mean", "median") and one.value > 1
    ],
    ids=lambda one: f"{one.table} {one.variant}",
)
def test_rates_are_what_their_definition_says(figure):
    """Except for flows of two ranks, which are printed to four digits; two flows of four ranks last 20 s less than the
    epoch."""
    made = prediction.predict(figure)
    allowed = 0.03 if (figure.study, figure.metric) == ("ws4-flows", "th_avg_overall") else 0.01
    assert figure.value / made.value == pytest.approx(1, abs=allowed)


@pytest.mark.parametrize(
    "figure",
    [one for one in measurements.read() if one.metric.endswith(measurements.RATIO)],
    ids=lambda one: f"{one.table} {one.variant} {one.metric} {one.statistic}",
)
def test_ratios_are_those_of_the_printed_figures(figure):
    """To the printed digits; one was cut instead of rounded."""
    top, bottom = (
        measurements.figure(figure.table, figure.study, variant, figure.metric.removesuffix("_ratio"), figure.statistic)
        for variant in (figure.variant, measurements.FIRST[figure.study])
    )
    assert figure.value == pytest.approx(top.value / bottom.value, abs=0.0065)


def test_ratios_of_bytes_are_the_models():
    checked = [one for one in measurements.read() if one.metric == "bytes_per_event_ratio"]
    assert len(checked) > 10
    for one in checked:
        assert one.value == pytest.approx(prediction.predict(one).value, abs=0.015)


def test_ring_of_four_ranks_goes_one_way_in_file_and_model():
    by = {
        figure.variant: (figure.value, prediction.predict(figure).value)
        for figure in measurements.read()
        if figure.study == "ws4-flows" and figure.metric == "bytes_per_event"
    }
    for published, made in by.values():
        assert (published > 100) == (made > 100)
    assert by["0->3"][1] > 490 and by["3->0"][1] < 1


def test_ratios_carry_the_published_ones():
    by = {one.label: one for one in prediction.ratios()}
    assert by["event duration, 4 ranks / 2"].published == pytest.approx(5.23, abs=0.01)
    assert by["bytes per event, 4 ranks / 2"].published == pytest.approx(3.0, abs=0.01)
    assert by["bytes per event, 4 ranks / 2"].model == pytest.approx(3.0, abs=0.01)


def test_published_command_shows_tables_with_model_and_ratio(model):
    status, output, _ = model("published", "--study", "edge-bandwidth")
    assert status == 0 and "Table 5.17" in output and "Table 5.20" not in output
    row = next(line for line in output.splitlines() if "event_duration" in line and "100Mbit" in line)
    published, made, ratio = (float(word) for word in row.split()[5:8])
    assert published == 42.51 and published / made == pytest.approx(ratio, abs=1e-3) and 0.9 < ratio < 1.1


def test_published_command_all_shows_every_figure(model, answer):
    assert len(answer("published")["figures"]) == 469
    shown = model("published", "--all")[1]
    assert "train_loss" in shown and "figures are not shown" not in shown
    assert "train_loss" not in model("published")[1]


@pytest.mark.parametrize(
    "arguments, said",
    [(("--table", "6.1"), "--table 6.1: there are 5.1"), (("--study", "x"), "--study x: there are barrier")],
)
def test_published_command_unknown_choice_is_refused(model, arguments, said):
    status, _, errors = model("published", *arguments)
    assert status == 2 and said in errors


def test_studies_readme_names_every_column():
    text = (ROOT / "docs" / "studies" / "README.md").read_text()
    for column in measurements.COLUMNS:
        assert f"`{column}`" in text
    for figure in measurements.read():
        assert figure.study in text and f"`{figure.metric}`" in text
