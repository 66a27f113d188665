"""volume and predict as a user runs them, and what all subcommands share."""

import json
import os
import subprocess

import pytest
from conftest import ROOT, benchmark_report
from gloo_bypass_tools.report import measurements

SUBCOMMANDS = ("volume", "fit", "predict", "plan", "published", "simulated")


def test_model_runs_as_a_program_and_names_its_subcommands():
    done = subprocess.run(
        [ROOT / "scripts" / "model", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and all(name in done.stdout for name in SUBCOMMANDS)


@pytest.mark.parametrize(
    "name, formulas",
    [
        ("volume", ("2(N-1) S", "2 (N-1)/N S")),
        ("fit", ("T = 2 (N-1) alpha",)),
        ("predict", ("2N iterations", "2(N-1)/N S / rate + delay, or twice the delay if that is more and N > 2")),
        ("plan", ("BW_min = S / (alpha_net T_batch - T_prop - T_hop)",)),
        ("published", ("floor(400",)),
    ],
)
def test_help_states_the_formulas(model, name, formulas):
    status, output, _ = model(name, "--help")
    assert status == 0
    for formula in formulas:
        assert formula.replace(" ", "") in output.replace(" ", "")


def test_volume_of_the_published_run(answer):
    made = answer("volume")
    assert (
        made["gradient_bytes"] == 327_650_304
        and made["event_bytes"] == 655_300_608
        and made["broadcast_bytes"] == 327_650_304
    )
    paths = {one["path"]: one for one in made["paths"]}
    published = measurements.published("5.14", "world-size", "ws=2", "bytes_per_event", "median")
    assert paths["TCP, offloaded"]["event_bytes"] == pytest.approx(published, rel=2e-4)
    assert 0.04 < paths["TCP"]["overhead"] < 0.07 and 0.001 < paths["DPDK memif"]["overhead"] < 0.005


def test_volume_says_what_the_published_overhead_is_made_of(model):
    output = model("volume")[1]
    assert "656.271 MB, 0.148 % above the payload" in output and "frames of 1500 bytes would make it 4.6 %" in output
    assert "published" not in model("volume", "--ranks", "3")[1]


def test_volume_matrix_has_a_one_way_ring_and_a_tree(model):
    lines = model("volume", "--ranks", "4")[1].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("from \\ to"))
    assert "327.7 + 0.31" in lines[start + 1] and lines[start + 1].split()[-1] == "492.06"


def test_volume_mtu_changes_what_headers_cost(answer):
    small, large = (
        next(one["overhead"] for one in answer("volume", "--mtu", mtu)["paths"] if one["path"] == "TCP")
        for mtu in (1500, 9000)
    )
    assert large < small / 4


def test_predict_published_edges(answer):
    made = answer("predict", "--study", "edge-latency")
    names = [one["name"] for one in made["scenarios"]]
    assert names == ["no limit", "100 ms", "200 ms", "300 ms"]
    assert made["scenarios"][0]["t_ar_s"] == pytest.approx(19.52, rel=0.01)
    assert made["scenarios"][3]["published_s"] == 64.6
    assert made["scenarios"][3]["ring_s"]["granted"] > 3.5 * made["scenarios"][3]["ring_s"]["buffered"]


@pytest.mark.parametrize("given", [("--bits", 64), ("--threads", 1), ("--bucket-mb", 5), ("--edge-return-ms", 10)])
def test_predict_published_edges_with_other_settings_are_not_compared(answer, given):
    made = answer("predict", "--study", "edge-latency", *given)
    assert [one["published_s"] for one in made["scenarios"]] == [None] * 4


def test_predict_step_without_overlap_is_the_sum(answer):
    made = answer(
        "predict", "--bytes", "64M", "--beta-gb-s", "1", "--forward-s", "1", "--backward-s", "2", "--optimizer-s", "0.5"
    )
    one = made["scenarios"][0]
    assert one["t_step_s"] == pytest.approx(3.5 + one["t_ar_s"]) and one["t_ar_s"] == pytest.approx(
        made["alpha_beta_s"], rel=0.05
    )


def test_predict_buckets_hide_behind_backward(answer):
    one = answer("predict", "--bytes", "64M", "--bucket-mb", "8", "--beta-gb-s", "1", "--backward-s", "10")[
        "scenarios"
    ][0]
    assert one["exposed_s"] < 0.2 * 0.067 and one["t_step_s"] == pytest.approx(10 + one["exposed_s"])


def test_predict_rates_and_delays_cross(answer):
    made = answer("predict", "--bytes", "16M", "--edge-rate-mbit", "100,50", "--edge-delay-ms", "1,2")
    assert [one["name"] for one in made["scenarios"]] == [
        "no limit",
        "100 Mbit/s, 1 ms",
        "100 Mbit/s, 2 ms",
        "50 Mbit/s, 1 ms",
        "50 Mbit/s, 2 ms",
    ]


def test_predict_window_bounds_a_long_edge(answer):
    arguments = ("predict", "--bytes", "16M", "--edge-delay-ms", "100", "--completion", "buffered")
    free, bound = (answer(*arguments, *more)["scenarios"][1]["t_ar_s"] for more in ((), ("--window-bytes", "64K")))
    # 16 MiB in windows of 64 KiB, one each 100 ms.
    assert bound == pytest.approx(25.6, rel=0.05) and free < bound / 4


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("predict", "--transport", "TCP"), "--transport belongs to --fit"),
        (("predict", "--study", "edge-latency", "--ranks", "2"), "--ranks 2: the study's runs had 4"),
        (("predict", "--study", "edge-latency", "--bytes", "1M"), "DistilGPT2"),
        (("predict", "--study", "edge-latency", "--forward-s", "1"), "--forward-s: the step's times are the study's"),
        (("predict", "--fit", "x", "--alpha-us", "1"), "--alpha-us and --fit"),
        (("predict", "--edge-rate-mbit", "100,0"), "'0': it must be a number from 1e-06"),
        (("predict", "--completion", "soon"), "invalid choice: 'soon'"),
        (("volume", "--ranks", "1"), "'1': it must be a whole number from 2 to 4096"),
        (("volume", "--bytes", "1T"), "'1T': it must be a size from 4"),
        (("volume", "--bytes", "4", "--parameters", "5"), "not allowed with"),
        (("volume", "--mtu", "100"), "from 576 to 65535"),
        ((), "SUBCOMMAND"),
    ],
)
def test_wrong_arguments_are_refused(model, arguments, said):
    status, output, errors = model(*arguments)
    assert status == 2 and output == "" and said in errors


