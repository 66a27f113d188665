"""Where a comparison is measured."""

import pytest
from gloo_bypass_tools.report import place, rdma_ports

PORT = rdma_ports.Port("mlx5_0", 1, 3, "eth0", False)
ALL = ("TCP", "DPDK", "RDMA")


def can_be_had():
    return ""


def must_not_be_asked():
    raise AssertionError("the guest was asked for")


def test_choose_without_rdma_measures_here_and_never_asks_for_the_guest():
    assert place.choose("auto", ("TCP", "DPDK"), [], must_not_be_asked) == place.Place(place.HOST)


def test_choose_rdma_with_a_device_measures_all_of_it_here():
    found = place.choose("auto", ALL, [PORT], must_not_be_asked)
    assert found.kind == place.HOST and found.device == "mlx5_0 port 1 on eth0" and not found.in_software
    assert "of its adapter" in found.in_words()


def test_choose_rdma_without_a_device_measures_all_of_it_in_the_guest():
    found = place.choose("auto", ALL, [], can_be_had)
    assert found.kind == place.GUEST and found.emulated and "no RDMA device" in found.why
    assert "SoftRoCE" in found.in_words() and place.from_record({"place": found.as_record()}) == found


def test_choose_guest_is_taken_when_asked_for_even_with_a_device():
    assert place.choose("guest", ALL, [PORT], can_be_had).kind == place.GUEST


@pytest.mark.parametrize(
    "asked, said",
    [
        ("auto", "no RDMA device with an active port, and the guest is not available: missing: qemu"),
        ("guest", "the guest is not available: missing: qemu"),
        ("host", "scripts/softroce up"),
    ],
)
def test_choose_nowhere_to_measure_rdma_says_what_to_do(asked, said):
    with pytest.raises(place.PlaceError, match=said):
        place.choose(asked, ALL, [], lambda: "missing: qemu")


def test_from_record_of_an_earlier_version_is_the_host():
    assert place.from_record({}) == place.Place(place.HOST)


def test_remark_only_where_rdma_is_in_software():
    assert place.remark(place.Place(place.HOST, "mlx5_0", False)) == ""
    assert "64 KiB" in place.remark(place.Place(place.HOST, "rxe0", True))
    assert "emulated" in place.remark(place.Place(place.GUEST, "", True))
