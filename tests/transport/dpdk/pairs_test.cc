// Memory within a host and RDMA between hosts as one transport: which pair gets which, that one sleep waits for both,
// and that each may end without the other. A host is a memif directory and an adapter in software.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/transport/verbs/rdma_end.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/dpdk_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
constexpr std::size_t kLarge = 3'000'000;

class Pairs : public ::testing::Test {
 protected:
  void SetUp() override {
    rnic.reset();
    forgetNoted();
  }
  void TearDown() override {
    for (auto* end : {&a, &neighbour, &remote}) end->reset();
    EXPECT_EQ(rnic.liveObjects().describe(), "nothing");
    rnic.reset();
  }
  TransportConfig onHost(int host) const {
    TransportConfig config = rdmaConfig(host == 0 ? "soft0" : "soft1");
    config.memifDirectory = (host == 0 ? first : second).path;
    return config;
  }
  static std::unique_ptr<RdmaEnd> start(const TransportConfig& config) {
    auto network = verbs::makePolledVerbsTransport(notedVerbs(), config);
    EXPECT_TRUE(network.ok()) << network.error().message;
    auto made = dpdk::makeMemoryBeside(config, std::move(network).value());
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::make_unique<RdmaEnd>(std::move(made).value());
  }
  // Two ranks on the first host, one on the second. a's channel 0 leads to its neighbour, 1 to the remote rank.
  void startAll() {
    a = start(onHost(0));
    neighbour = start(onHost(0));
    remote = start(onHost(1));
    join(*neighbour, 0);
    join(*remote, 1);
  }
  // a's channel `index` to the only one of `peer`.
  void join(RdmaEnd& peer, std::size_t index) {
    a->open({.localRank = 0, .peerRank = static_cast<int>(index) + 1});
    peer.open({.localRank = static_cast<int>(index) + 1, .peerRank = 0});
    connect(peer, index);
  }
  void connect(RdmaEnd& peer, std::size_t index) {
    const Status there = a->connect(peer.address(), index), back = peer.connect(a->address(index));
    ASSERT_TRUE(there.ok()) << there.error().message;
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_TRUE(a->waitState(ChannelState::kConnected, index));
    ASSERT_TRUE(peer.waitState(ChannelState::kConnected));
  }
  void exchange(RdmaEnd& peer, std::size_t index, std::size_t size, std::uint64_t tag) {
    const auto out = patterned(size, static_cast<int>(tag)), answer = patterned(size, static_cast<int>(tag) + 1);
    std::vector<std::byte> there(size), here(size);
    ASSERT_TRUE(a->receive(tag, tag, here, index).ok());
    ASSERT_TRUE(peer.receive(tag, tag, there).ok());
    ASSERT_TRUE(a->send(tag, tag, out, index).ok());
    ASSERT_TRUE(peer.send(tag, tag, answer).ok());
    ASSERT_TRUE(peer.waitReceived(tag));
    ASSERT_TRUE(a->waitReceived(tag, index));
    ASSERT_TRUE(peer.waitSent(tag));
    ASSERT_TRUE(a->waitSent(tag, index));
    EXPECT_EQ(there, out);
    EXPECT_EQ(here, answer);
  }
  std::uint64_t bytesOfAdapter() const { return rnic.counters().bytes; }

  SoftwareRnic& rnic = SoftwareRnic::instance();
  const TemporaryFolder first, second;
  std::unique_ptr<RdmaEnd> a, neighbour, remote;
};

