"""The planner against the reference case, formula by formula."""

import json

import pytest
from conftest import ROOT
from gloo_bypass_tools.model import planner, quantities

REFERENCE = planner.plan(planner.Inputs())


def test_reference_case_pods_sites_and_flops():
    assert REFERENCE.pods == 50_000  # 10 GW / 200 kW
    assert round(REFERENCE.pods_a_site) == 2_174  # over 23 sites
    assert REFERENCE.flops == pytest.approx(1.8e22)  # 50,000 x 360 PFLOPS


def test_reference_case_gradients_updates_and_batch():
    assert REFERENCE.gradient_bits == pytest.approx(1.152e15)  # 72e12 x 16
    assert REFERENCE.updates == pytest.approx(2e15 / 1.13e9)  # 1.77e6, printed as 1.8e6
    assert REFERENCE.batch_s == pytest.approx(100 * 86400 / 1_769_911.504, rel=1e-9)
    assert quantities.rounded(REFERENCE.batch_s, 2) == 4.9
    assert quantities.rounded(REFERENCE.updates, 2) == 1.8e6


def test_reference_case_delays_and_bandwidth():
    assert REFERENCE.propagation_s == pytest.approx(0.024)  # 4,800 km x 5 us
    assert REFERENCE.hop_s == pytest.approx(0.644e-3)  # 23 x 28 us
    assert REFERENCE.sync_s == pytest.approx(0.05 * 4.8816) and REFERENCE.sync_s < 0.245
    assert REFERENCE.bandwidth == pytest.approx(1.152e15 / (0.24408 - 0.024 - 0.000644))
    assert quantities.si(REFERENCE.bandwidth, "bit/s") == "5.25 Pbit/s"


def test_reference_case_rounded_as_the_source_does_gives_its_figures():
    (_, sync_s, bandwidth), (_, rougher_s, printed) = planner.with_rounded_steps(REFERENCE)
    assert sync_s == pytest.approx(0.245) and bandwidth == pytest.approx(5.23e15, rel=1e-3)
    assert rougher_s == pytest.approx(0.25) and quantities.rounded(printed, 2) == 5.1e15


def test_reference_case_site_fabric():
    assert REFERENCE.fabric == pytest.approx(57.6e15)  # 2,000 x 18 x 4 x 400 Gbit/s


def test_reference_case_topologies_by_hand():
    once, one_way, both = REFERENCE.topologies
    assert once.bandwidth == REFERENCE.bandwidth and once.latency_s == pytest.approx(0.024644)
    hop_s = 0.024644 / 23
    assert one_way.latency_s == pytest.approx(44 * hop_s) and both.latency_s == pytest.approx(22 * hop_s)
    assert one_way.bandwidth == pytest.approx(44 / 23 * 1.152e15 / (0.24408 - 44 * hop_s))
    # At that bandwidth the source's own formula takes just what it may.
    assert 22 * (hop_s + 1.152e15 / (23 * both.bandwidth)) == pytest.approx(REFERENCE.sync_s)


@pytest.mark.parametrize(
    "topology, bandwidth", [("once-round", 5.25e15), ("one-way", 11.19e15), ("bidirectional", 4.997e15)]
)
def test_plan_command_topology_decides_the_bandwidth(answer, topology, bandwidth):
    made = answer("plan", "--topology", topology)
    assert made["bandwidth"] == pytest.approx(bandwidth, rel=1e-3) and made["topology"] == topology


def test_plan_command_one_way_ring_that_cannot_be_where_once_round_can(model):
    # 44 of 23 hops of 20,000 km: 191 ms of 244 ms; 44 of 30,000 km: 287 ms.
    assert "cannot be" not in model("plan", "--ring-km", "20000", "--topology", "one-way")[1]
    output = model("plan", "--ring-km", "30000", "--topology", "one-way")[1]
    assert "cannot be: propagation and hops take 288 ms" in output


def test_plan_command_k_is_the_calibration(model, answer):
    k = 1.13e9 / 2e15**0.5
    assert answer("plan", "--critical-batch-k", k)["bandwidth"] == pytest.approx(REFERENCE.bandwidth)
    status, _, errors = model("plan", "--critical-batch-k", k, "--calibration-tokens", "1e15")
    assert status == 2 and "--critical-batch-k and --calibration-tokens" in errors


