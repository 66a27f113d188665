// Channels over the loopback port, with the real sessions and engine underneath.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "tests/support/channel_pair.h"
#include "tests/support/loopback_port.h"
#include "transport/channel/channel_address.h"

namespace gloo_bypass {
namespace {

using std::chrono::seconds;

class ChannelPair : public test::ChannelPairTest {
 protected:
  void open(const test::LoopbackImpairment& impairment = {}) {
    connect(makeDatagramTransport({}, test::makeLoopbackPort(8192, 256, impairment)).value());
  }
  std::uint64_t counter(const char* section, const char* name) {
    const auto json = counters();
    return *section == 0 ? json[name].get<std::uint64_t>() : json[section][name].get<std::uint64_t>();
  }
};

// An in-memory network that loses nothing until it breaks.
class NetworkPort : public PacketPort {
 public:
  std::vector<std::byte> localAddress() const override { return inner_->localAddress(); }
  std::string describe() const override { return "a network in memory"; }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override { return inner_->openLink(remoteAddress); }
  void closeLink(LinkId link) override { inner_->closeLink(link); }
  LinkProperties linkProperties(LinkId) const override { return {.maxDatagramBytes = 1472}; }
  std::size_t receive(PacketSink& sink, std::size_t most) override {
    if (std::exchange(stranger, false)) sink.onStranger();
    return inner_->receive(sink, most);
  }
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override {
    return broken ? datagrams.size() : inner_->transmit(link, datagrams);
  }
  void wakePeers() override { inner_->wakePeers(); }
  void armWakeup() override { inner_->armWakeup(); }
  void block(Duration timeout) override { inner_->block(timeout); }
  void disarmWakeup() override { inner_->disarmWakeup(); }
  void wake() override { inner_->wake(); }
  PortCounters counters() const override { return {}; }

  bool broken = false;
  bool stranger = false;  // one sends before the next receive()

 private:
  const std::unique_ptr<PacketPort> inner_ = test::makeLoopbackPort(8192, 256);
};

// A long path with a reader that is stopped: a datagram arrives after the clock was read and before the port is.
class StandingStillPort final : public NetworkPort {
 public:
  static constexpr Duration kOneWay = std::chrono::milliseconds(10), kStandstill = std::chrono::milliseconds(6);

  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override {
    if (!underWay_.empty() && underWay_.front().arrival < monotonicNow() + kStandstill) {
      while (monotonicNow() < underWay_.front().arrival) {
      }
    }
    std::size_t received = 0;
    const TimePoint now = monotonicNow();
    sink.onArrivals();
    for (; received < maxDatagrams && !underWay_.empty() && underWay_.front().arrival <= now; ++received) {
      const auto bytes = std::move(underWay_.front().bytes);
      underWay_.pop_front();
      sink.onDatagram(underWayLink_, bytes);
    }
    return received;
  }
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override {
    underWayLink_ = link;
    for (const auto& datagram : datagrams) {
      std::vector<std::byte> bytes(datagram.header.begin(), datagram.header.end());
      bytes.insert(bytes.end(), datagram.payload.begin(), datagram.payload.end());
      underWay_.push_back({monotonicNow() + kOneWay, std::move(bytes)});
    }
    return datagrams.size();
  }
  // The sleep ends only at its bound.
  void block(Duration timeout) override { NetworkPort::block(std::min(timeout, kStandstill / 2)); }

 private:
  struct UnderWay {
    TimePoint arrival;
    std::vector<std::byte> bytes;
  };
  std::deque<UnderWay> underWay_;
  LinkId underWayLink_ = 0;
};

// Polled by hand, so that half an hour takes no time.
class SilentPeer : public ::testing::Test {
 protected:
  void connect(const TransportConfig& config, Duration silenceTimeout) {
    auto port = std::make_unique<NetworkPort>();
    port_ = port.get();
    transport_ = makePolledDatagramTransport(config, std::move(port)).value();
    a_ = std::move(
        transport_->openChannel({.localRank = 0, .peerRank = 1, .silenceTimeout = silenceTimeout}, &atA_).value());
    b_ = std::move(transport_->openChannel({.localRank = 1, .peerRank = 0}, &atB_).value());
    ASSERT_TRUE(a_->connect(b_->localAddress()).ok());
    ASSERT_TRUE(b_->connect(a_->localAddress()).ok());
    pass(seconds(10));
    ASSERT_EQ(atA_.state, ChannelState::kConnected);
    ASSERT_EQ(atB_.state, ChannelState::kConnected);
  }
  void pass(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) (void)transport_->poll(now_ += std::chrono::milliseconds(20));
  }

