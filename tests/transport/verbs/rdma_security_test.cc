// Channels with keys: who gets in, and what a peer may read, and how long.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "tests/support/temporary_folder.h"
#include "tests/transport/verbs/hostile_peer.h"
#include "transport/security/self_check.h"
#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr std::size_t kLarge = 300'000;

TransportConfig keyed(const std::string& devices, const std::string& job = "") {
  TransportConfig config = rdmaConfig(devices);
  config.security = Security::kEncrypt;
  config.rdma.trustedNetwork = true;
  config.job = job;
  return config;
}

std::shared_ptr<const security::Credentials> credentials() {
  EXPECT_TRUE(security::checkLibraries().ok());
  return std::make_shared<security::Credentials>();
}

class RdmaSecurity : public RdmaChannelTest {
 protected:
  // What both ends' connect() say.
  std::vector<std::string> refusals(const TransportConfig& forA, const TransportConfig& forB) {
    a = std::make_unique<RdmaEnd>(forA);
    b = std::make_unique<RdmaEnd>(forB);
    a->open({.localRank = 0, .peerRank = 1});
    b->open({.localRank = 1, .peerRank = 0});
    std::vector<std::string> said;
    for (const Status& status : {a->connect(b->address()), b->connect(a->address())}) {
      said.push_back(status.ok() ? "" : status.error().message);
    }
    return said;
  }
  std::string refusalOf(const TransportConfig& config) {
    const auto made = verbs::makeVerbsTransport(notedVerbs(), config);
    return made.ok() ? "" : made.error().message;
  }
  std::uint64_t executed(ibv_wr_opcode opcode) { return rnic.counters().operations[opcode]; }

  std::vector<std::byte> data = patterned(kLarge, 1);
};

TEST_F(RdmaSecurity, NetworkIsNotTrusted_NoTransportIsMade) {
  TransportConfig config = keyed("soft0");
  config.rdma.trustedNetwork = false;
  const std::string why = refusalOf(config);
  EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_SECURITY"));
  EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_RDMA_TRUSTED_NETWORK"));
  EXPECT_THAT(why, Not(HasSubstr("\n")));
  config.security = Security::kOff;
  EXPECT_EQ(refusalOf(config), "");
}

TEST_F(RdmaSecurity, DeviceWithoutWindows_IsRefusedByName) {
  auto devices = defaultSoftwareDevices();
  devices[0].maxWindows = 0;
  rnic.setDevices(devices);
  EXPECT_THAT(refusalOf(keyed("soft0")), HasSubstr("soft0 has no memory windows"));
  EXPECT_EQ(refusalOf(rdmaConfig("soft0")), "");
}

TEST_F(RdmaSecurity, OneEndHasKeys_BothFailNamingTheSetting) {
  EXPECT_THAT(refusals(keyed("soft0"), rdmaConfig("soft1")), Each(HasSubstr("GLOO_BYPASS_SECURITY is")));
}

TEST_F(RdmaSecurity, OtherKeysOrJobs_BothFailAndShowNothing) {
  const TemporaryFolder folder;
  const auto withKey = [&](const std::string& device, const std::string& digits) {
    TransportConfig config = keyed(device);
    config.keyFile = folder / device;
    std::ofstream(config.keyFile) << digits;
    std::filesystem::permissions(config.keyFile, std::filesystem::perms::owner_read);
    return config;
  };
  const TransportConfig one = withKey("soft0", std::string(64, 'a')), other = withKey("soft1", std::string(64, 'b'));
  for (const std::string& why : refusals(one, other)) {
    EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_KEY_FILE"));
    EXPECT_THAT(why, Not(HasSubstr("aaaa")));
    EXPECT_THAT(why, Not(HasSubstr("bbbb")));
  }
  EXPECT_THAT(refusals(one, keyed("soft1")), Each(HasSubstr("GLOO_BYPASS_KEY_FILE is set")));
  EXPECT_THAT(refusals(keyed("soft0", "red"), keyed("soft1", "blue")), Each(HasSubstr("GLOO_BYPASS_JOB")));
}

TEST_F(RdmaSecurity, AddressOfAnotherKindOfPeer_TheNextOneCanStillBeTried) {
  EXPECT_THAT(refusals(keyed("soft0"), keyed("soft0,soft1")), Each(HasSubstr("GLOO_BYPASS_RDMA_DEVICES")));
  b = std::make_unique<RdmaEnd>(keyed("soft1"));
  b->open({.localRank = 1, .peerRank = 0});
  const Status second = a->connect(b->address());
  EXPECT_TRUE(second.ok()) << second.error().message;
}

