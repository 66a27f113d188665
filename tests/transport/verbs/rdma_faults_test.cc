// Faults under a channel (peer, port, device, limits) and the errors that its user gets.
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "tests/transport/verbs/rdma_end.h"
#include "transport/channel/channel_address.h"
#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

constexpr std::size_t kLarge = 3'000'000;

bool mentions(const Error& error, const std::string& word) { return error.message.find(word) != std::string::npos; }

class RdmaFaults : public RdmaChannelTest {
 protected:
  std::uint64_t retransmissions() const { return rnic.counters().retransmissions; }
  std::vector<std::byte> data = patterned(kLarge, 1), in = std::vector<std::byte>(kLarge);
};

TEST_F(RdmaFaults, PeersProcessEnds_ChannelFailsAtOnce) {
  open();
  rnic.killContext(b->context);
  b.reset();  // its control connection closes; the queue pairs say nothing
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_EQ(a->error().code, ErrorCode::kPeerVanished);
  EXPECT_FALSE(a->send(1, 1, data).ok());
}

TEST_F(RdmaFaults, PeersProcessEnds_WhatHadArrivedWhole_CanBeReceived) {
  open();
  const auto small = patterned(300, 2), other = patterned(200, 3);
  ASSERT_TRUE(b->send(1, 1, small).ok());
  ASSERT_TRUE(b->send(2, 1, other).ok());
  ASSERT_TRUE(b->send(3, 2, data).ok());  // is announced only
  ASSERT_TRUE(a->wait([&] { return (*a)[0].record.announced.size() == 3; }));
  rnic.killContext(b->context);
  b.reset();
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  std::vector<std::byte> first(300), second(200);
  ASSERT_TRUE(a->receive(1, 1, first).ok());
  ASSERT_TRUE(a->receive(2, 1, second).ok());
  ASSERT_TRUE(a->waitReceived(1) && a->waitReceived(2));
  EXPECT_EQ(first, small);
  EXPECT_EQ(second, other);
  EXPECT_FALSE(a->receive(3, 1, first).ok());
  EXPECT_FALSE(a->receive(4, 2, in).ok());
}

TEST_F(RdmaFaults, ConfirmedSend_CompletesOnceThePeersAdapterHasIt) {
  TransportConfig patient[] = {rdmaConfig("soft0"), rdmaConfig("soft1")};
  // Until the port is back, whenever this thread gets its core.
  for (TransportConfig& config : patient) config.rdma.timeoutExponent = 16;
  open(patient[0], patient[1]);
  const auto small = patterned(300, 2);
  rnic.setPort("soft1", false);
  bool completed = true;
  const auto post = [&](OperationToken token, bool confirmed) {
    const SendRequest request{.token = token,
                              .key = {MessageKind::kUnbound, 1},
                              .data = small.data(),
                              .length = small.size(),
                              .confirmed = confirmed};
    ASSERT_TRUE((*a)[0].handle->postSend(request).ok());
  };
  a->exclusive([&] {
    post(1, false);
    post(2, true);
  });
  a->exclusive([&] {
    EXPECT_TRUE((*a)[0].record.sent.contains(1));
    completed = (*a)[0].record.sent.contains(2);
  });
  EXPECT_FALSE(completed);
  rnic.setPort("soft1", true);
  ASSERT_TRUE(a->waitSent(2));
  std::vector<std::byte> received(300);
  for (OperationToken token = 1; token <= 2; ++token) {
    ASSERT_TRUE(b->receive(token, 1, received).ok());
    ASSERT_TRUE(b->waitReceived(token));
    EXPECT_EQ(received, small);
  }
}

TEST_F(RdmaFaults, ConfirmedSend_PeerLeavesBeforeItsAdapterAnswers_CompletesOnceAndBeforeThat) {
  open();
  rnic.failOperation({.context = a->context, .opcode = IBV_WR_SEND, .late = std::chrono::seconds(2)});
  const auto small = patterned(300, 2);
  a->exclusive([&] {
    const SendRequest request{
        .token = 2, .key = {MessageKind::kUnbound, 1}, .data = small.data(), .length = small.size(), .confirmed = true};
    ASSERT_TRUE((*a)[0].handle->postSend(request).ok());
  });
  std::vector<std::byte> received(300);
  ASSERT_TRUE(b->receive(1, 1, received).ok());
  ASSERT_TRUE(b->waitReceived(1));
  b->close(false);
  ASSERT_TRUE(a->waitState(ChannelState::kPeerClosed));
  const auto timesSent = [&] {
    int times = 0;
    a->exclusive([&] { times = (*a)[0].record.sent[2]; });
    return times;
  };
  EXPECT_EQ(timesSent(), 1);
  const auto before = rnic.counters().operations[IBV_WR_SEND];
  ASSERT_TRUE(a->wait([&] { return rnic.counters().operations[IBV_WR_SEND] > before; }));
  a->close(false);
  EXPECT_EQ(timesSent(), 1);
}