def test_critical_batch_grows_with_the_root_of_the_tokens():
    more = planner.plan(planner.Inputs(tokens=8e15))
    assert more.critical_tokens == pytest.approx(2 * 1.13e9)
    assert more.updates == pytest.approx(2 * REFERENCE.updates)


def test_half_of_the_bits_is_half_of_the_bandwidth():
    assert planner.plan(planner.Inputs(bits=8)).bandwidth == pytest.approx(REFERENCE.bandwidth / 2)


@pytest.mark.parametrize(
    "inputs",
    [
        planner.Inputs(ring_km=50_000),
        planner.Inputs(hops=10_000),
        planner.Inputs(days=1),
        planner.Inputs(alpha_net=0.005),
    ],
)
def test_what_cannot_be_is_an_answer_without_a_bandwidth(inputs):
    made = planner.plan(inputs)
    assert made.serialisation_s <= 0 and made.bandwidth is None and not made.feasible
    assert "no bandwidth is enough" in planner.impossibility(made)


def test_time_that_is_used_up_exactly_is_not_enough():
    assert planner.bandwidth_of(1e15, 0.0) is None


def test_plan_command_prints_the_reference_case(model):
    status, output, _ = model("plan")
    assert status == 0
    for said in (
        "50,000",
        "2,174",
        "1.8e+22",
        "1.15 Pbit",
        "4.88 s",
        "244 ms",
        "24.0 ms",
        "644 \u00b5s",
        "5.25 Pbit/s",
        "5.23 Pbit/s",
        "57.6 Pbit/s",
        "T_batch rounded to 4.9 s: T_sync 245 ms, BW_min 5.23 Pbit/s",
        "slip",
    ):
        assert said in output, said


def test_readme_shows_the_reference_case_as_it_is_printed(model):
    text = (ROOT / "tools" / "model" / "README.md").read_text()
    for line in model("plan")[1].splitlines():
        assert line.rstrip() in text


def test_plan_command_every_flag_changes_the_answer(answer):
    from gloo_bypass_tools.model import plan_command

    reference = answer("plan")
    reference.pop("inputs")
    for flag, field, kind, low, high, unit, _ in plan_command.FLAGS:
        value = getattr(planner.Inputs(), field)
        made = answer("plan", flag, value // 2 if kind is int else value / unit / 2)
        assert made.pop("inputs")[field] == pytest.approx(value // 2 if kind is int else value / 2), flag
        assert made != reference, flag


def test_plan_command_hops_follow_the_sites_unless_given(answer):
    assert answer("plan", "--sites", "10")["inputs"]["hops"] == 10
    assert answer("plan", "--sites", "10", "--hops", "50")["inputs"]["hops"] == 50


def test_plan_command_what_cannot_be_is_said_and_no_failure(model, answer):
    status, output, errors = model("plan", "--ring-km", "50000")
    assert status == 0 and errors == ""
    assert "cannot be: propagation and hops take 251 ms, and T_sync may take 244 ms" in output
    made = answer("plan", "--ring-km", "50000")
    assert made["bandwidth"] is None and made["feasible"] is False and "cannot be" in made["answer"]


def test_plan_command_json_is_whole_and_the_only_file(model, tmp_path):
    assert model("plan", "--json", tmp_path / "plan.json")[0] == 0
    assert json.loads((tmp_path / "plan.json").read_text())["bandwidth"] == pytest.approx(REFERENCE.bandwidth)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    "flag, value, allowed",
    [
        ("--days", "0", "a number from 1e-06 to 1000000.0"),
        ("--sites", "1", "a whole number from 2 to 100000"),
        ("--alpha-net", "1.5", "to 1"),
        ("--power-gw", "nan", "a number from"),
        ("--bits", "16.5", "a whole number"),
        ("--ring-km", "-1", "a number from 0"),
    ],
)
def test_plan_command_wrong_value_names_flag_value_and_what_is_allowed(model, flag, value, allowed):
    status, output, errors = model("plan", flag, value)
    assert status == 2 and output == "" and flag in errors and f"'{value}'" in errors and allowed in errors
