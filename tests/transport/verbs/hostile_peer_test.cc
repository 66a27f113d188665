// Whatever a peer sends, only its own channel fails.
#include "tests/transport/verbs/hostile_peer.h"

#include <functional>
#include <random>

namespace gloo_bypass::test {
using namespace verbs;
namespace {

class RdmaHostilePeer : public RdmaChannelTest {
 protected:
  // A channel that `attack` breaks; its user gets the error `error`.
  void attack(const std::function<void(HostilePeer&, RdmaEnd&)>& attack, std::uint32_t credits = 64) {
    TransportConfig config = rdmaConfig("soft0");
    config.rdma.timeoutExponent = 13;  // as the peer's
    RdmaEnd victim(config);
    victim.open({.localRank = 0, .peerRank = 1});
    {
      HostilePeer peer(victim, credits);
      attack(peer, victim);
      EXPECT_TRUE(victim.waitState(ChannelState::kFailed));
      error = victim.error();
    }
    EXPECT_TRUE(victim[0].record.received.empty());
    EXPECT_EQ(error.scope, ErrorScope::kSession);
    EXPECT_FALSE(error.message.empty());
  }
  // Sends up to `frames` frames, until the victim's channel fails. Not faster than the victim takes them: a peer that
  // finds no receive posted loses its own queue pair, and the victim would see silence instead of the attack.
  static void flood(HostilePeer& peer, RdmaEnd& victim, FrameType type, std::uint64_t frames, std::size_t payload = 0) {
    bool failed = false;
    for (std::uint64_t i = 0; i < frames && !failed; ++i) {
      peer.say(type, {}, payload);
      EXPECT_TRUE(victim.wait([&] {
        failed = victim[0].record.has(ChannelState::kFailed);
        return failed || victim[0].handle->counters().packetsReceived + 16 > i;
      }));
    }
  }

