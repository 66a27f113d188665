"""The ports of RDMA devices, from a folder laid out as /sys/class/infiniband is."""

import pytest
from gloo_bypass_tools.report import rdma_ports

LINK_LOCAL, MAPPED = "fe80:0000:0000:0000:0000:00ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:0a4d:0001"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def add_port(root, device, number=1, state="4: ACTIVE", layer="Ethernet", gids=()):
    folder = root / device / "ports" / str(number)
    write(folder / "state", state)
    write(folder / "link_layer", layer)
    for index, value, kind, interface in gids:
        write(folder / "gids" / str(index), value)
        write(folder / "gid_attrs" / "types" / str(index), kind)
        write(folder / "gid_attrs" / "ndevs" / str(index), interface)


def add_roce(root, device, interface):
    add_port(
        root,
        device,
        gids=[
            (0, LINK_LOCAL, "RoCE v2", interface),
            (2, MAPPED, "IB/RoCE v1", interface),
            (10, MAPPED, "RoCE v2", interface),
        ],
    )


def test_active_no_folder_is_none(tmp_path):
    assert rdma_ports.active(tmp_path / "none") == []


def test_active_takes_the_roce_v2_gid_of_the_ipv4_address(tmp_path):
    add_roce(tmp_path, "rxe0", "eth0")
    assert rdma_ports.active(tmp_path) == [rdma_ports.Port("rxe0", 1, 10, "eth0", False)]


def test_active_infiniband_needs_no_address(tmp_path):
    add_port(tmp_path, "mlx5_0", 2, layer="InfiniBand")
    assert rdma_ports.active(tmp_path) == [rdma_ports.Port("mlx5_0", 2, 0, "", False)]


@pytest.mark.parametrize(
    "state, gids",
    [
        ("1: DOWN", [(1, MAPPED, "RoCE v2", "eth0")]),
        ("4: ACTIVE", [(0, LINK_LOCAL, "RoCE v2", "eth0")]),
        ("4: ACTIVE", [(0, MAPPED, "IB/RoCE v1", "eth0")]),
        ("4: ACTIVE", []),
    ],
)
def test_active_leaves_out_what_cannot_carry_traffic(tmp_path, state, gids):
    add_port(tmp_path, "rxe0", state=state, gids=gids)
    assert rdma_ports.active(tmp_path) == []


def test_active_tells_devices_in_software(tmp_path):
    add_roce(tmp_path / "virtual", "rxe0", "eth0")
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "rxe0").symlink_to(tmp_path / "virtual" / "rxe0")
    assert [port.in_software for port in rdma_ports.active(tmp_path / "class")] == [True]


@pytest.mark.parametrize(
    "environment, device",
    [
        ({}, "rxe0"),
        ({"GLOO_BYPASS_RDMA_DEVICES": "rxe1,rxe0"}, "rxe1"),
        ({"GLOO_BYPASS_INTERFACE": "eth1"}, "rxe1"),
        ({"GLOO_BYPASS_RDMA_PORT": "0"}, "rxe0"),
        ({"GLOO_BYPASS_RDMA_PORT": "2"}, None),
        ({"GLOO_BYPASS_RDMA_DEVICES": "rxe7"}, None),
    ],
)
def test_chosen_follows_the_settings(tmp_path, environment, device):
    add_roce(tmp_path, "rxe0", "eth0")
    add_roce(tmp_path, "rxe1", "eth1")
    found = rdma_ports.chosen(rdma_ports.active(tmp_path), environment)
    assert (found.device if found else None) == device
