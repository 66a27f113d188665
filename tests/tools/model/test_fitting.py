"""The fit recovers the parameters of its data, states its uncertainty, and refuses data that it cannot fit."""

import json
import random

import pytest
from conftest import benchmark_report
from gloo_bypass_tools.model import fitting, ring

SIZES = [4**power for power in range(1, 14)]
LINK = ring.Link(12e-6, 2.5e9)


def points(link=LINK, ranks=(2,), noise=0.0, seed=1, sizes=SIZES):
    draw = random.Random(seed)
    return [
        fitting.Point(n, size, ring.time_s(n, size, link) * 2.718281828 ** draw.gauss(0, noise))
        for n in ranks
        for size in sizes
    ]


def test_exact_times_give_back_alpha_and_beta():
    found = fitting.fit(points())
    assert found.alpha_s.value == pytest.approx(12e-6, rel=1e-6) and found.beta.value == pytest.approx(2.5e9, rel=1e-6)
    assert found.rms < 1e-6 and found.alpha_s.high - found.alpha_s.low < 1e-9


@pytest.mark.parametrize("alpha, beta", [(1e-6, 1e8), (100e-6, 1e9), (3e-3, 2e10)])
@pytest.mark.parametrize("ranks", [(2,), (4,), (2, 4, 8)])
def test_noisy_times_give_alpha_and_beta_to_the_noise(alpha, beta, ranks):
    link = ring.Link(alpha, beta)
    sizes = [4**power for power in range(1, 16)]
    found = fitting.fit(points(link, ranks, 0.05, sizes=sizes))
    assert found.alpha_s.value == pytest.approx(alpha, rel=0.1) and found.beta.value == pytest.approx(beta, rel=0.1)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    inside = {"alpha": 0, "beta": 0}
    for seed in range(40):
        found = fitting.fit(points(noise=0.1, seed=seed), bootstraps=300)
        inside["alpha"] += found.alpha_s.low <= LINK.alpha_s <= found.alpha_s.high
        inside["beta"] += found.beta.low <= LINK.beta <= found.beta.high
    # 95 % of 40 is 38; of so few, 32 is four standard deviations below.
    assert min(inside.values()) >= 32


def test_an_outlier_moves_the_fit_little():
    spoiled = points(noise=0.02)
    spoiled[5] = fitting.Point(2, spoiled[5].size, 40 * spoiled[5].seconds)
    found = fitting.fit(spoiled)
    assert found.alpha_s.value == pytest.approx(12e-6, rel=0.05) and found.beta.value == pytest.approx(2.5e9, rel=0.05)
    assert found.worst == pytest.approx(39, rel=0.1) and found.alpha_s.low < 12e-6 < found.alpha_s.high


def test_given_gamma_leaves_the_rest_to_beta():
    link = ring.Link(12e-6, 2.5e9, 1e-10)
    assert fitting.fit(points(link), gamma=1e-10).beta.value == pytest.approx(2.5e9, rel=1e-5)
    # Without it beta contains the sums: 1/beta + gamma/2.
    assert fitting.fit(points(link)).beta.value == pytest.approx(1 / (1 / 2.5e9 + 0.5e-10), rel=1e-5)


def test_gamma_has_no_column_of_its_own_whatever_the_ranks():
    one = points(ring.Link(12e-6, 2e9, 0.0), (2, 4, 8))
    other = points(ring.Link(12e-6, 4e9, 2 / 2e9 - 2 / 4e9), (2, 4, 8))
    assert [point.seconds for point in one] == pytest.approx([point.seconds for point in other], rel=1e-12)


@pytest.mark.parametrize(
    "made, said",
    [
        (points(sizes=SIZES[:2]), "2 different sizes of message cannot tell alpha from beta"),
        (points(sizes=SIZES[:1]), "1 different size of message cannot"),
        ([], "0 different sizes"),
        ([fitting.Point(1, size, 1e-6) for size in SIZES], "the times are of one rank"),
        ([fitting.Point(2, size, 0.0) for size in SIZES], "a time is not above 0"),
        ([fitting.Point(2, size, 1e-4) for size in SIZES], "do not grow with the size"),
    ],
)
def test_what_cannot_be_fitted_is_refused(made, said):
    with pytest.raises(fitting.FitError, match=said):
        fitting.fit(made)


def test_sums_slower_than_all_of_it_are_refused():
    with pytest.raises(fitting.FitError, match="--sum-gb-s is too low"):
        fitting.fit(points(), gamma=1e-6)


def times_us(link, ranks):
    return {size: 1e6 * ring.time_s(ranks, size, link) for size in SIZES}