  TimePoint now_ = monotonicNow();
  std::unique_ptr<PolledTransport> transport_;
  NetworkPort* port_ = nullptr;  // the transport's
  test::Recorder atA_, atB_;
  std::unique_ptr<MessageChannel> a_, b_;
};

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8)) & 0xff);
  return bytes;
}

TEST_F(ChannelPair, MessagesOfManySizes_ArriveBitExact) {
  open();
  unsigned seed = 0;
  for (std::size_t size : {0u, 1u, 63u, 4096u, 8192u, 100000u, 3000000u}) {
    const auto out = pattern(size, ++seed);
    std::vector<std::byte> in(size);
    exclusive([&] {
      ASSERT_TRUE(
          b->postReceive({.token = seed, .key = {MessageKind::kUnbound, 7}, .data = in.data(), .capacity = size}).ok());
      ASSERT_TRUE(
          a->postSend({.token = seed, .key = {MessageKind::kUnbound, 7}, .data = out.data(), .length = size}).ok());
    });
    ASSERT_TRUE(wait([&] { return atB.received.contains(seed) && atA.sent.contains(seed); })) << size;
    EXPECT_EQ(atB.received[seed], size);
    EXPECT_EQ(in, out);
  }
}

TEST_F(ChannelPair, LossDuplicationReorderingCorruption_StillBitExact) {
  open({.loss = 0.05, .duplication = 0.02, .reordering = 0.05, .corruption = 0.02, .seed = 42});
  const auto out = pattern(2000000, 3);
  std::vector<std::byte> in(out.size());
  exclusive([&] {
    ASSERT_TRUE(
        a->postSend({.token = 1, .key = {MessageKind::kUnbound, ~0ull}, .data = out.data(), .length = out.size()})
            .ok());
    ASSERT_TRUE(
        b->postReceive({.token = 1, .key = {MessageKind::kUnbound, ~0ull}, .data = in.data(), .capacity = in.size()})
            .ok());
  });
  ASSERT_TRUE(wait([&] { return atB.received.contains(1) && atA.sent.contains(1); }));
  EXPECT_EQ(in, out);
  EXPECT_GT(counter("", "retransmits"), 0u);
  EXPECT_GT(counter("", "corrupted_received") + counter("port", "dropped_not_ours") +
                counter("port", "dropped_unknown_session"),
            0u);
}

// A time of arrival that is too early lengthens the delay in the echo, and so shortens the round trip.
TEST_F(ChannelPair, ThreadStandsStillBeforeItReceives_RoundTripIsNotTooShort) {
  connect(makeDatagramTransport({}, std::make_unique<StandingStillPort>()).value());
  const auto out = pattern(200000, 1);
  std::vector<std::byte> inA(out.size()), inB(out.size());
  for (OperationToken token = 1; token <= 3; ++token) {
    exclusive([&] {
      for (auto& [end, in] : {std::pair(&a, &inA), std::pair(&b, &inB)}) {
        ASSERT_TRUE((*end)->postReceive({.token = token, .key = {}, .data = in->data(), .capacity = in->size()}).ok());
        ASSERT_TRUE((*end)->postSend({.token = token, .key = {}, .data = out.data(), .length = out.size()}).ok());
      }
    });
    ASSERT_TRUE(wait([&] { return atA.received.contains(token) && atB.received.contains(token); }));
  }
  const auto peers = counters()["open_channels"];
  ASSERT_EQ(peers.size(), 2u);
  for (const auto& peer : peers) {
    EXPECT_GE(peer["min_rtt_us"].get<double>(), 2 * StandingStillPort::kOneWay / std::chrono::microseconds(1))
        << peer.dump();
  }
}

// The peer's machine may be stopped, or the path may return, for as long as the channel's user waits.
TEST_F(SilentPeer, UserWaitsLongerThanTheDefault_IsGivenUpAfterTheUsersTimeout) {
  connect({}, std::chrono::minutes(30));
  port_->broken = true;
  pass(std::chrono::minutes(2) - seconds(5));
  EXPECT_EQ(atB_.state, ChannelState::kConnected) << "its user said nothing: two minutes";
  pass(seconds(10));
  EXPECT_EQ(atB_.state, ChannelState::kFailed);
  EXPECT_EQ(atA_.state, ChannelState::kConnected);
  pass(std::chrono::minutes(28) - seconds(10));
  EXPECT_EQ(atA_.state, ChannelState::kConnected);
  pass(seconds(10));
  ASSERT_EQ(atA_.state, ChannelState::kFailed);
  EXPECT_EQ(a_->error().code, ErrorCode::kPeerVanished);
}

