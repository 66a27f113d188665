"""Bytes and time of the ring, buckets, headers: against figures worked out by hand, and against the published
capture."""

import re

import pytest
from conftest import ROOT
from gloo_bypass_tools.model import buckets, framing, prediction, ring, schedule
from gloo_bypass_tools.report import measurements

DISTILGPT2_BYTES = 327_650_304


def test_gradient_bytes_of_distilgpt2_are_the_published_ones():
    parameters = buckets.MODELS["distilgpt2"].parameter_count()
    assert parameters == 81_912_576
    assert ring.gradient_bytes(parameters, 32) == DISTILGPT2_BYTES
    assert ring.gradient_bytes(parameters, 64) == 655_300_608
    assert buckets.MODELS["gpt2"].parameter_count() == 124_439_808


def test_ring_bytes_by_hand():
    assert ring.event_bytes(2, DISTILGPT2_BYTES) == 655_300_608
    assert ring.event_bytes(4, DISTILGPT2_BYTES) == 1_965_901_824
    assert ring.rank_bytes(2, 1000) == 1000
    assert ring.rank_bytes(4, 1000) == 1500
    assert ring.broadcast_bytes(4, 1000) == 3000


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 23])
def test_ring_bytes_of_all_ranks_are_the_sum_of_each(ranks):
    assert ranks * ring.rank_bytes(ranks, 1e6) == pytest.approx(ring.event_bytes(ranks, 1e6))


def test_ring_time_by_hand():
    # N = 4: six rounds of 10 us, 1.5 MB at 1 GB/s, 0.75 MB summed at 3 GB/s.
    link = ring.Link(10e-6, 1e9, 1 / 3e9)
    assert ring.time_s(4, 1e6, link) == pytest.approx(60e-6 + 1.5e-3 + 0.25e-3)
    half = ring.half_size(4, link)
    assert ring.time_s(4, half, link) == pytest.approx(2 * 60e-6)


def test_edges_are_those_of_the_published_runs():
    assert ring.ring_edges(4) == [(0, 3), (1, 0), (2, 1), (3, 2)]
    assert ring.broadcast_edges(2) == [(0, 1)]
    assert ring.broadcast_edges(4) == [(0, 1), (0, 2), (1, 3)]


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 13])
def test_broadcast_reaches_every_rank_once_from_one_that_has_it(ranks):
    have = {0}
    for start, end in ring.broadcast_edges(ranks):
        assert start in have and end not in have
        have.add(end)
    assert have == set(range(ranks))


def test_buckets_of_distilgpt2_are_those_of_ddp():
    made = buckets.of_model(buckets.MODELS["distilgpt2"], 4)
    # The last block's second projection alone passes 1 MiB; then a block's worth passes 25 MiB; the embeddings overflow
    # the last.
    contract, block, embedding = 4 * 768 * 768, 12 * 768 * 768 + 13 * 768, 50257 * 768
    assert made[0].size == 4 * (contract + 768 + 2 * 768)
    assert [bucket.size for bucket in made[1:6]] == [4 * block] * 5
    assert made[6].size > 4 * embedding and len(made) == 7
    assert sum(bucket.size for bucket in made) == DISTILGPT2_BYTES
    ready = [bucket.ready for bucket in made]
    assert ready[0] == 0 and ready[-1] == 1 and ready == sorted(ready)


def test_uniform_buckets_hold_whole_elements_and_all_of_them():
    made = buckets.uniform(1000 * 4, 900, 4)
    assert sum(bucket.size for bucket in made) == 4000 and all(bucket.size % 4 == 0 for bucket in made)
    assert len(made) == 5 and [bucket.ready for bucket in made] == [0, 0.25, 0.5, 0.75, 1]


def test_cut_of_a_long_vector_is_gloos():
    # 10M floats, N = 4: 39 segments of at most 1 MiB, rounded up to 40, so 10 a rank of 1,000,000 bytes.
    assert schedule.cut(40_000_000, 4) == schedule.Cut(10, 1_000_000, 40, 1_000_000)


def test_cut_of_a_short_vector_has_two_segments_a_rank_or_empty_ones():
    assert schedule.cut(64, 4) == schedule.Cut(2, 8, 8, 8)
    one = schedule.cut(4, 2)
    assert (one.per_rank, one.segment, one.filled, one.last) == (2, 4, 1, 4)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
@pytest.mark.parametrize("size", [4, 100, 4096, 1_000_000, 123_456_788])
def test_cut_keeps_every_byte(ranks, size):
    made = schedule.cut(size, ranks)
    assert sum(times * length for times, length in made.segments()) == size
    assert made.filled <= made.per_rank * ranks and 0 < made.last <= made.segment <= 2**20