@pytest.fixture
def measured(tmp_path):
    """Files of 2 and 4 ranks, where TCP follows one alpha and beta, and SHARED does not."""
    files = []
    for ranks in (2, 4):
        path = tmp_path / f"{ranks}.json"
        path.write_text(
            json.dumps(
                benchmark_report(
                    ranks,
                    {
                        "TCP": times_us(ring.Link(80e-6, 1e9), ranks),
                        "SHARED": times_us(ring.Link(5e-6, 8e9 / ranks), ranks),
                    },
                )
            )
        )
        files.append(path)
    return files


def test_fit_command_reads_files_and_writes_json(answer, measured):
    made = answer("fit", *measured)
    assert made["schema"] == "gloo-bypass/model-fit/1"
    by = {(one["transport"], tuple(one["ranks"])): one for one in made["fits"]}
    assert by["TCP", (2, 4)]["alpha_s"]["value"] == pytest.approx(80e-6, rel=1e-4)
    assert by["TCP", (2, 4)]["beta_bytes_s"]["value"] == pytest.approx(1e9, rel=1e-4)
    assert by["SHARED", (2,)]["beta_bytes_s"]["value"] == pytest.approx(4e9, rel=1e-4)
    assert by["SHARED", (4,)]["beta_bytes_s"]["value"] == pytest.approx(2e9, rel=1e-4)


def test_fit_command_says_whether_one_fit_does_for_all_ranks(model, measured):
    status, output, _ = model("fit", *measured)
    assert status == 0
    assert "each N apart: one alpha and one beta explain all N" in output
    assert "alpha and beta change with N" in output


def test_fit_command_draws_a_plot(model, measured, tmp_path):
    picture = tmp_path / "fit.png"
    status, output, _ = model("fit", *measured, "--plot", picture, "--json", tmp_path / "fit.json")
    assert status == 0 and picture.read_bytes().startswith(b"\x89PNG") and str(picture) in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.json", "4.json", "fit.json", "fit.png"]


def test_predict_takes_a_fit(model, answer, measured, tmp_path):
    assert model("fit", *measured, "--transport", "TCP", "--json", tmp_path / "fit.json")[0] == 0
    made = answer("predict", "--fit", tmp_path / "fit.json", "--bytes", "64M", "--ranks", "4")
    assert made["alpha_beta_s"] == pytest.approx(ring.time_s(4, 2**26, ring.Link(80e-6, 1e9)), rel=1e-4)


def wrong_report():
    report = benchmark_report(2, {"TCP": {4: 1.0, 8: 2.0, 64: 3.0}})
    report["results"][0]["transports"][0]["wrong"] = 3
    return report


@pytest.mark.parametrize(
    "report, said",
    [
        (benchmark_report(2, {"TCP": {4: 1.0, 8: 2.0}}), "TCP: 2 different sizes"),
        (benchmark_report(1, {"TCP": {4: 1.0, 8: 2.0, 64: 3.0}}), "one rank"),
        (benchmark_report(2, {"TCP": {4: 1.0, 8: 2.0, 64: 3.0}}, "bcube"), "--algorithm bcube"),
        (benchmark_report(2, {"UDP/own": {4: 1.0, 8: 2.0, 64: 3.0}}), "UDP/own is not UDP/own:ring"),
        (benchmark_report(2, {"UDP/own:one-shot": {4: 1.0, 8: 2.0, 64: 3.0}}), "UDP/own:one-shot is not UDP/own:ring"),
        ({"schema": "other/1"}, "schema 'other/1'"),
        (wrong_report(), "report.json: 3 elements of 4 bytes were wrong"),
    ],
)
def test_fit_command_refuses_in_one_line(model, tmp_path, report, said):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    status, output, errors = model("fit", path)
    assert status == 2 and output == "" and errors.count("\n") == 1 and said in errors


def test_fit_command_takes_rings_of_our_own_and_leaves_out_what_is_not_asked_for(answer, tmp_path):
    times = times_us(ring.Link(80e-6, 1e9), 2)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(benchmark_report(2, {"UDP": times, "UDP/own": times, "UDP/own:ring": times})))
    made = answer("fit", path, "--transport", "UDP", "--transport", "UDP/own:ring")
    assert [one["transport"] for one in made["fits"]] == ["UDP", "UDP/own:ring"]


def test_fit_command_says_the_same_in_whatever_order_files_come(model, measured):
    status, output, _ = model("fit", *measured)
    halves = [line for line in output.splitlines() if "half of the time" in line]
    assert status == 0 and "TCP, N = 2: half of the time" in halves[0] and "TCP, N = 4: half of the time" in halves[0]
    assert model("fit", *reversed(measured))[1] == output


def test_fit_command_names_what_is_missing(model, measured, tmp_path):
    assert "nowhere.json: cannot be read" in model("fit", tmp_path / "nowhere.json")[2]
    assert (
        "--transport RDMA: not in these files, which have TCP, SHARED"
        in model("fit", *measured, "--transport", "RDMA")[2]
    )
    assert "have no size from 1,073,741,824 to" in model("fit", *measured, "--min-bytes", "1G")[2]