TEST_F(SilentPeer, PeerTimeoutIsSet_IsGivenUpAfterThatWhateverTheUserHas) {
  TransportConfig config;
  config.peerTimeout = seconds(20);
  connect(config, std::chrono::minutes(30));
  port_->broken = true;
  pass(seconds(15));
  EXPECT_EQ(atA_.state, ChannelState::kConnected);
  pass(seconds(10));
  EXPECT_EQ(atA_.state, ChannelState::kFailed);
  EXPECT_EQ(atB_.state, ChannelState::kFailed);
}

// The longest keep-alive interval allowed.
TEST_F(SilentPeer, KeepAliveOfHalfThePeerTimeout_IdlePairIsKept) {
  TransportConfig config;
  config.session.keepAlive = std::chrono::minutes(1);
  connect(config, {});
  pass(std::chrono::minutes(10));
  EXPECT_EQ(atA_.state, ChannelState::kConnected);
  EXPECT_EQ(atB_.state, ChannelState::kConnected);
}

// Under a peer's address and port anybody can send.
TEST_F(SilentPeer, DatagramsOfNoSession_AreNoEvent) {
  connect({}, {});
  const LinkId link = port_->openLink(port_->localAddress()).value();
  const auto arrives = [&](std::size_t bytes, std::uint64_t receiver) {
    wire::PacketWriter writer;
    writer.begin({.receiverId = receiver});
    const auto header = writer.finish();
    ASSERT_EQ(port_->transmit(link, std::vector<OutgoingDatagram>{{.header = header.first(bytes), .payload = {}}}), 1u);
  };
  EXPECT_FALSE(transport_->disturbed());
  for (const std::size_t bytes : {std::size_t{3}, wire::kCommonHeaderBytes}) {
    arrives(bytes, 0x1234);
    EXPECT_FALSE(transport_->poll(now_));
    EXPECT_TRUE(transport_->disturbed());
    EXPECT_FALSE(transport_->poll(now_));
    EXPECT_FALSE(transport_->disturbed());
  }
}

TEST_F(SilentPeer, DatagramsThatThePortDrops_AreNoEvent) {
  connect({}, {});
  port_->stranger = true;
  EXPECT_FALSE(transport_->poll(now_));
  EXPECT_TRUE(transport_->disturbed());
  EXPECT_FALSE(transport_->poll(now_));
  EXPECT_FALSE(transport_->disturbed());
}

TEST_F(ChannelPair, MessageWithoutReceive_IsAnnouncedAndReceivedLater) {
  open();
  const auto out = pattern(500000, 9);
  std::vector<std::byte> in(out.size());
  exclusive([&] {
    ASSERT_TRUE(
        a->postSend({.token = 5, .key = {MessageKind::kUnbound, 99}, .data = out.data(), .length = out.size()}).ok());
  });
  ASSERT_TRUE(wait([&] { return !atB.announced.empty(); }));
  EXPECT_EQ(atB.announced.front(), 99u);
  exclusive([&] {
    ASSERT_TRUE(
        b->postReceive({.token = 6, .key = {MessageKind::kUnbound, 99}, .data = in.data(), .capacity = in.size()})
            .ok());
  });
  ASSERT_TRUE(wait([&] { return atB.received.contains(6) && atA.sent.contains(5); }));
  EXPECT_EQ(in, out);
}

TEST_F(ChannelPair, PeerClosesInGoodOrder_WhatWasSentArrivesFirst) {
  open();
  auto out = pattern(200000, 4);
  const auto expected = out;
  std::vector<std::byte> in(out.size());
  exclusive([&] {
    ASSERT_TRUE(b->postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = in.size()}).ok());
    ASSERT_TRUE(a->postSend({.token = 1, .key = {}, .data = out.data(), .length = out.size()}).ok());
    a->close(false);
    a.reset();
    out.assign(out.size(), std::byte{0});  // the buffer is the user's again
  });
  ASSERT_TRUE(wait([&] { return atB.state == ChannelState::kPeerClosed; }));
  EXPECT_EQ(atB.received.count(1), 1u);
  EXPECT_EQ(in, expected);
  exclusive([&] { EXPECT_FALSE(b->postSend({.token = 2, .key = {}, .data = nullptr, .length = 0}).ok()); });
}

