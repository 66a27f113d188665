// Many connections at once and one after the other: how many the device's limits allow, and what they leave behind.
#include <malloc.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>

#include "tests/transport/verbs/rdma_end.h"
#include "transport/channel/channel_address.h"
#include "transport/verbs/completion_queues.h"

namespace gloo_bypass::test {
using namespace verbs;
namespace {

constexpr int kSmallQueue = 1000;  // completions: of two connections

bool mentions(const Error& error, const std::string& word) { return error.message.find(word) != std::string::npos; }

// Resources of the survivor that must not grow. Its adapter is in this process too.
struct Held {
  std::string objects;  // of the adapter
  std::uint64_t registered = 0;
  std::ptrdiff_t descriptors = 0, threads = 0;
  std::size_t heap = 0;
};

class RdmaManyPeers : public RdmaChannelTest {
 protected:
  void limit(const std::function<void(SoftwareDeviceOptions&)>& change) {
    auto devices = defaultSoftwareDevices();
    for (auto& device : devices) change(device);
    rnic.setDevices(devices);
  }
  void closeAll() {
    for (std::size_t i = 0; i < a->channels.size(); ++i) a->close(false, i);
    for (std::size_t i = 0; i < b->channels.size(); ++i) b->close(false, i);
    a->channels.clear();
    b->channels.clear();
    ASSERT_TRUE(eventually([&] { return rnic.liveObjects().queuePairs == 0; }));
  }
  Held held() {
    const auto entries = [](const char* folder) {
      return std::distance(std::filesystem::directory_iterator(folder), {});
    };
    const struct mallinfo2 heap = ::mallinfo2();
    return {.objects = rnic.liveObjects().describe(),
            .registered = rnic.counters().registeredBytes,
            .descriptors = entries("/proc/self/fd"),
            .threads = entries("/proc/self/task"),
            .heap = heap.uordblks + heap.hblkhd};
  }
  static void expectNoMore(const Held& now, const Held& before) {
    constexpr std::size_t kAllowance = 1 << 20;  // a leak of 1 KiB a time shows
    EXPECT_EQ(now.objects, before.objects);
    EXPECT_EQ(now.registered, before.registered);
    EXPECT_EQ(now.descriptors, before.descriptors);
    EXPECT_EQ(now.threads, before.threads);
    EXPECT_LE(now.heap, before.heap + kAllowance);
  }
  // Opens channels of one transport until one is refused; returns that error.
  Error openUntilRefused(std::size_t* opened) {
    Error refusal;
    a = std::make_unique<RdmaEnd>(rdmaConfig("soft0"));
    a->exclusive([&] {
      std::vector<std::unique_ptr<MessageChannel>> many;
      ChannelRecord record;
      while (many.size() < 100) {
        auto made = a->transport->openChannel({}, &record);
        if (!made.ok()) {
          refusal = made.error();
          break;
        }
        many.push_back(std::move(made).value());
      }
      *opened = many.size();
    });
    return refusal;
  }
};

TEST_F(RdmaManyPeers, MoreThanOneCompletionQueueHolds_AllConnectAndTheQueuesComeBack) {
  limit([](auto& device) { device.maxCompletions = kSmallQueue; });
  open(rdmaConfig("soft0"), rdmaConfig("soft1"), 11);
  const std::size_t queues = rnic.liveObjects().completionQueues;
  EXPECT_GT(queues, 8u);
  for (std::size_t i = 0; i < 11; ++i) {
    exchange(100, 1, i);
    exchange(100'000, 2, i);
  }
  addChannel();
  EXPECT_EQ(rnic.liveObjects().completionQueues, queues);  // there was room in the last ones
  closeAll();
  EXPECT_EQ(rnic.liveObjects().completionQueues, 2u);  // of two transports
  addChannel();
  exchange(100, 1);
}

TEST_F(RdmaManyPeers, WaiterSleeps_CompletionInTheLastQueueWakesIt) {
  limit([](auto& device) { device.maxCompletions = kSmallQueue; });
  TransportConfig first = rdmaConfig("soft0"), second = rdmaConfig("soft1");
  first.spin = second.spin = Duration(0);
  open(first, second, 5);
  const std::vector<std::byte> data = patterned(100, 1);
  std::vector<std::byte> in(100);
  rnic.setLatency(std::chrono::milliseconds(20));
  for (const std::size_t channel : {4u, 0u, 4u, 2u}) {
    const std::uint64_t before = rnic.counters().completionEvents;
    ASSERT_TRUE(b->receive(7, 1, in, channel).ok());
    ASSERT_TRUE(a->send(7, 1, data, channel).ok());
    const auto timesBefore = (*b)[channel].record.timesReceived(7);
    ASSERT_TRUE(b->wait([&] { return (*b)[channel].record.timesReceived(7) > timesBefore; }));
    EXPECT_GT(rnic.counters().completionEvents, before) << channel;
    EXPECT_EQ(in, data);
  }
}

// A thread may be about to sleep on that event.
TEST_F(RdmaManyPeers, QueueGivenBackWhileAnotherHasAnEvent_EventStays) {
  const VerbsApi& verbs = softwareVerbs();
  RnicEnd end;
  ibv_device_attr limits{};
  ASSERT_EQ(verbs.queryDevice(end.context, &limits), 0);
  limits.max_cqe = 100;
  auto queues = std::move(CompletionQueues::make(verbs, end.context, "soft0", limits).value());
  std::optional<CompletionShare> first(std::move(queues->reserve(80).value()));
  std::optional<CompletionShare> second(std::move(queues->reserve(80).value()));
  ASSERT_NE(first->queue(), second->queue());
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = first->queue();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {1, 1, 1, 1, 0};
  ibv_qp* const pair = verbs.createQueuePair(end.domain, &wanted);
  ibv_qp_attr broken{};
  broken.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(verbs.modifyQueuePair(pair, &broken, IBV_QP_STATE), 0);
  queues->requestNotification();
  ibv_recv_wr request{}, *bad = nullptr;  // flushed at once
  ASSERT_EQ(ibv_post_recv(pair, &request, &bad), 0);
  const auto readable = [&] {
    pollfd fd{queues->fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  ASSERT_TRUE(eventually(readable));
  second.reset();
  EXPECT_TRUE(readable());
  std::deque<ibv_wc> completions;
  EXPECT_FALSE(queues->take(&completions));
  EXPECT_EQ(completions.size(), 1u);
  EXPECT_EQ(verbs.destroyQueuePair(pair), 0);
  first.reset();
  queues.reset();
}

TEST_F(RdmaManyPeers, OneQueueGoesWhileOthersAreBusy_NothingOfTheirsIsLost) {
  limit([](auto& device) { device.maxCompletions = kSmallQueue; });
  open(rdmaConfig("soft0"), rdmaConfig("soft1"), 6);
  const std::vector<std::byte> data = patterned(3'000'000, 1);
  std::vector<std::vector<std::byte>> in(6, std::vector<std::byte>(data.size()));
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(b->receive(1, 1, in[i], i).ok());
    ASSERT_TRUE(a->send(1, 1, data, i).ok());
  }
  a->close(true, 2);  // both of the second queue, in the middle
  a->close(true, 3);
  for (const std::size_t i : {0u, 1u, 4u, 5u}) {
    ASSERT_TRUE(b->waitReceived(1, i));
    ASSERT_TRUE(a->waitSent(1, i));
    EXPECT_EQ(in[i], data);
  }
  ASSERT_TRUE(b->waitState(ChannelState::kFailed, 2));
  ASSERT_TRUE(b->waitState(ChannelState::kFailed, 3));
  EXPECT_EQ(rnic.liveObjects().completionQueues, 4u);
}

TEST_F(RdmaManyPeers, DriverResizesNoCompletionQueue_AnotherServesFurtherPeers) {
  limit([](auto& device) { device.resizesCompletionQueues = false; });
  constexpr std::size_t kChannels = 8;
  open(rdmaConfig("soft0"), rdmaConfig("soft1"), kChannels);
  EXPECT_EQ(rnic.liveObjects().completionQueues, 4u);
  const std::vector<std::byte> data = patterned(100'000, 1);
  std::vector<std::byte> in(data.size());
  for (std::size_t channel = 0; channel < kChannels; ++channel) {
    ASSERT_TRUE(b->receive(1, 1, in, channel).ok());
    ASSERT_TRUE(a->send(1, 1, data, channel).ok());
    ASSERT_TRUE(b->waitReceived(1, channel));
    EXPECT_EQ(in, data);
  }
}

TEST_F(RdmaManyPeers, DeviceHasNoMoreCompletionQueues_ErrorNamesTheLimit) {
  limit([](auto& device) {
    device.maxCompletions = kSmallQueue;
    device.maxCompletionQueues = 3;
  });
  std::size_t opened = 0;
  const Error refusal = openUntilRefused(&opened);
  EXPECT_EQ(opened, 6u);
  EXPECT_EQ(refusal.code, ErrorCode::kExhausted);
  EXPECT_TRUE(mentions(refusal, "3 completion queues")) << refusal.message;
  EXPECT_TRUE(mentions(refusal, "GLOO_BYPASS_RDMA_CREDITS")) << refusal.message;
}

TEST_F(RdmaManyPeers, CompletionQueueTooSmallForOneConnection_ErrorNamesBoth) {
  limit([](auto& device) { device.maxCompletions = 100; });
  std::size_t opened = 0;
  const Error refusal = openUntilRefused(&opened);
  EXPECT_EQ(opened, 0u);
  EXPECT_EQ(refusal.code, ErrorCode::kExhausted);
  EXPECT_TRUE(mentions(refusal, "100 completions")) << refusal.message;
  EXPECT_TRUE(mentions(refusal, "GLOO_BYPASS_RDMA_CREDITS")) << refusal.message;
}

TEST_F(RdmaManyPeers, DeviceHasNoMoreQueuePairs_ErrorNamesTheLimitAndNothingStays) {
  limit([](auto& device) { device.maxQueuePairs = 9; });
  std::size_t opened = 0;
  const Error refusal = openUntilRefused(&opened);
  EXPECT_EQ(opened, 4u);
  EXPECT_EQ(refusal.code, ErrorCode::kExhausted);
  EXPECT_TRUE(mentions(refusal, "9 queue pairs")) << refusal.message;
  EXPECT_TRUE(eventually([&] { return rnic.liveObjects().queuePairs == 0; }));
}

TEST_F(RdmaManyPeers, MoreCreditsThanAQueuePairHolds_PeerIsGivenThatMany) {
  limit([](auto& device) { device.maxQueuePairRequests = 20; });
  open();
  auto channel = decodeChannelAddress(a->address());
  ASSERT_TRUE(channel.ok());
  const auto address = decodeRdmaAddress(channel.value().portAddress);
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address.value().credits, 20u);
  const std::vector<std::byte> data = patterned(1000, 1);
  std::vector<std::byte> in(1000);
  for (OperationToken token = 1; token <= 100; ++token) {
    ASSERT_TRUE(b->receive(token, 1, in).ok());
    ASSERT_TRUE(a->send(token, 1, data).ok());
  }
  ASSERT_TRUE(b->waitReceived(100));
  EXPECT_EQ(rnic.counters().rnrNaks, 0u);
}

// A connection that fails may take receives with it, in the middle of a message.
TEST_F(RdmaManyPeers, FailedConnections_GiveTheirReceivesBack) {
  a = std::make_unique<RdmaEnd>(rdmaConfig("soft0"));
  b = std::make_unique<RdmaEnd>(rdmaConfig("soft1"));
  const std::vector<std::byte> data = patterned(30'000, 1);
  std::uint64_t registered = 0;
  for (int i = 0; i < 300; ++i) {
    addChannel();
    if (HasFatalFailure()) FAIL() << "after " << i;
    for (OperationToken token = 1; token < 5; ++token) ASSERT_TRUE(a->send(token, 1, data).ok());
    b->close(true);
    ASSERT_TRUE(a->waitState(ChannelState::kFailed));
    a->close(true);
    a->channels.clear();
    b->channels.clear();
    ASSERT_TRUE(eventually([&] { return rnic.liveObjects().queuePairs == 0; })) << i;
    if (i == 20) registered = rnic.counters().registeredBytes;
  }
  EXPECT_EQ(rnic.counters().registeredBytes, registered);
}

// A new process each time, as the survivor sees it; it ends in good order, or aborts, its adapter silent or not.
TEST_F(RdmaManyPeers, PeerReplacedAThousandTimes_NothingStays) {
  constexpr int kPeers = 1000, kWarm = 30;
  TransportConfig forgetful = rdmaConfig("soft0"), others = rdmaConfig("soft1");
  forgetful.rdma.registrationCacheBytes = others.rdma.registrationCacheBytes = 0;
  a = std::make_unique<RdmaEnd>(forgetful);
  Held warm;
  for (int peer = 1; peer <= kPeers; ++peer) {
    b = std::make_unique<RdmaEnd>(others);
    addChannel();
    if (HasFatalFailure()) FAIL() << "after " << peer;
    exchange(peer % 5 == 0 ? 100'000 : 100, 1);
    if (peer % 3 == 1) rnic.killContext(b->context);
    b->close(/*abort=*/peer % 3 != 0);
    b.reset();
    ASSERT_TRUE(a->waitState(peer % 3 == 0 ? ChannelState::kPeerClosed : ChannelState::kFailed)) << peer;
    a->close(true);
    a->channels.clear();
    forgetNoted();
    ASSERT_TRUE(eventually([&] { return rnic.liveObjects().queuePairs == 0; })) << peer;
    if (peer == kWarm) warm = held();
  }
  expectNoMore(held(), warm);
}

TEST_F(RdmaManyPeers, GroupsMadeAgainThreeHundredTimes_NothingStays) {
  constexpr int kGroups = 300, kWarm = 20;
  limit([](auto& device) { device.maxCompletions = kSmallQueue; });
  a = std::make_unique<RdmaEnd>(rdmaConfig("soft0"));
  b = std::make_unique<RdmaEnd>(rdmaConfig("soft1"));
  Held warm;
  for (int group = 1; group <= kGroups; ++group) {
    for (int channel = 0; channel < 3; ++channel) addChannel();  // one more than a completion queue holds
    if (HasFatalFailure()) FAIL() << "after " << group;
    exchange(100, 1, 0);
    exchange(10'000, 1, 2);
    closeAll();
    if (HasFatalFailure()) FAIL() << "after " << group;
    forgetNoted();
    if (group == kWarm) warm = held();
  }
  expectNoMore(held(), warm);
}

}  // namespace
}  // namespace gloo_bypass::test
