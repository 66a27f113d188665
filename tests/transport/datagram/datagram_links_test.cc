// When the transport opens and closes links: against a port that counts.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/channel_pair.h"
#include "tests/support/loopback_port.h"

namespace gloo_bypass {
namespace {

// A loopback that gives each link a new id.
class CountingPort final : public PacketPort, private PacketSink {
 public:
  std::vector<std::byte> localAddress() const override { return inner_->localAddress(); }
  std::string describe() const override { return "a loopback that counts its links"; }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override {
    notFromASink();
    const auto opened = inner_->openLink(remoteAddress);
    if (!opened) return opened;
    inner = opened.value();
    if (!current) {
      current = ++opens;
      live.insert(*current);
    }
    return *current;
  }
  void closeLink(LinkId link) override {
    notFromASink();
    ++closes;
    EXPECT_EQ(live.erase(link), 1u) << "link " << link << " is closed already, or was never opened";
    if (current == link) current.reset();
  }
  LinkProperties linkProperties(LinkId) const override { return properties; }
  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override {
    ++receives;
    if (endsAtOnce && current) bringDown(ErrorCode::kPeerClosed);
    sink_ = &sink;
    for (const auto& [link, error] : std::exchange(toReport_, {})) sink.onLinkDown(link, error);
    const std::size_t received = inner_->receive(*this, maxDatagrams);
    sink_ = nullptr;
    return received;
  }
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override {
    EXPECT_TRUE(live.contains(link)) << "link " << link << " is used after its end";
    if (link != current || silent) return 0;
    return inner_->transmit(inner, datagrams);
  }
  void armWakeup() override { inner_->armWakeup(); }
  void block(Duration timeout) override { inner_->block(timeout); }
  void disarmWakeup() override { inner_->disarmWakeup(); }
  void wake() override { inner_->wake(); }
  PortCounters counters() const override { return {}; }

  // The open link goes down at the next receive().
  void bringDown(ErrorCode code) {
    toReport_.emplace_back(*current, Error{ErrorScope::kSession, code, "the link's end"});
    current.reset();
  }

  LinkProperties properties{.maxDatagramBytes = 8192, .local = true};
  LinkId opens = 0, inner = 0;
  std::size_t closes = 0;
  std::optional<LinkId> current;
  std::set<LinkId> live;    // opened, and not closed
  bool silent = false;      // takes nothing
  bool endsAtOnce = false;  // each link is closed by its peer
  std::atomic<std::uint64_t> receives{0};

 private:
  void onArrivals() noexcept override { sink_->onArrivals(); }
  void onDatagram(LinkId, std::span<const std::byte> datagram) noexcept override {
    if (current) sink_->onDatagram(*current, datagram);
  }
  void onLinkDown(LinkId, const Error&) noexcept override {}
  void notFromASink() const { EXPECT_EQ(sink_, nullptr) << "the port is called from its own receive()"; }

  const std::unique_ptr<PacketPort> inner_ = test::makeLoopbackPort(8192, 256);
  PacketSink* sink_ = nullptr;  // of the receive() under way
  std::vector<std::pair<LinkId, Error>> toReport_;
};

class Links : public test::ChannelPairTest {
 protected:
  void SetUp() override {
    auto made = std::make_unique<CountingPort>();
    port_ = made.get();
    connect(makeDatagramTransport({}, std::move(made)).value());
  }
  void closeBoth() {
    exclusive([&] {
      a.reset();
      b.reset();
    });
  }
  // The peer does not answer yet.
  void connectOnlyA() {
    closeBoth();
    ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
    atA = atB = {};
    exclusive([&] {
      a = std::move(transport->openChannel({.localRank = 0, .peerRank = 1}, &atA).value());
      b = std::move(transport->openChannel({.localRank = 1, .peerRank = 0}, &atB).value());
      port_->silent = true;
      ASSERT_TRUE(a->connect(b->localAddress()).ok());
    });
  }
  void connectAgain() {
    atA = atB = {};
    connect(transport);
  }