TEST_F(Pairs, SameHost_NoByteOfTheAdapter_OtherHost_AllOfThem) {
  startAll();
  const std::uint64_t before = bytesOfAdapter();
  for (std::size_t size : {0u, 1u, 32'769u, 3'000'000u}) exchange(*neighbour, 0, size, 10 + size);
  EXPECT_EQ(bytesOfAdapter(), before);
  for (std::size_t size : {0u, 1u, 32'769u, 3'000'000u}) exchange(*remote, 1, size, 10 + size);
  EXPECT_GE(bytesOfAdapter() - before, 2 * (1 + 32'769 + 3'000'000u));
}

TEST_F(Pairs, OneRankCannotShareMemory_ItsNeighbourUsesTheAdapterToo) {
  TransportConfig without = onHost(0);
  without.memifDirectory = "/proc/nowhere";
  without.memifDirectoryIsDefault = true;
  a = start(without);
  neighbour = start(onHost(0));
  EXPECT_THAT(a->transport->describe(), HasSubstr("no shared memory (memif directory '/proc/nowhere'"));
  ::testing::internal::CaptureStderr();
  join(*neighbour, 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 2) << said;
  EXPECT_THAT(said, HasSubstr("of its own host over the network: memif directory '/proc/nowhere'"));
  EXPECT_THAT(said, HasSubstr("is reached over the network: memif directory '/proc/nowhere'"));
  const std::uint64_t before = bytesOfAdapter();
  for (std::size_t size : {0u, 1u, 32'769u, 3'000'000u}) exchange(*neighbour, 0, size, 10 + size);
  EXPECT_GE(bytesOfAdapter() - before, 2 * (1 + 32'769 + 3'000'000u));
  TransportConfig named = without;
  named.memifDirectoryIsDefault = false;
  auto network = verbs::makePolledVerbsTransport(notedVerbs(), named);
  ASSERT_TRUE(network.ok());
  const auto refused = dpdk::makeMemoryBeside(named, std::move(network).value());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("/proc/nowhere"));
}

TEST_F(Pairs, Report_HasBothKindsAndEachChannelOnce) {
  startAll();
  exchange(*neighbour, 0, kLarge, 1);
  const auto withinHost = a->counters();
  exchange(*remote, 1, kLarge, 2);
  const auto counters = a->counters();
  EXPECT_THAT(a->transport->describe(), HasSubstr("memif in " + first.path));
  EXPECT_THAT(a->transport->describe(), HasSubstr("RDMA device soft0"));
  EXPECT_LT(withinHost.at("port").at("rdma_bytes_sent"), kLarge / 100);
  EXPECT_GE(withinHost.at("port").at("bytes_sent"), kLarge);
  EXPECT_GE(counters.at("port").at("rdma_bytes_received"), kLarge);
  EXPECT_GE(counters.at("messages_sent"), 2u);
  const auto& channels = counters.at("open_channels");
  ASSERT_EQ(channels.size(), 2u) << counters.dump(1);
  EXPECT_NE(channels[0].at("channel"), channels[1].at("channel"));
  for (const auto& channel : channels) {
    EXPECT_GE(channel.at("payload_bytes_sent"), kLarge);
    EXPECT_FALSE(channel.at("peer").get<std::string>().empty());
  }
}

TEST_F(Pairs, PostedBeforeConnect_ArrivesOverEither_AndWhatWasCancelledDoesNot) {
  a = start(onHost(0));
  std::vector<std::byte> in(kLarge), untouched(10), never(10);
  const auto out = patterned(kLarge, 3);
  for (std::size_t index : {0u, 1u}) {
    auto& peer = index == 0 ? neighbour : remote;
    peer = start(onHost(static_cast<int>(index)));
    a->open();
    peer->open();
    std::ranges::fill(in, std::byte{});
    ASSERT_TRUE(a->receive(1, 1, untouched, index).ok());
    ASSERT_TRUE(a->receive(2, 1, in, index).ok());
    ASSERT_TRUE(peer->send(3, 1, never).ok());
    ASSERT_TRUE(peer->send(4, 1, out).ok());
    a->exclusive([&] {
      EXPECT_TRUE((*a)[index].handle->cancelReceive(1));
      EXPECT_FALSE((*a)[index].handle->cancelReceive(1));
      EXPECT_FALSE((*a)[index].handle->cancelSend(2));
    });
    peer->exclusive([&] { EXPECT_TRUE((*peer)[0].handle->cancelSend(3)); });
    connect(*peer, index);
    ASSERT_TRUE(a->waitReceived(2, index));
    ASSERT_TRUE(peer->waitSent(4));
    EXPECT_EQ(in, out);
    EXPECT_EQ((*a)[index].record.timesReceived(1), 0u);
    EXPECT_FALSE((*peer)[0].record.sent.contains(3));
  }
}

// A lost wake-up would be noticed after a second (the engine's bound).
TEST_F(Pairs, AsleepWithPairsOfBothKinds_EitherWakes) {
  startAll();
  std::array<int, 2> late{};  // of five rounds: a machine may hold a thread up that long too
  for (std::uint64_t round = 1; round <= 5; ++round) {
    for (std::size_t index : {0u, 1u}) {
      RdmaEnd& peer = index == 0 ? *neighbour : *remote;
      std::vector<std::byte> in(100);
      const auto out = patterned(100, static_cast<int>(round));
      ASSERT_TRUE(a->receive(round, round, in, index).ok());
      std::atomic<TimePoint> sentAt{};
      std::thread sender([&] {
        ::usleep(30'000);  // longer than the driver spins: asleep by then
        sentAt = monotonicNow();
        EXPECT_TRUE(peer.send(round, round, out).ok());
      });
      EXPECT_TRUE(a->waitReceived(round, index));
      const TimePoint receivedAt = monotonicNow();
      sender.join();
      late[index] += receivedAt - sentAt.load() >= Duration(milliseconds(900));
    }
  }
  EXPECT_THAT(late, ::testing::Each(::testing::Le(1)));
}

// Nothing but the first pair over the network wakes it: no message comes over memory.
TEST_F(Pairs, FirstPairOverTheNetworkWhileAsleep_IsServed) {
  bool prompt = false;
  for (int attempt = 0; attempt < 5 && !prompt; ++attempt) {  // a machine may hold a thread up that long too
    for (auto* end : {&a, &neighbour, &remote}) end->reset();
    a = start(onHost(0));
    neighbour = start(onHost(0));
    remote = start(onHost(1));
    join(*neighbour, 0);
    std::vector<std::byte> in(100);
    std::atomic<bool> arrived = false;
    a->open();
    remote->open();
    ASSERT_TRUE(a->receive(7, 7, in, 1).ok());
    std::thread waiter([&] { arrived = a->waitReceived(7, 1); });
    ::usleep(30'000);
    const auto out = patterned(100, 1);
    const TimePoint began = monotonicNow();
    EXPECT_TRUE(a->connect(remote->address(), 1).ok());
    EXPECT_TRUE(remote->connect(a->address(1)).ok());
    EXPECT_TRUE(remote->waitState(ChannelState::kConnected));
    EXPECT_TRUE(remote->send(7, 7, out).ok());
    waiter.join();
    EXPECT_TRUE(arrived);
    prompt = monotonicNow() - began < Duration(milliseconds(900));
    EXPECT_EQ(in, out);
  }
  EXPECT_TRUE(prompt);
}

TEST_F(Pairs, Abort_OfEitherKind_FailsThatPairOnly) {
  for (const bool ofMemory : {true, false}) {
    startAll();
    RdmaEnd& gone = ofMemory ? *neighbour : *remote;
    RdmaEnd& stays = ofMemory ? *remote : *neighbour;
    gone.close(true);
    ASSERT_TRUE(a->waitState(ChannelState::kFailed, ofMemory ? 0 : 1));
    EXPECT_FALSE(a->error(ofMemory ? 0 : 1).message.empty());
    exchange(stays, ofMemory ? 1 : 0, kLarge, 9);
    for (auto* end : {&a, &neighbour, &remote}) end->reset();
  }
}

TEST_F(Pairs, DeviceRemoved_NetworkPairFailsNamingIt_MemoryPairGoesOn) {
  startAll();
  rnic.removeDevice("soft0");
  ASSERT_TRUE(a->waitState(ChannelState::kFailed, 1));
  EXPECT_THAT(a->error(1).message, HasSubstr("soft0"));
  exchange(*neighbour, 0, kLarge, 9);
}

TEST_F(Pairs, DeviceRemovedBeforeConnecting_MemoryConnectsAndTheNetworkSaysWhy) {
  startAll();
  // Two more pairs, not connected while the device goes.
  for (RdmaEnd* end : {a.get(), a.get(), neighbour.get(), remote.get()}) end->open();
  rnic.removeDevice("soft0");
  ASSERT_TRUE(a->waitState(ChannelState::kFailed, 1));
  EXPECT_TRUE((*a)[2].record.states.empty());
  EXPECT_TRUE(a->connect(neighbour->address(1), 2).ok());
  EXPECT_TRUE(neighbour->connect(a->address(2), 1).ok());
  EXPECT_TRUE(a->waitState(ChannelState::kConnected, 2));
  const Status refused = a->connect(remote->address(1), 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("soft0"));
}

TEST_F(Pairs, Closing_InAnyOrder_DeliversWhatWasSentAndLeavesNothing) {
  for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1}, {1, 0}}) {
    startAll();
    const auto out = patterned(1000, 4);
    std::vector<std::byte> atNeighbour(1000), atRemote(1000);
    ASSERT_TRUE(neighbour->receive(1, 1, atNeighbour).ok());
    ASSERT_TRUE(remote->receive(1, 1, atRemote).ok());
    for (const std::size_t index : order) {
      ASSERT_TRUE(a->send(1, 1, out, index).ok());
      a->close(false, index);
    }
    ASSERT_TRUE(neighbour->waitReceived(1));
    ASSERT_TRUE(remote->waitReceived(1));
    EXPECT_TRUE(neighbour->waitState(ChannelState::kPeerClosed));
    EXPECT_TRUE(remote->waitState(ChannelState::kPeerClosed));
    EXPECT_EQ(atNeighbour, out);
    EXPECT_EQ(atRemote, out);
    const auto after = a->receive(2, 2, atRemote);
    EXPECT_FALSE(after.ok());
    EXPECT_EQ(a->counters().at("messages_sent"), 2u);
    for (auto* end : {&a, &neighbour, &remote}) end->reset();
    EXPECT_EQ(rnic.liveObjects().describe(), "nothing");
  }
}

TEST_F(Pairs, ClosedBeforeConnect_LeavesNothingAndTakesNothing) {
  a = start(onHost(0));
  a->open();
  std::vector<std::byte> in(10);
  ASSERT_TRUE(a->receive(1, 1, in).ok());
  const auto address = a->address();
  a->close(false);
  EXPECT_FALSE(a->receive(2, 1, in).ok());
  EXPECT_FALSE(a->connect(address).ok());
  a->exclusive([&] {
    EXPECT_EQ((*a)[0].handle->state(), ChannelState::kClosed);
    EXPECT_FALSE((*a)[0].handle->cancelReceive(1));
  });
}

// Slots and a queue pair were held until the pair knew that it needs none.
TEST_F(Pairs, PairOverMemory_GivesItsQueuePairBack) {
  a = start(onHost(0));
  neighbour = start(onHost(0));
  const std::size_t before = rnic.liveObjects().queuePairs;
  join(*neighbour, 0);
  EXPECT_EQ(rnic.liveObjects().queuePairs, before);
}

TEST_F(Pairs, PeerOfAnotherLink_BothSidesSayWhatToSet) {
  TransportConfig plain = onHost(0);
  plain.interface = "127.0.0.1";
  auto port = dpdk::makeDpdkPort(plain);
  ASSERT_TRUE(port.ok()) << port.error().message;
  RdmaEnd other(makeDatagramTransport(plain, std::move(port).value()).value());
  a = start(onHost(0));
  a->open();
  other.open();
  const Status here = a->connect(other.address()), there = other.connect(a->address());
  ASSERT_FALSE(here.ok());
  ASSERT_FALSE(there.ok());
  EXPECT_THAT(here.error().message, HasSubstr("GLOO_BYPASS_NETWORK='rdma'"));
  EXPECT_THAT(there.error().message, HasSubstr("link mode auto with RDMA"));
  EXPECT_THAT(there.error().message, HasSubstr("GLOO_BYPASS_NETWORK"));
}

}  // namespace
}  // namespace gloo_bypass::test