def test_tcp_frames_by_hand():
    path = framing.TcpPath("x", "", 1448)
    # 2,848 bytes with the preamble fill two frames; the notice of the send, the notice of the receive, one
    # acknowledgement.
    cost = path.message(2848 - 48, both_ways=False)
    assert cost.forward == 2848 + 2 * 66 + 114 and cost.backward == 114 + 66 and cost.frames == 5
    assert path.message(2848 - 48, both_ways=True).backward == 114


def test_datagram_frames_by_hand():
    path = framing.DatagramPath("x", "", 1472)
    # Every frame is full; the first has the long header.
    cost = path.message(1372 + 15 * 1412, both_ways=False)
    assert cost.forward == 16 * 1514 and cost.backward == 2 * 98 and cost.frames == 18
    assert path.message(0, both_ways=False).forward == 142
    assert path.message(1373, both_ways=False).forward == 1373 + 142 + 102
    granted = path.message(32 * 1412, both_ways=False)
    assert granted.forward == 32 * 1514 + 142 and granted.backward == 4 * 98 + 106


def test_memory_frames_by_hand():
    path = framing.DatagramPath("x", "", 61398, lossless=True)
    assert path.chunk == 61184
    assert path.message(2 * 61184, both_ways=True).forward == 2 * (61184 + 142 + 50)


def test_roce_frames_by_hand():
    path = framing.RocePath("x", "", 4096)
    # Announced, read in nine packets, confirmed; each SEND acknowledged.
    cost = path.message(32769, both_ways=False)
    assert cost.forward == (68 + 58) + (32769 + 9 * 58 + 2 * 4) + 62
    assert cost.backward == 62 + (58 + 16) + (48 + 58)
    assert path.message(100, both_ways=False).total == 148 + 58 + 62


def test_framing_has_the_sizes_of_the_wire_format():
    """The sizes here equal those in the code."""
    packet = (ROOT / "transport/wire/packet.h").read_text()
    session = (ROOT / "transport/core/session.h").read_text()
    transmit = (ROOT / "transport/core/session_transmit.cc").read_text()
    rdma = (ROOT / "transport/verbs/rdma_frame.h").read_text()
    config = (ROOT / "transport/base/config.h").read_text()

    def constant(text, name):
        return int(re.search(rf"\b{name}\s*=\s*(\d+)", text).group(1))

    assert framing.COMMON_HEADER_BYTES == constant(packet, "kCommonHeaderBytes")
    assert framing.MESSAGE_HEADER_BYTES == constant(packet, "kMessageHeaderBytes")
    assert framing.SHORT_HEADER_BYTES == constant(packet, "kShortHeaderBytes")
    assert framing.CHUNK_HEADER_BYTES == constant(packet, "kChunkHeaderBytes")
    assert framing.MAX_PADDING_BYTES == constant(packet, "kMaxPaddingBytes")
    assert framing.UDP_FRAME_BYTES == constant(transmit, "kOuterHeaderBytes")
    assert framing.FRAMES_AN_ACKNOWLEDGEMENT == constant(session, "kAckEvery")
    assert framing.LOSSLESS_FRAMES_AN_ACKNOWLEDGEMENT == constant(session, "kLosslessAckEvery")
    assert framing.RDMA_FRAME_HEADER_BYTES == constant(rdma, "kFrameHeaderBytes")
    assert framing.RENDEZVOUS_BYTES == 1024 * constant(config, "rendezvousBytes")
    assert framing.RDMA_EAGER_BYTES == 1024 * constant(config, "eagerBytes")


@pytest.mark.parametrize("path", framing.paths(), ids=lambda path: path.name)
@pytest.mark.parametrize("ranks", [2, 4])
def test_event_cost_is_more_than_the_payload_and_not_by_much(path, ranks):
    size = 64 * 2**20
    cost = framing.event_cost(path, ranks, schedule.cut(size, ranks).segments())
    assert 1.001 < cost.total / ring.event_bytes(ranks, size) < 1.15
    assert cost.forward > ring.event_bytes(ranks, size) > cost.backward * 20


@pytest.mark.parametrize("variant, ranks", [("ws=2", 2), ("ws=4", 4)])
def test_event_cost_is_the_published_capture_to_two_in_ten_thousand(variant, ranks):
    published = measurements.published("5.14", "world-size", variant, "bytes_per_event", "median")
    assert published / prediction.event_cost(ranks, 32).total == pytest.approx(1, abs=2e-4)