// As a receive from any of several peers does, once it learns where a message is.
TEST_F(ChannelPair, ReceiveOfWhatWasJustAnnounced_CompletesBeforeThePeersEndIsTold) {
  open();
  const auto out = pattern(1000, 4);
  std::vector<std::byte> in(out.size());
  bool before = false;
  atB.onAnnounced = [&](MessageKey key) {
    EXPECT_TRUE(b->postReceive({.token = 1, .key = key, .data = in.data(), .capacity = in.size()}).ok());
  };
  atB.onState = [&](ChannelState) { before = atB.received.contains(1); };
  exclusive([&] {  // both arrive at a time
    ASSERT_TRUE(a->postSend({.token = 1, .key = {}, .data = out.data(), .length = out.size()}).ok());
    a->close(false);
  });
  ASSERT_TRUE(wait([&] { return atB.state == ChannelState::kPeerClosed; }));
  EXPECT_TRUE(before);
  EXPECT_EQ(in, out);
}

TEST_F(ChannelPair, CloseAll_ClosesBothEndsInGoodOrderAtOnce) {
  const auto out = pattern(1000, 8);
  // Repeats if a machine that stood still may have made it late.
  bool atOnce = false;
  for (int i = 0; i < 3 && !atOnce; ++i) {
    if (i > 0) TearDown();
    atA = atB = {};
    open();
    exclusive(
        [&] { ASSERT_TRUE(a->postSend({.token = 1, .key = {}, .data = out.data(), .length = out.size()}).ok()); });
    const TimePoint begin = monotonicNow();
    transport->closeAll();
    atOnce = monotonicNow() - begin < seconds(2);
    exclusive([&] {
      EXPECT_EQ(a->state(), ChannelState::kClosed);
      EXPECT_EQ(b->state(), ChannelState::kClosed);
    });
  }
  EXPECT_TRUE(atOnce) << "waited for its bound, not for the peers";
}

TEST_F(ChannelPair, PeerAborts_ChannelFailsWithReason) {
  open();
  exclusive([&] { a->close(true); });
  ASSERT_TRUE(wait([&] { return atB.state == ChannelState::kFailed; }));
  exclusive([&] { EXPECT_FALSE(b->error().message.empty()); });
}

TEST_F(ChannelPair, CancelledReceive_BufferIsNotTouched) {
  open();
  std::vector<std::byte> in(1000, std::byte{0x5a});
  const auto untouched = in;
  const auto out = pattern(1000, 1);
  exclusive([&] {
    ASSERT_TRUE(
        b->postReceive({.token = 1, .key = {MessageKind::kUnbound, 1}, .data = in.data(), .capacity = in.size()}).ok());
    EXPECT_TRUE(b->cancelReceive(1));
    EXPECT_FALSE(b->cancelReceive(1));
    ASSERT_TRUE(
        a->postSend({.token = 1, .key = {MessageKind::kUnbound, 1}, .data = out.data(), .length = out.size()}).ok());
  });
  ASSERT_TRUE(wait([&] { return !atB.announced.empty(); }));
  EXPECT_EQ(in, untouched);
}

TEST(ChannelAddress, RoundTrip_KeepsEveryField) {
  const ChannelAddress address{
      .sessionId = 0x0123456789abcdef, .portAddress = pattern(100, 2), .description = "rank 1"};
  const auto decoded = decodeChannelAddress(encodeChannelAddress(address));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value().sessionId, address.sessionId);
  EXPECT_EQ(decoded.value().portAddress, address.portAddress);
  EXPECT_EQ(decoded.value().description, address.description);
}

TEST(ChannelAddress, EveryTruncationAndExtension_IsRefused) {
  const auto bytes = encodeChannelAddress({.sessionId = 1, .portAddress = pattern(10, 2), .description = "x"});
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decodeChannelAddress(std::span(bytes).first(n)).ok()) << n;
  }
  auto longer = bytes;
  longer.resize(bytes.size() + 1);
  EXPECT_FALSE(decodeChannelAddress(longer).ok());
}

TEST(ChannelAddress, UnprintableDescription_IsMadePrintable) {
  const auto decoded =
      decodeChannelAddress(encodeChannelAddress({.sessionId = 1, .portAddress = {}, .description = "a\x1b[2J\n"}));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value().description, "a\\x1b[2J\\x0a");
}

}  // namespace
}  // namespace gloo_bypass