  CountingPort* port_ = nullptr;  // the transport's
};

TEST_F(Links, ChannelsAreGone_TheirLinkIsClosedAndTheNextOnesGetANewOne) {
  for (LinkId round = 1; round <= 3; ++round) {
    EXPECT_EQ(port_->opens, round);
    EXPECT_EQ(port_->closes, round - 1);
    closeBoth();
    ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
    EXPECT_EQ(port_->closes, round);
    connectAgain();
  }
}

TEST_F(Links, SeveralChannelsShareALink_ItLastsAsLongAsTheLastOfThem) {
  auto firstA = std::move(a), firstB = std::move(b);
  connectAgain();
  closeBoth();
  ASSERT_TRUE(wait([&] { return transport->report().channels.size() == 2; }));
  EXPECT_EQ(port_->closes, 0u);
  std::vector<std::byte> bytes(100'000, std::byte{3}), in(bytes.size());
  exclusive([&] {
    ASSERT_TRUE(firstB->postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = in.size()}).ok());
    ASSERT_TRUE(firstA->postSend({.token = 1, .key = {}, .data = bytes.data(), .length = bytes.size()}).ok());
    firstA.reset();  // the last message still waits for its acknowledgement
  });
  ASSERT_TRUE(wait([&] { return in == bytes; }));
  exclusive([&] { firstB.reset(); });
  ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
  EXPECT_EQ(port_->opens, 1u);
  EXPECT_EQ(port_->closes, 1u);
}

TEST_F(Links, LinkWentDown_ItIsClosedOnceItsChannelsAreGone) {
  exclusive([&] { port_->bringDown(ErrorCode::kPeerVanished); });
  ASSERT_TRUE(wait([&] { return atA.state == ChannelState::kFailed && atB.state == ChannelState::kFailed; }));
  EXPECT_EQ(port_->closes, 0u);
  exclusive([&] { a.reset(); });
  ASSERT_TRUE(wait([&] { return transport->report().channels.size() == 1; }));
  EXPECT_EQ(port_->closes, 0u);
  exclusive([&] { b.reset(); });
  ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
  EXPECT_EQ(port_->closes, 1u);
  connectAgain();
  EXPECT_EQ(port_->opens, 2u);
}

// It can never be sent again.
TEST_F(Links, LinkGoesDownBeforeTheAcknowledgementOfTheEndHasLeft_TheEngineSleeps) {
  exclusive([&] {
    atB.onState = [this](ChannelState state) {
      if (state == ChannelState::kPeerClosed) port_->silent = true;
    };
    a.reset();
  });
  ASSERT_TRUE(wait([&] { return atB.state == ChannelState::kPeerClosed; }));
  exclusive([&] { port_->bringDown(ErrorCode::kPeerVanished); });
  ASSERT_TRUE(wait([&] { return transport->report().channels.size() == 1; }));  // a's session has ended
  bool slept = false;
  for (int look = 0; look < 30 && !slept; ++look) {
    const std::uint64_t before = port_->receives;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    slept = port_->receives - before < 100;
  }
  EXPECT_TRUE(slept);
}

// As when a rank never comes.
TEST_F(Links, ClosedBeforeThePeerAnswers_TheLinkIsClosed) {
  connectOnlyA();
  closeBoth();
  ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
}

TEST_F(Links, ChannelThatNeverConnected_ClosesNone) {
  std::unique_ptr<MessageChannel> idle;
  exclusive([&] { idle = std::move(transport->openChannel({}, nullptr).value()); });
  exclusive([&] { idle.reset(); });
  ASSERT_TRUE(wait([&] { return transport->report().channels.size() == 2; }));
  EXPECT_EQ(port_->closes, 0u);
}

// The peer's last session on the link has ended while ours connects for the next: its Hello was lost with the link.
TEST_F(Links, PeerClosesTheLinkWhileAChannelConnects_ItConnectsOverANewOne) {
  connectOnlyA();
  exclusive([&] {
    port_->bringDown(ErrorCode::kPeerClosed);
    port_->silent = false;
    ASSERT_TRUE(b->connect(a->localAddress()).ok());
  });
  ASSERT_TRUE(wait([&] { return atA.state == ChannelState::kConnected && atB.state == ChannelState::kConnected; }));
  EXPECT_EQ(port_->opens, 3u);
  EXPECT_EQ(port_->closes, 2u);  // the second one's last session has left it
  closeBoth();
  ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
}

TEST_F(Links, PeerClosesEachLinkAtOnce_TheyAreMadeMoreAndMoreSeldomUntilOneStays) {
  connectOnlyA();
  LinkId before = 0;
  exclusive([&] {
    before = port_->opens;
    port_->endsAtOnce = true;
  });
  const TimePoint begin = monotonicNow();
  constexpr LinkId kLinks = 10;
  ASSERT_TRUE(wait([&] { return port_->opens - before >= kLinks; }));
  const Duration taken = monotonicNow() - begin;
  EXPECT_GE(taken, std::chrono::milliseconds(300)) << "1, 2, 4 ... 250 ms apart";
  exclusive([&] {
    port_->endsAtOnce = port_->silent = false;
    ASSERT_TRUE(b->connect(a->localAddress()).ok());
  });
  ASSERT_TRUE(wait([&] { return atA.state == ChannelState::kConnected && atB.state == ChannelState::kConnected; }));
  closeBoth();
  ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
}

TEST_F(Links, NextLinkIsOfAnotherKind_TheChannelThatConnectsFails) {
  connectOnlyA();
  exclusive([&] {
    port_->properties.lossless = true;
    port_->bringDown(ErrorCode::kPeerClosed);
    port_->silent = false;
  });
  ASSERT_TRUE(wait([&] { return atA.state == ChannelState::kFailed; }));
  exclusive([&] { EXPECT_NE(a->error().message.find("of another kind"), std::string::npos) << a->error().message; });
  closeBoth();
  ASSERT_TRUE(wait([&] { return port_->live.empty(); }));
  EXPECT_EQ(port_->opens, 3u);
  EXPECT_EQ(port_->closes, 3u);
}

}  // namespace
}  // namespace gloo_bypass