TEST_F(RdmaFaults, ReadFailsOnTheSecondDevice_ErrorNamesThatOne) {
  open(rdmaConfig("soft0,soft1"), rdmaConfig("soft0,soft1"));
  rnic.failOperation({.context = notedContext("soft1"), .opcode = IBV_WR_RDMA_READ});
  ASSERT_TRUE(b->receive(1, 1, in).ok());
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(b->waitState(ChannelState::kFailed));
  EXPECT_TRUE(mentions(b->error(), "RDMA device soft1: a RDMA READ failed")) << b->error().message;
}

TEST_F(RdmaFaults, QueuePairDiesAndControlLives_BothFailWithinTheRetries) {
  open();
  rnic.killQueuePair(notedQueuePairs()[2]);  // frames and READs of a, frames of b
  ASSERT_TRUE(a->send(1, 1, std::span(data).first(100)).ok());
  ASSERT_TRUE(a->send(2, 1, data).ok());
  for (OperationToken i = 3; i < 40; ++i) (void)a->send(i, 1, std::span(data).first(100));
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_EQ(a->error().code, ErrorCode::kPeerVanished);
  EXPECT_TRUE(mentions(a->error(), "GLOO_BYPASS_RDMA_TIMEOUT")) << a->error().message;
  ASSERT_TRUE(b->waitState(ChannelState::kFailed));
}

TEST_F(RdmaFaults, PortDownAndUpWithinTheRetries_NothingIsLost) {
  open();
  rnic.losePort("soft1", 5);
  ASSERT_TRUE(b->receive(1, 1, in).ok());
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(b->waitReceived(1));
  EXPECT_EQ(retransmissions(), 5u);
  EXPECT_EQ(in, data);
  ASSERT_TRUE(a->waitSent(1));
  EXPECT_EQ(b->counters()["port"]["port_downs"], 1);
}

TEST_F(RdmaFaults, PortDownForLonger_BothSidesFail) {
  open();
  rnic.setPort("soft1", false);
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  ASSERT_TRUE(b->waitState(ChannelState::kFailed));
  EXPECT_EQ(a->error().code, ErrorCode::kPeerVanished);
}

TEST_F(RdmaFaults, DeviceRemoved_EveryChannelFailsAndANewTransportCanBeMade) {
  open(rdmaConfig("soft0"), rdmaConfig("soft1"), 3);
  rnic.removeDevice("soft1");
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(b->waitState(ChannelState::kFailed, i));
    EXPECT_EQ(b->error(i).scope, ErrorScope::kDevice) << b->error(i).message;
    ASSERT_TRUE(a->waitState(ChannelState::kFailed, i));
  }
  b->exclusive([&] {
    ChannelRecord record;
    EXPECT_FALSE(b->transport->openChannel({}, &record).ok());
  });
  destroy();
  EXPECT_FALSE(makeVerbsTransport(notedVerbs(), rdmaConfig("soft1")).ok());
  EXPECT_TRUE(makeVerbsTransport(notedVerbs(), rdmaConfig("soft0")).ok());
}

TEST_F(RdmaFaults, ReadFails_ReaderSaysHowAndSenderFailsToo) {
  for (const ibv_wc_status status : {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
                                     IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_FATAL_ERR}) {
    SCOPED_TRACE(static_cast<int>(status));
    open();
    rnic.failOperation({.context = b->context, .opcode = IBV_WR_RDMA_READ, .skip = 1, .status = status});
    ASSERT_TRUE(b->receive(1, 1, in).ok());
    ASSERT_TRUE(a->send(1, 1, data).ok());
    ASSERT_TRUE(b->waitState(ChannelState::kFailed));
    EXPECT_TRUE(mentions(b->error(), "RDMA READ")) << b->error().message;
    EXPECT_TRUE((*b)[0].record.received.empty());
    ASSERT_TRUE(a->waitState(ChannelState::kFailed));
    EXPECT_TRUE((*a)[0].record.sent.empty());
    destroy();
  }
}

TEST_F(RdmaFaults, SendFailsWithSeveralChannelsOpen_OnlyItsChannelFails) {
  open(rdmaConfig("soft0"), rdmaConfig("soft1"), 3);
  rnic.failOperation({.context = a->context, .opcode = IBV_WR_SEND, .status = IBV_WC_REM_OP_ERR});
  ASSERT_TRUE(a->send(1, 1, std::span(data).first(100), 1).ok());
  ASSERT_TRUE(a->waitState(ChannelState::kFailed, 1));
  ASSERT_TRUE(b->waitState(ChannelState::kFailed, 1));
  exchange(1000, 5, 0);
  exchange(kLarge, 5, 2);
}

