"""Planning of repeats within the time given."""

import pytest
from gloo_bypass_tools.report import comparison, schedule


def test_repeat_turns_alternate_in_the_order_given():
    turns = [turn.transport for repeat in (1, 2) for turn in schedule.repeat_turns(["TCP", "DPDK"], repeat)]
    assert turns == ["TCP", "DPDK", "TCP", "DPDK"]


@pytest.mark.parametrize(
    "remaining, one, done, most, wanted",
    [
        (100.0, 40.0, 1, 5, 3),
        (39.0, 40.0, 1, 5, 1),
        (1000.0, 40.0, 1, 3, 3),
        (0.0, 40.0, 2, 3, 2),
        (1000.0, 1.0, 3, 3, 3),
    ],
)
def test_affordable_repeats_keep_what_is_done_and_stay_in_bounds(remaining, one, done, most, wanted):
    assert schedule.affordable_repeats(remaining, one, done, most) == wanted


def test_affordable_repeats_refuse_a_repeat_without_duration():
    with pytest.raises(ValueError):
        schedule.affordable_repeats(10.0, 0.0, 1, 3)


def test_remaining_is_never_negative():
    assert schedule.remaining_s(60.0, 50.0, 30.0) == 0.0
    assert schedule.remaining_s(60.0, 10.0, 30.0) == 20.0


def test_benchmark_parts_cover_the_sweep_and_ten_million_floats():
    parts = comparison.benchmark_parts((4, 64 * 2**20, 4))
    assert [(name, low, high) for name, low, high, *_ in parts] == [
        ("small", 4, 65536),
        ("large", 262144, 64 * 2**20),
        ("10M floats", 40_000_000, 40_000_000),
    ]
    assert [name for name, *_ in comparison.benchmark_parts((4, 64, 4))] == ["small", "10M floats"]


def test_environment_takes_loopback_unless_the_user_chose():
    assert comparison.environment_for("DPDK", {})["GLOO_SOCKET_IFNAME"] == "lo"
    assert comparison.environment_for("DPDK", {"GLOO_SOCKET_IFNAME": "eth0"})["GLOO_SOCKET_IFNAME"] == "eth0"
    assert "GLOO_SOCKET_IFNAME" not in comparison.environment_for("DPDK", {"GLOO_BYPASS_INTERFACE": "eth0"})
    assert comparison.environment_for("DPDK", {"GLOO_DEVICE_TRANSPORT": "TCP"})["GLOO_DEVICE_TRANSPORT"] == "DPDK"
