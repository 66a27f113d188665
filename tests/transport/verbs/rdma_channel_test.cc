// Channels over queue pairs: messages, credits, cancelling and closing, on the software adapter.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/transport/verbs/rdma_end.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

constexpr std::size_t kLarge = 3'000'000;

std::span<std::byte> nothing() { return {}; }

std::vector<std::uint32_t> sendPlaces;  // of the queue pairs made by createCounted, in order

ibv_qp* createCounted(ibv_pd* domain, ibv_qp_init_attr* init) {
  sendPlaces.push_back(init->cap.max_send_wr);
  return softwareVerbs().createQueuePair(domain, init);
}

class RdmaChannel : public RdmaChannelTest {
 protected:
  static TransportConfig withCredits(const std::string& device, unsigned credits) {
    TransportConfig config = rdmaConfig(device);
    config.rdma.credits = credits;
    return config;
  }
  // Both sides send `count` small messages at once, each to receives that are posted before.
  void flood(unsigned count) {
    std::vector<std::vector<std::byte>> inA(count, std::vector<std::byte>(100)), inB = inA;
    const auto out = patterned(100, 5);
    const auto post = [&](RdmaEnd& end, std::vector<std::vector<std::byte>>& in) {
      end.exclusive([&] {
        for (unsigned i = 0; i < count; ++i) {
          ASSERT_TRUE(end[0].handle->postReceive({.token = i, .key = {}, .data = in[i].data(), .capacity = 100}).ok());
        }
        for (unsigned i = 0; i < count; ++i) {
          ASSERT_TRUE(end[0].handle->postSend({.token = i, .key = {}, .data = out.data(), .length = 100}).ok());
        }
      });
    };
    post(*a, inA);
    post(*b, inB);
    ASSERT_TRUE(a->wait([&] { return (*a)[0].record.received.size() == count; }));
    ASSERT_TRUE(b->wait([&] { return (*b)[0].record.received.size() == count; }));
    EXPECT_TRUE(std::all_of(inA.begin(), inA.end(), [&](const auto& in) { return in == out; }));
    EXPECT_TRUE(std::all_of(inB.begin(), inB.end(), [&](const auto& in) { return in == out; }));
  }
  std::uint64_t sends() const { return rnic.counters().operations[IBV_WR_SEND]; }
};