  Error error;
};

TEST_F(RdmaHostilePeer, FramesThatNoPeerSends_FailTheChannel) {
  using Attack = std::function<void(HostilePeer&, RdmaEnd&)>;
  const std::vector<Attack> attacks = {
      [](HostilePeer& p, RdmaEnd&) { p.send(std::vector<std::byte>(47)); },
      [](HostilePeer& p, RdmaEnd&) { p.send(patterned(48, 1)); },
      [](HostilePeer& p, RdmaEnd&) { p.send(patterned(8000, 1)); },
      [](HostilePeer& p, RdmaEnd&) { p.say(FrameType::kCredit, [](RdmaFrame& f) { ++f.session; }); },
      [](HostilePeer& p, RdmaEnd&) { p.say(FrameType::kDone, [](RdmaFrame& f) { f.id = 99; }); },
      [](HostilePeer& p, RdmaEnd&) { p.say(FrameType::kCredit, [](RdmaFrame& f) { f.slotsReturned = 1; }); },
      [](HostilePeer& p, RdmaEnd&) { p.say(FrameType::kCredit, [](RdmaFrame& f) { f.slotsReturned = 0xffffffff; }); },
      [](HostilePeer& p, RdmaEnd&) { p.say(FrameType::kCredit, [](RdmaFrame& f) { f.windowReturned = 1; }); },
      [](HostilePeer& p, RdmaEnd&) { p.say(FrameType::kAnnounce, [](RdmaFrame& f) { f.rails = 2; }); },
      [](HostilePeer& p, RdmaEnd&) { p.send(p.frame(FrameType::kEager, [](RdmaFrame& f) { f.length = 1; }, 0)); },
  };
  for (std::size_t i = 0; i < attacks.size(); ++i) {
    SCOPED_TRACE(i);
    attack(attacks[i]);
    EXPECT_EQ(error.code, ErrorCode::kPeerViolatedProtocol) << error.message;
  }
}

TEST_F(RdmaHostilePeer, FrameLargerThanAnyReceive_FailsTheChannel) {
  attack([](HostilePeer& p, RdmaEnd&) { p.send(std::vector<std::byte>(16384)); });
}

TEST_F(RdmaHostilePeer, MoreFramesThanCredits_FailTheChannel) {
  // The victim cannot report: its peer returns no credit, and the victim's runs out.
  attack([](HostilePeer& p, RdmaEnd& victim) { flood(p, victim, FrameType::kCredit, 600); }, 2);
  EXPECT_EQ(error.code, ErrorCode::kPeerViolatedProtocol) << error.message;
}

TEST_F(RdmaHostilePeer, MoreThanTheWindow_FailsTheChannel) {
  // 4 MiB is the window; unreceived messages stay in it.
  attack([](HostilePeer& p, RdmaEnd& victim) { flood(p, victim, FrameType::kEager, 700, 8000); });
  EXPECT_EQ(error.code, ErrorCode::kPeerViolatedProtocol) << error.message;
}

TEST_F(RdmaHostilePeer, AnnouncedMemoryThatIsNotThere_FailsTheChannel) {
  std::vector<std::byte> in(1000);
  attack([&](HostilePeer& p, RdmaEnd& victim) {
    ASSERT_TRUE(victim.receive(1, 0, in).ok());
    p.say(FrameType::kAnnounce, [](RdmaFrame& f) {
      f.address = 0xdead0000;
      f.remoteKeys[0] = 0x1234;
    });
  });
}

TEST_F(RdmaHostilePeer, AnnouncedAbsurdLengths_FailTheChannel) {
  std::vector<std::byte> in(1000);
  for (const std::uint64_t length : {std::uint64_t{1001}, std::uint64_t{1} << 40, UINT64_MAX}) {
    attack([&](HostilePeer& p, RdmaEnd& victim) {
      ASSERT_TRUE(victim.receive(1, 0, in).ok());
      p.say(FrameType::kAnnounce, [&](RdmaFrame& f) { f.length = length; });
    });
    EXPECT_EQ(error.code, ErrorCode::kMessageTooLong) << error.message;
  }
}

TEST_F(RdmaHostilePeer, RemoteOffsetBeyondTheBoundBuffer_FailsTheChannel) {
  std::vector<std::byte> in(1000);
  for (const std::uint64_t offset : {std::uint64_t{999}, std::uint64_t{1001}, UINT64_MAX, UINT64_MAX - 3}) {
    for (const FrameType type : {FrameType::kEager, FrameType::kAnnounce}) {
      attack([&](HostilePeer& p, RdmaEnd& victim) {
        victim.exclusive([&] {
          ASSERT_TRUE(victim[0]
                          .handle
                          ->postReceive({.token = 1,
                                         .key = {MessageKind::kBound, 4},
                                         .data = in.data(),
                                         .capacity = in.size(),
                                         .persistent = true})
                          .ok());
        });
        p.say(
            type,
            [&](RdmaFrame& f) {
              f.key = {MessageKind::kBound, 4};
              f.remoteOffset = offset;
              f.length = 8;
            },
            type == FrameType::kEager ? 8 : 0);
      });
      EXPECT_EQ(error.code, ErrorCode::kMessageTooLong) << error.message;
    }
  }
}

TEST_F(RdmaHostilePeer, FramesAfterGoodbye_AreNotListenedTo) {
  RdmaEnd victim(rdmaConfig("soft0"));
  victim.open();
  HostilePeer peer(victim);
  peer.say(FrameType::kEager, {}, 10);
  peer.say(FrameType::kBye);
  peer.say(FrameType::kEager, {}, 10);
  peer.say(FrameType::kAnnounce);
  peer.say(FrameType::kBye);
  ASSERT_TRUE(victim.wait([&] { return victim[0].handle->counters().packetsReceived == 5; }));
  EXPECT_EQ(victim[0].record.states.back(), ChannelState::kPeerClosed);
  EXPECT_EQ(victim[0].record.announced.size(), 1u);
  std::vector<std::byte> in(10);
  EXPECT_TRUE(victim.receive(1, 0, in).ok());
  EXPECT_FALSE(victim.receive(2, 0, in).ok());
}

TEST_F(RdmaHostilePeer, RandomFrames_NeverCrash) {
  for (unsigned seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    RdmaEnd victim(rdmaConfig("soft0"));
    victim.open();
    std::vector<std::byte> in(5000), bound(5000);
    {
      HostilePeer peer(victim);
      (void)victim.receive(1, 0, in);
      for (int i = 0; i < 20; ++i) {
        const auto type = static_cast<FrameType>(1 + random() % 4);
        auto bytes = peer.frame(
            type, [&](RdmaFrame& f) { f.key.tag = random() % 3; }, type == FrameType::kEager ? random() % 6000 : 0);
        if (random() % 3 == 0) bytes[random() % 48] = static_cast<std::byte>(random());
        peer.send(bytes);
        if (random() % 4 == 0) (void)victim.receive(100 + static_cast<unsigned>(i), random() % 3, bound);
        if (random() % 8 == 0) victim.exclusive([&] { (void)victim[0].handle->cancelReceive(1); });
      }
      ASSERT_TRUE(victim.wait([&] {
        return victim[0].handle->counters().packetsReceived >= 20 ||
               victim[0].handle->state() != ChannelState::kConnected;
      }));
    }
    victim.close(true);
  }
}

}  // namespace
}  // namespace gloo_bypass::test