TEST_F(RdmaSecurity, MessagesOfAllSizes_ArriveOverOneRailAndTwo) {
  for (const auto& [forA, forB] :
       {std::pair(keyed("soft0"), keyed("soft1")), std::pair(keyed("soft0,soft1"), keyed("soft1,soft0"))}) {
    open(forA, forB);
    for (std::uint64_t i = 0; i < 40; ++i) exchange(i % 4 == 3 ? 100 : i * kLarge / 10, i + 1);
    EXPECT_EQ(executed(IBV_WR_BIND_MW), executed(IBV_WR_LOCAL_INV));
    EXPECT_GT(executed(IBV_WR_BIND_MW), 40u);
    destroy();
  }
}

TEST_F(RdmaSecurity, ManySendsAtOnce_FewWindowsAreEnough) {
  auto devices = defaultSoftwareDevices();
  for (auto& device : devices) device.maxWindows = 2;
  rnic.setDevices(devices);
  open(keyed("soft0"), keyed("soft1"));
  constexpr std::size_t kMessages = 100;
  std::vector<std::vector<std::byte>> in(kMessages, std::vector<std::byte>(kLarge / 4));
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(a->send(i, 7, std::span(data).subspan(i, in[i].size())).ok());
  }
  for (std::size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(b->receive(i, 7, in[i]).ok());
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(b->waitReceived(i)) << i;
    ASSERT_TRUE(a->waitSent(i)) << i;
    EXPECT_TRUE(std::ranges::equal(in[i], std::span(data).subspan(i, in[i].size()))) << i;
  }
}

TEST_F(RdmaSecurity, AnotherChannelHoldsTheLastWindow_TheSendWaitsForIt) {
  auto devices = defaultSoftwareDevices();
  devices[0].maxWindows = 1;
  rnic.setDevices(devices);
  open(keyed("soft0"), keyed("soft1"), 2);
  std::vector<std::byte> first(kLarge), second(kLarge);
  ASSERT_TRUE(a->send(1, 1, data, 0).ok());
  ASSERT_TRUE(b->wait([&] { return !(*b)[0].record.announced.empty(); }));
  ASSERT_TRUE(b->receive(2, 2, second, 1).ok());
  ASSERT_TRUE(a->send(2, 2, data, 1).ok());
  exchange(100, 3, 0);  // a turn later it still waits
  EXPECT_EQ((*a)[1].record.states, std::vector{ChannelState::kConnected});
  EXPECT_EQ((*b)[1].record.timesReceived(2), 0u);
  ASSERT_TRUE(b->receive(1, 1, first, 0).ok());
  ASSERT_TRUE(b->waitReceived(2, 1));
  ASSERT_TRUE(a->waitSent(2, 1));
  EXPECT_EQ(first, data);
  EXPECT_EQ(second, data);
}

TEST_F(RdmaSecurity, LastMessageThatMayBeAnnounced_Arrives) {
  TransportConfig noWindow = keyed("soft1");
  noWindow.session.shortPathEagerBytes = 0;  // empty messages are announced, too
  open(keyed("soft0"), noWindow);
  std::vector<std::byte> in(kLarge);
  ASSERT_TRUE(b->receive(1, 1, in).ok());
  a->exclusive([&] {
    for (OperationToken token = 2; token <= verbs::kMaxAnnouncedMessages; ++token) {
      EXPECT_TRUE((*a)[0].handle->postSend({.token = token, .key = {MessageKind::kUnbound, 2}}).ok());
    }
  });
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(b->waitReceived(1));
  EXPECT_EQ(in, data);
}

TEST_F(RdmaSecurity, NoWindowAtAll_FailsTheChannelInOneLine) {
  open(keyed("soft0"), keyed("soft1"));
  auto device = rnic.device("soft0");
  device.maxWindows = 0;
  rnic.changeDevice("soft0", device);
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_THAT(a->error().message, HasSubstr("no memory window"));
  EXPECT_EQ(a->error().code, ErrorCode::kExhausted);
}

TEST_F(RdmaSecurity, BindIsFlushed_ErrorBlamesNoInterface) {
  open(keyed("soft0"), keyed("soft1"));
  rnic.failOperation({.opcode = IBV_WR_BIND_MW, .status = IBV_WC_WR_FLUSH_ERR});
  ASSERT_TRUE(a->send(1, 1, data).ok());
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_THAT(a->error().message, HasSubstr("the queue pair that the peer reads from is in error"));
  EXPECT_THAT(a->error().message, Not(HasSubstr("interface")));
}