TEST_F(RdmaChannel, MessagesOfManySizes_ArriveBothWays) {
  open();
  std::uint64_t tag = 0;
  for (std::size_t size : {0u, 1u, 220u, 32'768u, 32'769u, 100'000u, 3'000'000u}) exchange(size, ++tag);
}

ibv_gid linkLocalGid(std::uint8_t last) {
  ibv_gid gid{};
  gid.raw[0] = 0xfe;
  gid.raw[1] = 0x80;
  gid.raw[15] = last;
  return gid;
}

// Of InfiniBand a GID is no address of the kernel's, and nobody can listen there.
TEST_F(RdmaChannel, InfiniBand_Connects) {
  auto devices = defaultSoftwareDevices();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    devices[i].linkLayer = IBV_LINK_LAYER_INFINIBAND;
    devices[i].gids = {{linkLocalGid(static_cast<std::uint8_t>(i + 1)), IBV_GID_TYPE_IB}};
  }
  rnic.setDevices(devices);
  open();
  exchange(100, 1);
  exchange(kLarge, 2);
}

TEST_F(RdmaChannel, LinkLocalGidByIndex_Connects) {
  auto devices = defaultSoftwareDevices();
  for (std::size_t i = 0; i < devices.size(); ++i)
    devices[i].gids[0] = {linkLocalGid(static_cast<std::uint8_t>(i + 1))};
  rnic.setDevices(devices);
  const auto chosen = [](const char* device) {
    TransportConfig config = rdmaConfig(device);
    config.rdma.gidIndex = 0;
    return config;
  };
  open(chosen("soft0"), chosen("soft1"));
  exchange(100, 1);
}

TEST_F(RdmaChannel, TwoRails_LargeMessageIsStripedAndWhole) {
  open(rdmaConfig("soft0,soft1"), rdmaConfig("soft0,soft1"));
  exchange(kLarge, 1);
}

// Metrics and telemetry distinguish channels by these.
TEST_F(RdmaChannel, CountersJson_EachOpenChannel_HasNumberPeerAndRanks) {
  open(withCredits("soft0", 8), withCredits("soft1", 8));
  flood(3);
  const auto channels = a->counters().at("open_channels");
  ASSERT_EQ(channels.size(), 1u);
  EXPECT_TRUE(channels[0].at("channel").is_number_unsigned());
  EXPECT_FALSE(channels[0].at("peer").get<std::string>().empty());
  EXPECT_TRUE(channels[0].at("peer_rank").is_number_integer());
  EXPECT_GE(channels[0].at("messages_sent"), 3u);
  destroy();
}

// A connection's memory in the adapter: 128 ranks on a machine have 16,000 ends of one.
TEST_F(RdmaChannel, SendQueue_HasPlacesForThePeersCreditsAndAPowerOfTwoOfThemWithTheAdaptersOwn) {
  for (const auto& [credits, places] : {std::pair{8u, 31u}, {3u, 11u}, {64u, 255u}, {512u, 255u}}) {
    VerbsApi counted = softwareVerbs();
    counted.createQueuePair = createCounted;
    sendPlaces.clear();
    RdmaEnd end(withCredits("soft0", credits), counted);
    (void)end.open();
    ASSERT_FALSE(sendPlaces.empty());
    EXPECT_EQ(sendPlaces.front(), places) << credits;
  }
}

TEST_F(RdmaChannel, FewCreditsAndFloodBothWays_NoDeadlockAndReceivesNeverRunDry) {
  for (unsigned credits : {3u, 4u}) {
    SCOPED_TRACE(credits);
    open(withCredits("soft0", credits), withCredits("soft1", credits));
    flood(300);
    EXPECT_EQ(rnic.counters().rnrNaks, 0u);
    EXPECT_EQ(rnic.counters().failedCompletions, 0u);  // an overrun breaks every connection
    destroy();
  }
}

TEST_F(RdmaChannel, FewCreditsOneWay_SenderIsNeverStuck) {
  for (unsigned credits : {3u, 4u}) {
    SCOPED_TRACE(credits);
    open(withCredits("soft0", credits), withCredits("soft1", credits));
    const auto out = patterned(50, 1);
    std::vector<std::byte> in(50);
    for (unsigned i = 0; i < 40; ++i) {
      ASSERT_TRUE(b->receive(i, 1, in).ok());
      ASSERT_TRUE(a->send(i, 1, out).ok());
      ASSERT_TRUE(b->waitReceived(i)) << i;
    }
    // The other side's first message still gets through.
    ASSERT_TRUE(a->receive(1, 9, in).ok());
    ASSERT_TRUE(b->send(1, 9, out).ok());
    ASSERT_TRUE(a->waitReceived(1));
    destroy();
  }
}

TEST_F(RdmaChannel, NothingToSay_NoFramesGoToAndFro) {
  for (unsigned credits : {3u, 4u}) {
    SCOPED_TRACE(credits);
    open(withCredits("soft0", credits), withCredits("soft1", credits));
    flood(20);
    // After two more rounds both ends must soon be silent: credit frames need no answer.
    const std::uint64_t before = sends();
    std::uint64_t polls = 0;
    (void)a->transport->progress().waitUntil([&] { return ++polls > 2000; }, monotonicNow() + kRnicPatience, true);
    (void)b->transport->progress().waitUntil([&] { return sends() > before + 20; },
                                             monotonicNow() + std::chrono::milliseconds(100));
    EXPECT_LE(sends(), before + 20);
    destroy();
  }
}

TEST_F(RdmaChannel, SmallDeviceQueues_FramesStillFlow) {
  auto devices = defaultSoftwareDevices();
  for (auto& device : devices) device.maxQueuePairRequests = 16;
  rnic.setDevices(devices);
  open();
  flood(200);
  exchange(kLarge, 77);
}

TEST_F(RdmaChannel, UnmatchedMessages_FillTheWindowAndAreReceivedLaterInOrder) {
  TransportConfig small = rdmaConfig("soft1");
  small.session.shortPathEagerBytes = 4096;
  open(rdmaConfig("soft0"), small);
  std::vector<std::vector<std::byte>> out;
  for (int i = 0; i < 40; ++i) out.push_back(patterned(700, i));
  for (unsigned i = 0; i < 40; ++i) ASSERT_TRUE(a->send(i, 3, out[i]).ok());
  ASSERT_TRUE(b->wait([&] { return (*b)[0].record.announced.size() == 40; }));
  for (unsigned i = 0; i < 40; ++i) {
    std::vector<std::byte> in(700);
    ASSERT_TRUE(b->receive(i, 3, in).ok());
    ASSERT_TRUE(b->waitReceived(i));
    EXPECT_EQ(in, out[i]) << i;
  }
  ASSERT_TRUE(a->wait([&] { return (*a)[0].record.sent.size() == 40; }));
}

TEST_F(RdmaChannel, CancelledReceive_InEveryState_BufferIsNotTouchedAndNothingIsTold) {
  open();
  std::vector<std::byte> in(kLarge, std::byte{0x5a});
  const auto untouched = in;
  const auto out = patterned(kLarge, 1);
  // Waiting.
  ASSERT_TRUE(b->receive(1, 1, in).ok());
  b->exclusive([&] {
    EXPECT_TRUE((*b)[0].handle->cancelReceive(1));
    EXPECT_FALSE((*b)[0].handle->cancelReceive(1));
  });
  ASSERT_TRUE(a->send(1, 1, out).ok());
  ASSERT_TRUE(b->wait([&] { return (*b)[0].record.announced.size() == 1; }));
  EXPECT_EQ(in, untouched);
  // Under way: READs are posted and not executed.
  rnic.setPaused(true);
  b->exclusive([&] {
    auto& channel = *(*b)[0].handle;
    ASSERT_TRUE(
        channel.postReceive({.token = 2, .key = {MessageKind::kUnbound, 1}, .data = in.data(), .capacity = kLarge})
            .ok());
  });
  b->exclusive([&] {  // before any thread can see that they are over
    rnic.setPaused(false);
    EXPECT_TRUE((*b)[0].handle->cancelReceive(2));
  });
  const auto after = in;
  ASSERT_TRUE(a->waitSent(1));
  EXPECT_EQ(in, after);
  EXPECT_EQ((*b)[0].record.timesReceived(2), 0u);
  exchange(1000, 5);  // the channel lives
}

TEST_F(RdmaChannel, CancelledReceiveWhoseReadFails_ChannelFailsAndNothingCrashes) {
  open();
  std::vector<std::byte> in(kLarge);
  const auto out = patterned(kLarge, 1);
  ASSERT_TRUE(a->send(1, 1, out).ok());
  ASSERT_TRUE(b->wait([&] { return !(*b)[0].record.announced.empty(); }));
  rnic.failOperation({.context = b->context, .opcode = IBV_WR_RDMA_READ, .status = IBV_WC_REM_ACCESS_ERR});
  rnic.setPaused(true);
  ASSERT_TRUE(b->receive(2, 1, in).ok());
  b->exclusive([&] {
    rnic.setPaused(false);
    EXPECT_TRUE((*b)[0].handle->cancelReceive(2));
    EXPECT_EQ((*b)[0].handle->state(), ChannelState::kFailed);
  });
  EXPECT_EQ((*b)[0].record.timesReceived(2), 0u);
}

TEST_F(RdmaChannel, CancelledPersistentReceive_OfSeveralMessages_TellsOfNone) {
  open();
  std::vector<std::byte> in(kLarge);
  const auto out = patterned(kLarge, 1);
  rnic.setPaused(true);
  b->exclusive([&] {
    ASSERT_TRUE((*b)[0]
                    .handle
                    ->postReceive({.token = 7,
                                   .key = {MessageKind::kBound, 1},
                                   .data = in.data(),
                                   .capacity = kLarge,
                                   .persistent = true})
                    .ok());
  });
  a->exclusive([&] {
    for (OperationToken i = 0; i < 4; ++i) {
      ASSERT_TRUE(
          (*a)[0]
              .handle
              ->postSend(
                  {.token = i, .key = {MessageKind::kBound, 1}, .data = out.data(), .length = i == 0 ? kLarge : 100})
              .ok());
    }
  });
  // The first is large and stands; the small ones behind it are here and wait for it.
  rnic.setLatency(std::chrono::milliseconds(2));
  rnic.setPaused(false);
  ASSERT_TRUE(b->wait([&] { return (*b)[0].handle->counters().packetsReceived >= 4; }));
  b->exclusive([&] {
    const std::size_t before = (*b)[0].record.received.size();
    EXPECT_TRUE((*b)[0].handle->cancelReceive(7));
    EXPECT_EQ((*b)[0].record.received.size(), before);
  });
  rnic.setLatency(Duration(0));
  exchange(1000, 5);
}

TEST_F(RdmaChannel, CancelInsideAnotherChannelsCompletion_OrderIsKept) {
  open(rdmaConfig("soft0"), rdmaConfig("soft1"), 2);
  std::vector<std::byte> large(kLarge), small(8), rest(30 * 8);
  const auto out = patterned(kLarge, 1);
  const auto word = patterned(8, 9);
  ASSERT_TRUE(a->send(1, 1, out, 1).ok());
  ASSERT_TRUE(b->wait([&] { return !(*b)[1].record.announced.empty(); }));
  ASSERT_TRUE(b->receive(5, 5, small, 0).ok());
  (*b)[0].record.onReceived = [&](OperationToken) { EXPECT_TRUE((*b)[1].handle->cancelReceive(2)); };
  // The READs are posted, and take longer than the small message beside them.
  rnic.setPaused(true);
  b->exclusive([&] {
    ASSERT_TRUE(
        (*b)[1]
            .handle
            ->postReceive({.token = 2, .key = {MessageKind::kUnbound, 1}, .data = large.data(), .capacity = kLarge})
            .ok());
  });
  // Everything below is in the completion queue when the side polls again.
  b->exclusive([&] {
    EXPECT_TRUE(a->send(5, 5, word, 0).ok());
    for (OperationToken i = 10; i < 40; ++i) EXPECT_TRUE(a->send(i, i, word, 1).ok());
    rnic.setPaused(false);
    EXPECT_TRUE(a->wait([&] { return (*a)[1].record.sent.size() >= 30; }));
  });
  ASSERT_TRUE(b->wait([&] { return (*b)[1].record.announced.size() == 31 && (*b)[0].record.timesReceived(5) == 1; }));
  b->exclusive([&] {
    EXPECT_EQ((*b)[1].handle->state(), ChannelState::kConnected);
    EXPECT_TRUE(std::is_sorted((*b)[1].record.announced.begin(), (*b)[1].record.announced.end()));
  });
  (*b)[0].record.onReceived = nullptr;
}

TEST_F(RdmaChannel, CancelledSend_QueuedIsWithdrawnAnnouncedFailsTheChannel) {
  open(withCredits("soft0", 4), withCredits("soft1", 4));
  const auto out = patterned(kLarge, 1);
  a->exclusive([&] {
    auto& channel = *(*a)[0].handle;
    ASSERT_TRUE(channel.postSend({.token = 1, .key = {}, .data = out.data(), .length = kLarge}).ok());
    EXPECT_TRUE(channel.cancelSend(1));
    EXPECT_FALSE(channel.cancelSend(1));
    EXPECT_FALSE(channel.cancelSend(99));
  });
  exchange(100, 4);
  ASSERT_TRUE(a->send(2, 2, out).ok());
  ASSERT_TRUE(b->wait([&] { return !(*b)[0].record.announced.empty(); }));
  a->exclusive([&] { EXPECT_TRUE((*a)[0].handle->cancelSend(2)); });
  EXPECT_EQ(a->error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(b->waitState(ChannelState::kFailed));
}

TEST_F(RdmaChannel, AddressOfFailedOrClosedChannel_IsStillKnown) {
  open();
  const auto before = a->address();
  b->close(true);
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_EQ(a->address(), before);
  a->close(false);
  EXPECT_EQ(a->address(), before);
}

TEST_F(RdmaChannel, CloseInGoodOrder_WhatWasSentArrivesFirst) {
  std::vector<std::byte> in(kLarge), small(100);
  const auto expected = patterned(kLarge, 3);
  auto out = expected;
  // A close waits 100 ms for the peer to read its messages. A machine may delay the peer for longer; then the close is
  // not in good order.
  bool inTime = false;
  for (int i = 0; i < 20 && !inTime; ++i) {
    if (i > 0) destroy();
    open();
    out = expected;
    ASSERT_TRUE(b->receive(1, 1, in).ok());
    ASSERT_TRUE(a->send(1, 1, out).ok());
    ASSERT_TRUE(a->send(2, 2, std::span(out).first(100)).ok());
    const TimePoint begin = monotonicNow();
    a->exclusive([&] {
      (*a)[0].handle->close(false);
      std::fill(out.begin(), out.end(), std::byte{0});
    });
    inTime = monotonicNow() - begin < std::chrono::milliseconds(100);
  }
  ASSERT_TRUE(inTime);
  ASSERT_TRUE(b->waitState(ChannelState::kPeerClosed));
  EXPECT_EQ((*b)[0].record.timesReceived(1), 1u);
  EXPECT_EQ(in, expected);
  ASSERT_TRUE(b->receive(2, 2, small).ok()) << "it was here before the end";
  EXPECT_TRUE(std::equal(small.begin(), small.end(), expected.begin()));
  EXPECT_FALSE(b->receive(3, 3, small).ok());
  EXPECT_FALSE(b->send(3, 3, small).ok());
}

TEST_F(RdmaChannel, CloseWithFullWindow_CopiesOutliveTheCloseUntilTheyHaveArrived) {
  TransportConfig small = rdmaConfig("soft1");
  small.session.shortPathEagerBytes = 2048;
  TransportConfig slow = withCredits("soft0", 4);
  small.rdma.credits = 4;
  open(slow, small);
  std::vector<std::vector<std::byte>> in(12, std::vector<std::byte>(1000)), out;
  for (int i = 0; i < 12; ++i) out.push_back(patterned(1000, i));
  const auto expected = out;
  a->exclusive([&] {
    for (unsigned i = 0; i < 12; ++i) {
      ASSERT_TRUE((*a)[0].handle->postSend({.token = i, .key = {}, .data = out[i].data(), .length = 1000}).ok());
    }
    (*a)[0].handle->close(false);
    for (auto& each : out) std::fill(each.begin(), each.end(), std::byte{0});
  });
  b->exclusive([&] {
    for (unsigned i = 0; i < 12; ++i) {
      ASSERT_TRUE((*b)[0].handle->postReceive({.token = i, .key = {}, .data = in[i].data(), .capacity = 1000}).ok());
    }
  });
  ASSERT_TRUE(b->waitState(ChannelState::kPeerClosed)) << (*b)[0].record.received.size();
  EXPECT_EQ((*b)[0].record.received.size(), 12u);
  EXPECT_EQ(in, expected);
}

TEST_F(RdmaChannel, ManyMessagesThenEnd_AllArriveBeforeTheEndIsTold) {
  open(withCredits("soft0", 512), withCredits("soft1", 512));
  const auto out = patterned(16, 1);
  // While this side does not poll, everything arrives: frames, goodbye, and the end of the control connection.
  b->exclusive([&] {
    a->exclusive([&] {
      for (OperationToken i = 0; i < 400; ++i) {
        ASSERT_TRUE((*a)[0].handle->postSend({.token = i, .key = {}, .data = out.data(), .length = out.size()}).ok());
      }
    });
    ASSERT_TRUE(a->wait([&] { return (*a)[0].record.sent.size() == 400; }));
    a.reset();
  });
  ASSERT_TRUE(b->wait(
      [&] { return (*b)[0].record.has(ChannelState::kPeerClosed) || (*b)[0].record.has(ChannelState::kFailed); }));
  EXPECT_EQ((*b)[0].record.states.back(), ChannelState::kPeerClosed);
  EXPECT_EQ((*b)[0].record.announced.size(), 400u);
}

TEST_F(RdmaChannel, CloseInEveryState_LeavesNothingBehind) {
  for (bool abort : {false, true}) {
    a = std::make_unique<RdmaEnd>(rdmaConfig("soft0"));
    b = std::make_unique<RdmaEnd>(rdmaConfig("soft1"));
    a->open();  // unconnected
    a->close(abort, 0);
    a->open();  // connecting
    b->open();
    ASSERT_TRUE(a->connect(b->address(0), 1).ok());
    a->close(abort, 1);
    a->close(abort, 1);  // twice
    destroy();
    open();  // the peer has closed
    b->close(abort);
    ASSERT_TRUE(a->waitState(abort ? ChannelState::kFailed : ChannelState::kPeerClosed));
    a->close(abort);
    destroy();
  }
}

// Finished sessions stay while a channel points to them.
TEST_F(RdmaChannel, CloseAll_SessionsStayUntilTheirChannelsAreGone) {
  open();
  a->transport->closeAll();
  ASSERT_TRUE(b->waitState(ChannelState::kPeerClosed));
  b->close(false);
  (void)a->transport->progress().waitUntil([] { return false; }, monotonicNow() + std::chrono::milliseconds(200));
  a->exclusive([&] {
    EXPECT_EQ(a->transport->report().channels.size(), 1u);
    EXPECT_EQ((*a)[0].handle->state(), ChannelState::kClosed);
    EXPECT_FALSE((*a)[0].handle->postSend({.token = 1, .key = {}, .data = nullptr, .length = 0}).ok());
  });
  a->close(false);
  EXPECT_TRUE(a->wait([&] { return a->transport->report().channels.empty(); }));
}

TEST_F(RdmaChannel, Abort_DropsWhatIsUnsentAndPeerFails) {
  open();
  const auto out = patterned(kLarge, 1);
  ASSERT_TRUE(a->send(1, 1, out).ok());
  ASSERT_TRUE(b->wait([&] { return !(*b)[0].record.announced.empty(); }));
  a->close(true);
  ASSERT_TRUE(b->waitState(ChannelState::kFailed));
  EXPECT_NE(b->error().message.find("abort"), std::string::npos) << b->error().message;
  EXPECT_FALSE(b->receive(1, 1, nothing()).ok());
}

TEST_F(RdmaChannel, MessageLongerThanItsReceive_ChannelFails) {
  open();
  std::vector<std::byte> in(10);
  const auto out = patterned(100'000, 1);
  ASSERT_TRUE(b->receive(1, 1, in).ok());
  ASSERT_TRUE(a->send(1, 1, out).ok());
  ASSERT_TRUE(b->waitState(ChannelState::kFailed));
  EXPECT_EQ(b->error().code, ErrorCode::kMessageTooLong);
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
}

}  // namespace
}  // namespace gloo_bypass::test
