"""The cells of a plan, their order, how a cell is run, and the model's prediction for it."""

from pathlib import Path

import pytest
from conftest import STUDY, plan_for
from gloo_bypass_tools.study import catalogue, commands, definition, prediction
from gloo_bypass_tools.study.plan import Cell, cells_of, plan_from, plan_of, segment_bytes
from gloo_bypass_tools.study.studies import edge_latency

PROGRAMS = commands.Programs("fabric-run", "fabric", "all_reduce_perf", "python3", "rank_probe.py")


def words(plan, cell, study=STUDY):
    return commands.command_of(plan, study, cell, PROGRAMS, Path("/out"))


def value(listed, flag):
    return listed[listed.index(flag) + 1]


def test_cells_transportsOfACell_FollowOneAnother():
    found = cells_of(plan_for(losses=(0.0,)))
    assert [(one.variant, one.segment, one.transport) for one in found] == [
        (variant, segment, transport)
        for variant in ("base", "300ms")
        for segment in ("default", "two")
        for transport in ("TCP", "DPDK")
    ]


def test_cells_loss_IsMeasuredWhereThePlanSaysSo():
    found = cells_of(plan_for())
    assert {one.variant for one in found if one.loss_percent} == {"300ms"}
    assert len({one.slug for one in found}) == len(found)


def test_segments_two_AreTwoARankAndWholeFloats():
    plan = plan_for(bytes=16 * 2**20)
    assert segment_bytes(plan, "two") == 2 * 2**20
    odd = segment_bytes(plan_for(bytes=definition.PUBLISHED_BYTES + 4), "two")
    assert odd % 4 == 0 and 8 * odd >= definition.PUBLISHED_BYTES + 4
    assert segment_bytes(plan, "default") == 0


def test_command_farEdge_HasDelayLossAndRoom():
    listed = words(plan_for(), Cell("300ms", "DPDK", "two", 1.0))
    assert value(listed, "--edge") == "from=r3,to=r2,delay=300ms,queue=256MiB,loss=1%"
    assert value(listed, "--segment-bytes") == str(2 * 2**20)
    assert "GLOO_BYPASS_CONGESTION_CONTROL=bbr" in listed and "GLOO_BYPASS_STATS=/out/stats-%r.json" in listed


def test_command_baseOverTcp_HasNoEdgeAndNoSettingsOfOurs():
    listed = words(
        plan_for(sysctls=(("net.ipv4.tcp_congestion_control", "cubic"),)), Cell("base", "TCP", "default", 0.0)
    )
    assert "--edge" not in listed and "--env" not in listed
    assert value(listed, "--sysctl") == "net.ipv4.tcp_congestion_control=cubic"
    assert value(listed, "--transports") == "TCP"


def test_command_EachRepeatHasLossesOfItsOwn_AllTransportsTheSame():
    def seed(transport, repeat):
        cell = Cell("300ms", transport, "two", 1.0)
        listed = commands.command_of(plan_for(seed=7), STUDY, cell, PROGRAMS, Path("/out"), repeat=repeat)
        return value(listed, "--seed")

    for transport in "TCP", "DPDK":
        assert [seed(transport, repeat) for repeat in (1, 2, 3)] == ["7", "8", "9"]


def test_command_slowEdge_HasRateAndARoutersQueue():
    listed = words(
        plan_for(study="edge-bandwidth"),
        Cell("50Mbit", "DPDK-netdev", "default", 0.0),
        catalogue.STUDIES["edge-bandwidth"],
    )
    assert value(listed, "--edge") == "from=r3,to=r2,rate=50Mbit/s,queue=1MiB"
    assert value(listed, "--transport") == "DPDK-netdev" and value(listed, "--transports") == "DPDK"


def test_limits_longerModel_WaitsLonger():
    plan = plan_for()
    assert commands.reduce_limit_s(plan, "TCP", 70.0) > 70.0 * (1 + plan.warm_up + plan.rounds)
    crossing_s = 6 * plan.bytes / commands.SLOWEST_BYTES_A_SECOND
    assert commands.operation_limit_s(plan, "DPDK", 0.001) == commands.LEAST_OPERATION_S + crossing_s
    assert commands.operation_limit_s(plan, "RDMA", 0.001) == commands.LEAST_OPERATION_S + crossing_s
    plan = plan_for(guest=("RDMA",))
    assert commands.operation_limit_s(plan, "RDMA", 0.001) > commands.LEAST_OPERATION_S and commands.reduce_limit_s(
        plan, "RDMA", 70.0
    ) > commands.reduce_limit_s(plan, "TCP", 70.0)


def test_limits_tcpOver300ms_AreTwiceWhatItTook():
    # Two segments a rank, commit 49196fb: the model knows of no window and no processor.
    plan, model_s = plan_for(bytes=327_650_304, rounds=1), 2.07
    assert commands.operation_limit_s(plan, "TCP", model_s) > 2 * 54.3
    assert commands.reduce_limit_s(plan, "TCP", model_s) > 2 * 170