TEST_F(RdmaSecurity, MemoryThatCannotBeWritten_IsSentWithoutAWindow) {
  open(keyed("soft0"), keyed("soft1"));
  void* const mapped = ::mmap(nullptr, kLarge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::vector<std::byte> in = data;
  ASSERT_TRUE(b->receive(1, 2, in).ok());
  ASSERT_TRUE(a->send(1, 2, {static_cast<const std::byte*>(mapped), kLarge}).ok());
  ASSERT_TRUE(a->waitSent(1));
  EXPECT_EQ(in, std::vector<std::byte>(kLarge));
  EXPECT_EQ(executed(IBV_WR_BIND_MW), 0u);
  ::munmap(mapped, kLarge);
}

TEST_F(RdmaSecurity, SendIsCancelledWhileItsWindowIsBound_LeavesNothing) {
  open(keyed("soft0"), keyed("soft1"));
  rnic.setPaused(true);
  ASSERT_TRUE(a->send(1, 1, data).ok());
  a->exclusive([&] {
    EXPECT_EQ(executed(IBV_WR_BIND_MW), 0u);
    rnic.setPaused(false);
    EXPECT_TRUE((*a)[0].handle->cancelSend(1));
    EXPECT_EQ(executed(IBV_WR_BIND_MW), 1u) << "it was under way";
  });
  exchange(kLarge, 2);
  EXPECT_EQ((*a)[0].record.sent.count(1), 0u);
  EXPECT_TRUE((*b)[0].record.announced.empty() || (*b)[0].record.announced.front() != 1u);
}

TEST_F(RdmaSecurity, ChannelEndsWithBoundWindows_EverythingIsGivenBack) {
  for (const bool abort : {true, false}) {
    open(keyed("soft0"), keyed("soft1"));
    ASSERT_TRUE(a->send(1, 1, data).ok());
    ASSERT_TRUE(b->wait([&] { return !(*b)[0].record.announced.empty(); }));
    a->close(abort);
    ASSERT_TRUE(b->wait(
        [&] { return (*b)[0].record.has(ChannelState::kFailed) || (*b)[0].record.has(ChannelState::kPeerClosed); }));
    destroy();  // which looks for what is left
  }
}

// A peer that has the keys, and wants more than its message.
class RdmaReader : public RdmaSecurity {
 protected:
  // Its own channel to a victim that sends `data` to it.
  void start(bool withKeys) {
    a = std::make_unique<RdmaEnd>(withKeys ? keyed("soft0") : rdmaConfig("soft0"));
    a->open({.localRank = 0, .peerRank = 1});
    peer = std::make_unique<HostilePeer>(*a, 64, withKeys ? credentials() : nullptr);
    ASSERT_TRUE(a->send(1, 1, data).ok());
    message = peer->announced();
  }
  void TearDown() override {
    peer.reset();
    other.reset();
    RdmaSecurity::TearDown();
  }
  ibv_wc_status read(HostilePeer& by, std::uint64_t offset = 0, std::uint32_t length = 1000) {
    return by.read(message.address + offset, message.remoteKeys[0], length);
  }

  std::unique_ptr<HostilePeer> peer, other;
  verbs::RdmaFrame message;
};

TEST_F(RdmaReader, ConfirmedMessage_IsNotReadAgain) {
  for (const bool withKeys : {false, true}) {
    start(withKeys);
    EXPECT_EQ(read(*peer), IBV_WC_SUCCESS);
    peer->say(verbs::FrameType::kDone, [&](verbs::RdmaFrame& frame) { frame.id = message.id; });
    ASSERT_TRUE(a->waitSent(1));
    EXPECT_EQ(read(*peer), withKeys ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    peer.reset();
    destroy();
  }
}

TEST_F(RdmaReader, BytesBesideTheMessage_AreNotRead) {
  for (const auto& [offset, length] : {std::pair<std::uint64_t, std::uint32_t>(0, kLarge + 1), {kLarge, 1}}) {
    start(true);
    EXPECT_EQ(read(*peer, offset, length), IBV_WC_REM_ACCESS_ERR);
    peer.reset();
    destroy();
  }
}

TEST_F(RdmaReader, MessageToAnotherPeer_IsNotRead) {
  for (const bool withKeys : {false, true}) {
    start(withKeys);
    a->open({.localRank = 0, .peerRank = 1});
    other = std::make_unique<HostilePeer>(*a, 64, withKeys ? credentials() : nullptr, 1);
    EXPECT_EQ(read(*other), withKeys ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    peer.reset();
    other.reset();
    destroy();
  }
}

// The goodbye comes before the window is invalidated.
TEST_F(RdmaReader, ConfirmedAndThenGoodbye_TheSendIsComplete) {
  start(true);
  a->exclusive([&] {  // both frames arrive before the next turn
    peer->say(verbs::FrameType::kDone, [&](verbs::RdmaFrame& frame) { frame.id = message.id; });
    peer->say(verbs::FrameType::kBye);
    EXPECT_TRUE(eventually([&] { return rnic.counters().receives >= 3; }));
  });
  ASSERT_TRUE(a->waitSent(1));
  EXPECT_TRUE(a->waitState(ChannelState::kPeerClosed));
}

// Two sends are confirmed when the goodbye comes, a third is not.
TEST_F(RdmaReader, SendsEndWithTheChannel_TheirObserverCancelsAndCloses) {
  for (const bool closes : {false, true}) {
    start(true);
    std::vector<std::uint64_t> ids{message.id};
    for (const OperationToken token : {2, 3}) {
      ASSERT_TRUE(a->send(token, 1, data).ok());
      ids.push_back(peer->announced().id);
    }
    auto& [record, handle] = (*a)[0];
    std::optional<Duration> took;
    record.onSent = [&](OperationToken token) {
      const TimePoint began = monotonicNow();
      for (const OperationToken other : {1, 2, 3}) EXPECT_FALSE(other != token && handle->cancelSend(other));
      EXPECT_EQ(handle->state(), ChannelState::kPeerClosed);
      if (closes) handle->close(false);
      took = monotonicNow() - began;
    };
    const std::uint64_t before = rnic.counters().receives;
    a->exclusive([&] {  // all arrive before the next turn
      for (const std::uint64_t id : {ids[0], ids[1]}) {
        peer->say(verbs::FrameType::kDone, [&](verbs::RdmaFrame& frame) { frame.id = id; });
      }
      peer->say(verbs::FrameType::kBye);
      EXPECT_TRUE(eventually([&] { return rnic.counters().receives >= before + 3; }));
    });
    ASSERT_TRUE(a->wait([&] { return took.has_value(); }));
    EXPECT_LT(*took, std::chrono::seconds(1));
    EXPECT_EQ(record.sent.size(), 1u);
    const auto connected = ChannelState::kConnected, closed = ChannelState::kPeerClosed;
    EXPECT_EQ(record.states, closes ? std::vector{connected} : std::vector({connected, closed}));
    EXPECT_EQ(handle->state(), closes ? ChannelState::kClosed : closed);
    peer.reset();
    destroy();
  }
}

TEST_F(RdmaReader, SendIsCancelledWhileItsWindowIsInvalidated_TheCallWaitsForIt) {
  start(true);
  std::vector<std::byte> marker(100);
  ASSERT_TRUE(a->receive(9, 9, marker).ok());
  const std::uint64_t before = rnic.counters().receives;
  a->exclusive([&] {  // both frames arrive before the next turn, and nothing after them is executed
    peer->say(verbs::FrameType::kDone, [&](verbs::RdmaFrame& frame) { frame.id = message.id; });
    peer->say(verbs::FrameType::kEager, [](verbs::RdmaFrame& frame) { frame.key.tag = 9; }, marker.size());
    EXPECT_TRUE(eventually([&] { return rnic.counters().receives >= before + 2; }));
    rnic.setPaused(true);
  });
  ASSERT_TRUE(a->waitReceived(9));  // so the confirmation has been handled
  a->exclusive([&] {
    EXPECT_EQ(executed(IBV_WR_LOCAL_INV), 0u);
    rnic.setPaused(false);
    EXPECT_FALSE((*a)[0].handle->cancelSend(1));
    EXPECT_EQ(executed(IBV_WR_LOCAL_INV), 1u) << "it was under way";
    EXPECT_EQ((*a)[0].handle->state(), ChannelState::kConnected);
  });
  EXPECT_EQ(read(*peer), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ((*a)[0].record.sent.count(1), 0u);
}

TEST_F(RdmaReader, ConfirmationOfAMessageThatIsOver_FailsTheChannel) {
  start(true);
  const auto confirm = [&] {
    peer->say(verbs::FrameType::kDone, [&](verbs::RdmaFrame& frame) { frame.id = message.id; });
  };
  confirm();
  confirm();
  ASSERT_TRUE(a->waitState(ChannelState::kFailed));
  EXPECT_EQ(a->error().code, ErrorCode::kPeerViolatedProtocol);
}

}  // namespace
}  // namespace gloo_bypass::test