def test_fit_takesAFolderOfCompare(model, answer, tmp_path):
    """By the names that comparison.py gives its files."""
    (tmp_path / "raw").mkdir()
    status, _, errors = model("fit", tmp_path)
    assert status == 2 and "no results of scripts/compare" in errors and errors.count("\n") == 1
    for name, sizes in (("small", (4, 1024)), ("large", (1 << 20, 1 << 26))):
        (tmp_path / "raw" / f"all-reduce-{name}.json").write_text(
            json.dumps(benchmark_report(2, {"TCP": {size: 20.0 + size / 1e3 for size in sizes}}))
        )
    (one,) = answer("fit", tmp_path)["fits"]
    assert one["transport"] == "TCP" and len(one["points"]) == 4


@pytest.mark.parametrize(
    "content, said",
    [
        ("{}", "no 'schema'"),
        ("[]", "expected an object"),
        ("{", "not JSON"),
        ('{"schema": "gloo-bypass/model-fit/1", "fits": [{}]}', "no 'transport'"),
    ],
)
def test_predict_refuses_what_is_no_fit(model, tmp_path, content, said):
    path = tmp_path / "fit.json"
    path.write_text(content)
    status, _, errors = model("predict", "--fit", path)
    assert status == 2 and errors.count("\n") == 1 and said in errors and str(path) in errors


@pytest.mark.parametrize(
    "arguments",
    [("volume",), ("plan",), ("predict", "--bytes", "1M"), ("published", "--table", "5.14")],
    ids=lambda one: one[0],
)
def test_json_goes_beside_its_name_first_and_a_failure_leaves_nothing(model, tmp_path, arguments):
    folder = tmp_path / "there"
    folder.mkdir()
    assert model(*arguments, "--json", folder / "x.json")[0] == 0
    assert json.loads((folder / "x.json").read_text())["schema"].startswith("gloo-bypass/model-")
    (folder / "y.json").mkdir()
    status, _, errors = model(*arguments, "--json", folder / "y.json")
    assert status == 1 and f"cannot write {folder / 'y.json'}" in errors and errors.count("\n") == 1
    assert sorted(os.listdir(folder)) == ["x.json", "y.json"]
    assert "No such file or directory" in model(*arguments, "--json", tmp_path / "nowhere" / "x.json")[2]


def test_json_to_a_pipe_goes_through_the_pipe(model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert model("plan", "--json", pipe)[0] == 0
        assert json.loads(os.read(reading, 1 << 16))["feasible"] is True
    finally:
        os.close(reading)
    assert os.listdir(tmp_path) == ["pipe"] and not pipe.is_file()


def test_output_cut_short_is_no_crash():
    done = subprocess.run(
        f"{ROOT / 'scripts' / 'model'} published --all | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == ""