TEST_F(RdmaFaults, QueuePairEventWithSeveralChannels_IsLookedAtOnce) {
  open(rdmaConfig("soft0"), rdmaConfig("soft1"), 8);
  // The responder of a READ beyond the announced bytes gets an event of its queue pair: unmapped behind our back.
  for (std::size_t i = 0; i < 8; i += 3) {
    rnic.failOperation(
        {.context = b->context, .opcode = IBV_WR_RDMA_READ, .status = IBV_WC_REM_ACCESS_ERR, .delivered = true});
    ASSERT_TRUE(b->receive(1, 1, in, i).ok());
    ASSERT_TRUE(a->send(1, 1, data, i).ok());
    ASSERT_TRUE(b->waitState(ChannelState::kFailed, i));
    ASSERT_TRUE(a->waitState(ChannelState::kFailed, i));
  }
  exchange(kLarge, 3, 1);
}

TEST_F(RdmaFaults, LockedMemoryTooSmall_AtStartAndAtALargeSend_NamesTheLimit) {
  rnic.limitRegisteredBytes(8192);
  a = std::make_unique<RdmaEnd>(rdmaConfig("soft0"));
  a->exclusive([&] {
    ChannelRecord record;
    for (int i = 0; i < 300; ++i) {  // a refusal uses nothing up
      const auto refused = a->transport->openChannel({}, &record);
      ASSERT_FALSE(refused.ok());
      ASSERT_EQ(refused.error().code, ErrorCode::kExhausted);
      ASSERT_TRUE(mentions(refused.error(), "memory")) << i << refused.error().message;
      ASSERT_TRUE(mentions(refused.error(), "RLIMIT_MEMLOCK")) << i << refused.error().message;
    }
  });
  destroy();
  rnic.reset();
  open();
  rnic.limitRegisteredBytes(rnic.counters().registeredBytes + 65536);
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_EQ(a->error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(mentions(a->error(), "RLIMIT_MEMLOCK")) << a->error().message;
  ASSERT_TRUE(b->waitState(ChannelState::kFailed));
}

TEST_F(RdmaFaults, LockedMemoryIsFullOfKeptRegistrations_TheyMakeRoomForAnotherConnection) {
  open();
  ASSERT_TRUE(b->receive(1, 1, in).ok());
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(b->waitReceived(1) && a->waitSent(1));
  rnic.limitRegisteredBytes(rnic.counters().registeredBytes + 4096);
  a->exclusive([&] {
    ChannelRecord record;
    const auto opened = a->transport->openChannel({}, &record);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
  });
}

// As drivers do that lock the memory of their queues.
TEST_F(RdmaFaults, NoLockedMemoryForAQueue_NamesTheLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit small{std::min<rlim_t>(before.rlim_max, 1 << 20), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &small), 0);
  VerbsApi verbs = notedVerbs();
  verbs.createCompletionQueue = [](ibv_context*, int, void*, ibv_comp_channel*, int) -> ibv_cq* {
    errno = ENOMEM;
    return nullptr;
  };
  const auto refused = makeVerbsTransport(verbs, rdmaConfig("soft0"));
  EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(mentions(refused.error(), "RLIMIT_MEMLOCK")) << refused.error().message;
}

TEST_F(RdmaFaults, NoActivePort_IsRefusedWithItsName) {
  rnic.setPort("soft0", false);
  const auto refused = makeVerbsTransport(notedVerbs(), rdmaConfig("soft0"));
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(mentions(refused.error(), "soft0")) << refused.error().message;
}

TEST_F(RdmaFaults, AddressOfAnotherKind_IsRefusedBeforeAnythingIsSent) {
  a = std::make_unique<RdmaEnd>(rdmaConfig("soft0,soft1"));
  b = std::make_unique<RdmaEnd>(rdmaConfig("soft1"));
  a->open();
  b->open();
  const Status rails = a->connect(b->address());
  ASSERT_FALSE(rails.ok());
  EXPECT_TRUE(mentions(rails.error(), "GLOO_BYPASS_RDMA_DEVICES")) << rails.error().message;
  EXPECT_FALSE(b->connect(patterned(100, 3)).ok());
  EXPECT_FALSE(b->connect({}).ok());
  auto channel = decodeChannelAddress(b->address());
  ASSERT_TRUE(channel.ok());
  auto rdma = decodeRdmaAddress(channel.value().portAddress);
  ASSERT_TRUE(rdma.ok());
  rdma.value().rails[0].linkLayer = IBV_LINK_LAYER_INFINIBAND;
  rdma.value().rails.push_back(rdma.value().rails[0]);
  channel.value().portAddress = encodeRdmaAddress(rdma.value());
  const Status layer = a->connect(encodeChannelAddress(channel.value()));
  ASSERT_FALSE(layer.ok());
  EXPECT_TRUE(mentions(layer.error(), "InfiniBand")) << layer.error().message;
}