def test_plan_throughItsRecord_IsTheSame():
    plan = plan_for(sysctls=(("net.a", "b"),))
    assert plan_from(STUDY, plan.as_record()) == plan


def model(transport, segment="default", loss=0.0, study=STUDY, variant="300ms", **changes):
    return prediction.model_of(plan_for(**changes), study, Cell(variant, transport, segment, loss))


def test_model_300ms_IsTheArchitecturesArithmetic():
    # 16 segments, 4 a rank: 24 iterations; 8 in a delay where sends are buffered, 2 where data waits for the notice.
    assert model("DPDK").schedule_s == pytest.approx(3 * 0.3, rel=0.03)
    assert model("TCP").schedule_s == pytest.approx(12 * 0.3, rel=0.03)
    assert (model("TCP").completion, model("DPDK").completion, model("DPDK", variant="base").completion) == (
        "granted",
        "buffered",
        "acknowledged",
    )


def test_model_RdmaFetchesLongSegments_TwoWaysThereAndOneBackEach():
    # 24 iterations, 2 of them in a way there, one back and one there again.
    found = model("RDMA")
    assert found.completion == "acknowledged" and found.schedule_s == pytest.approx(12 * 0.6, rel=0.03)
    assert found.floor_s == pytest.approx(model("DPDK").floor_s, rel=0.01)
    # 32 KiB and less are sent at once.
    assert model("RDMA", bytes=8 * 4 * 4096).completion == "buffered"


def test_command_Rdma_HasNoSamplesOfTheSwitchAndLooksSeldom():
    plan = plan_for(transports=("RDMA",), guest=("RDMA",))
    listed = words(plan, Cell("300ms", "RDMA", "default", 0.0))
    assert value(listed, "--transport") == value(listed, "--transports") == "RDMA" and "--samples" not in listed
    assert float(value(listed, "--interval")) > commands.PROBE_INTERVAL_S[definition.REDUCE]


def test_model_twoSegmentsARank_ReachesTheFloor():
    found = model("DPDK", "two")
    assert found.floor_s == pytest.approx(2 * 0.3)
    assert found.schedule_s == pytest.approx(found.floor_s, rel=0.03)


# Two delays and all of the serialisation is more than a schedule needs: they overlap, and of two ranks each byte
# crosses the edge once.
@pytest.mark.parametrize("scale", ["small", "published"])
@pytest.mark.parametrize("study", ["edge-latency", "edge-bandwidth"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_model_NoSchedule_IsBelowTheFloor(ranks, study, scale):
    study = catalogue.STUDIES[study]
    plan = plan_of(study, scale, ranks=ranks, losses=(0.0,), transports=("TCP", "DPDK", "RDMA"))
    models = {cell: prediction.model_of(plan, study, cell) for cell in cells_of(plan)}
    assert not [cell for cell, one in models.items() if one.floor_s > one.schedule_s * (1 + 1e-9)]


@pytest.mark.parametrize("scale", ["small", "published"])
def test_targets_OfTheScheduleItself_AreReachedWithAQuarterToSpare(scale):
    plan = plan_of(STUDY, scale, losses=(0.0,))
    for segment, (_, _, most, _) in edge_latency.YARDSTICKS.items():
        found = prediction.model_of(plan, STUDY, Cell("300ms", "DPDK", segment, 0.0))
        yardstick = found.floor_s if segment == "two" else found.schedule_s
        assert 1.25 * found.schedule_s <= most * yardstick


def test_model_slowEdge_IsSerialisation():
    found = model("TCP", study=catalogue.STUDIES["edge-bandwidth"], variant="50Mbit")
    assert found.floor_s == pytest.approx(1.5 * 16 * 2**20 * 8 / 50e6 * 1514 / 1448, rel=0.01)
    assert found.schedule_s == pytest.approx(found.floor_s, rel=0.05)


def test_model_loss_AddsTripsAndMoreForMoreLoss():
    none, little, much = (model("DPDK", loss=loss) for loss in (0.0, 0.1, 1.0))
    assert none.repeated_s == none.schedule_s == little.schedule_s
    # 765 frames a segment: half of all segments lose one at 0.1 %, nearly all at 1 %, some of those twice.
    assert 1.7 * none.schedule_s < little.repeated_s < 2.0 * none.schedule_s + 0.1
    assert 2.0 * none.schedule_s + 0.1 < much.repeated_s < 3 * none.schedule_s


def test_model_loss_IsTheSameForTheSameSeed():
    assert model("DPDK", loss=1.0) == model("DPDK", loss=1.0)


def test_trips_certainAndHopelessLuck_AreOneAndMany():
    assert prediction.trips_at(100, 0.01, 0.0) == 1
    assert prediction.trips_at(100, 0.01, 0.999999) >= 4
