"""model/steps.py against formulas, on schedules of two and three ranks that are written down here."""

import math

import pytest
from gloo_bypass_tools.model import steps
from gloo_bypass_tools.report.records import RecordError

ALPHA, BETA = 1e-3, 1e6
OWN_LINKS, TWO_CORES, ONE_CORE = (steps.Link(ALPHA, BETA, cores) for cores in (None, 2, 1))


def step(action, parts, peers, numbers, waits_for=0, before=()):
    return {
        **{"round": 0, "action": action, "parts": list(parts), "peers": list(peers), "numbers": list(numbers)},
        **{"waits_for": waits_for, "before": list(before)},
    }


def record_of(steps_of_ranks, size, parts=1, part_bytes=1 << 20, under_way=4):
    return {
        **{"schema": steps.SCHEMA, "kind": "all-reduce", "algorithm": "made up", "ranks": len(steps_of_ranks)},
        **{"bytes": size, "parts": parts, "part_bytes": part_bytes, "slices_under_way": under_way},
        "steps_of_ranks": steps_of_ranks,
    }


def exchange(size, **more):
    """Both ranks send all they have to the other, and add."""
    ranks = [
        [step("send", (0, 1), (1 - rank,), (0,), before=[1]), step("reduce", (0, 1), (0, 1), numbers, waits_for=1)]
        for rank, numbers in enumerate(((-1, 0), (0, -1)))
    ]
    return steps.schedule_of(record_of(ranks, size, **more))


def relay(size, **more):
    """Rank 0 sends to rank 1, which hands it on to rank 2."""
    ranks = [
        [step("send", (0, 1), (1,), (0,))],
        [step("receive", (0, 1), (0,), (0,), before=[1]), step("send", (0, 1), (2,), (0,), waits_for=1)],
        [step("receive", (0, 1), (1,), (0,))],
    ]
    return steps.schedule_of(record_of(ranks, size, **more))


@pytest.mark.parametrize("link", [OWN_LINKS, TWO_CORES])
def test_Exchange_OwnLinksOrOwnCores_IsAlphaAndBytes(link):
    assert steps.time_s(exchange(5000), link) == pytest.approx(ALPHA + 5000 / BETA)


def test_Exchange_OneCore_TakesAllMessagesInTurn():
    assert steps.time_s(exchange(5000), ONE_CORE) == pytest.approx(2 * (ALPHA + 5000 / BETA))


def test_Relay_OneSlice_IsTwoMessages():
    assert steps.time_s(relay(5000), OWN_LINKS) == pytest.approx(2 * (ALPHA + 5000 / BETA))


def test_Relay_Slices_FollowOneAnother():
    """Ten slices: the second hop begins when the first slice is here."""
    link = steps.Link(0.0, BETA)
    assert steps.time_s(relay(10_000, part_bytes=1000, under_way=10), link) == pytest.approx(11_000 / BETA)
    assert steps.time_s(relay(10_000), link) == pytest.approx(20_000 / BETA)


def test_Slices_FewUnderWay_WaitForTheFirstToEnd():
    """The next slice is sent when one has ended at the sender: with one under way each exchange waits for the last."""
    size = 4000
    alone = steps.time_s(exchange(size, part_bytes=1000, under_way=1), OWN_LINKS)
    together = steps.time_s(exchange(size, part_bytes=1000, under_way=4), OWN_LINKS)
    assert alone == pytest.approx(4 * (ALPHA + 1000 / BETA)) and together == pytest.approx(ALPHA + size / BETA)


def test_Slices_Rest_IsTheLastOne():
    assert exchange(2500, part_bytes=1000).slices() == [1000, 1000, 500]
    assert exchange(2000, part_bytes=1000).slices() == [1000, 1000]
    assert exchange(0).slices() == [0]


def test_SentBytes_AreThoseOfTheSteps():
    assert steps.sent_bytes(exchange(2500, part_bytes=1000)) == [2500, 2500]
    assert steps.sent_bytes(relay(2500)) == [2500, 2500, 0]


def test_Calibrated_TimesOfTheModel_GiveItsParameters():
    link, small, large = steps.Link(ALPHA, BETA, 2), exchange(8), exchange(1 << 20)
    found = steps.calibrated((small, steps.time_s(small, link)), (large, steps.time_s(large, link)), 2)
    assert found.alpha_s == pytest.approx(ALPHA, rel=0.01) and found.beta == pytest.approx(BETA, rel=0.01)


def test_Calibrated_BytesCostNothing_EndsAtABound():
    small, large = exchange(8), exchange(1 << 20)
    assert math.isfinite(steps.calibrated((small, 1e-3), (large, 1e-3), 2).beta)


def test_Schedule_ThatNeverEnds_IsSaid():
    ranks = [[step("receive", (0, 1), (1,), (0,))], [step("receive", (0, 1), (0,), (0,))]]
    # Two that wait for each other have nothing left to do: a time of 0 would be wrong.
    with pytest.raises(ValueError, match="never ends"):
        steps.time_s(steps.schedule_of(record_of(ranks, 4)), OWN_LINKS)


@pytest.mark.parametrize(
    "change, said",
    [({"schema": "other"}, "schema"), ({"parts": 0}, "parts"), ({"steps_of_ranks": 1}, "steps_of_ranks")],
)
def test_Record_Damaged_IsRefused(change, said):
    with pytest.raises(RecordError, match=said):
        steps.schedule_of(record_of([], 4) | change)