TEST_F(RdmaFaults, NobodyAnswers_ConnectionTimesOut) {
  a = std::make_unique<RdmaEnd>(rdmaConfig("soft0"));
  b = std::make_unique<RdmaEnd>(rdmaConfig("soft1"));
  a->open({.connectTimeout = std::chrono::milliseconds(50)});
  b->open();
  ASSERT_TRUE(a->connect(b->address()).ok());
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_EQ(a->error().code, ErrorCode::kTimedOut);
  EXPECT_TRUE(mentions(a->error(), "control connection is made by TCP")) << a->error().message;
}

// Lifetimes and limits ------------------------------------------------------------------------------------------------

TEST_F(RdmaFaults, HundredsOfConnections_LeaveNothing) {
  TransportConfig forgetful = rdmaConfig("soft0");
  forgetful.rdma.registrationCacheBytes = 0;
  a = std::make_unique<RdmaEnd>(forgetful);
  forgetful.rdma.devices = "soft1";
  b = std::make_unique<RdmaEnd>(forgetful);
  std::uint64_t registered = 0;
  LiveObjects alive;
  for (int i = 0; i < 200; ++i) {
    addChannel();
    exchange(i % 10 == 0 ? 100'000 : 100, 1);
    a->close(false);
    ASSERT_TRUE(b->waitState(ChannelState::kPeerClosed));
    b->close(false);
    a->channels.clear();
    b->channels.clear();
    // Both have forgotten it: queue pairs are gone.
    ASSERT_TRUE(eventually([&] { return rnic.liveObjects().queuePairs == 0; })) << i;
    if (i == 20) {
      alive = rnic.liveObjects();
      registered = rnic.counters().registeredBytes;
    }
  }
  alive.regions = rnic.liveObjects().regions;
  EXPECT_EQ(rnic.liveObjects().describe(), alive.describe());
  EXPECT_LE(rnic.counters().registeredBytes, registered + (1 << 20));
}

TEST_F(RdmaFaults, HundredsOfAbortedConnections_DoNotUseUpTheReceives) {
  a = std::make_unique<RdmaEnd>(rdmaConfig("soft0"));
  b = std::make_unique<RdmaEnd>(rdmaConfig("soft1"));
  for (int i = 0; i < 200; ++i) {
    addChannel();
    if (HasFatalFailure()) FAIL() << "after " << i;
    exchange(100, 1);
    a->close(true);
    ASSERT_TRUE(b->waitState(ChannelState::kFailed));
    b->close(true);
    a->channels.clear();
    b->channels.clear();
    ASSERT_TRUE(eventually([&] { return rnic.liveObjects().queuePairs == 0; })) << i;
  }
}

TEST_F(RdmaFaults, ManyChannels_ReceivesNeverRunDry) {
  TransportConfig few = rdmaConfig("soft0"), others = rdmaConfig("soft1");
  few.rdma.credits = others.rdma.credits = 8;
  open(few, others, 50);
  for (std::size_t i = 0; i < 50; i += 7) exchange(50'000, 1, i);
  EXPECT_EQ(rnic.counters().rnrNaks, 0u);
}

TEST_F(RdmaFaults, SameBuffersAgain_NothingIsRegistered) {
  open();
  if (a->counters()["port"]["registrations_not_kept"] != 0) GTEST_SKIP() << "memory cannot be watched here";
  std::uint64_t warm = 0;
  for (int round = 0; round < 6; ++round) {
    ASSERT_TRUE(b->receive(1, 1, in).ok());
    ASSERT_TRUE(a->send(1, 1, data).ok());
    ASSERT_TRUE(b->wait([&] { return (*b)[0].record.timesReceived(1) == static_cast<std::size_t>(round + 1); }));
    ASSERT_TRUE(a->wait([&] { return (*a)[0].record.sent[1] == round + 1; }));
    if (round == 1) warm = rnic.counters().registrations;
  }
  if (a->counters()["port"]["registrations_not_kept"] != 0) GTEST_SKIP() << "memory cannot be watched here";
  EXPECT_EQ(rnic.counters().registrations, warm);
}

}  // namespace
}  // namespace gloo_bypass::test
