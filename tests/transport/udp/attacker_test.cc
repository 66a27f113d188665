// An attacker on the path, over real sockets and in memory: each attack succeeds against plain datagrams and fails
// against sealed ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/attacker_port.h"
#include "tests/support/channel_pair.h"
#include "tests/support/loopback_port.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::test {
namespace {

using Datagram = AttackerPort::Datagram;

enum class Path : std::uint8_t { kMemory, kSocket, kSockets };

class Attacker : public ChannelPairTest, public ::testing::WithParamInterface<std::tuple<Path, Security>> {
 protected:
  // Attacks use the members below.
  void TearDown() override {
    ChannelPairTest::TearDown();
    transport.reset();
  }
  bool sealed() const { return std::get<Security>(GetParam()) == Security::kEncrypt; }

  void connectUnder(const AttackerPort::Attack& attack) {
    TransportConfig config;
    config.security = std::get<Security>(GetParam());
    config.session.longPathRtt = std::chrono::seconds(60);  // a short path, however busy the machine
    std::unique_ptr<PacketPort> port;
    if (std::get<Path>(GetParam()) == Path::kMemory) {
      port = makeLoopbackPort(8192, 256);
    } else {
      config.interface = std::get<Path>(GetParam()) == Path::kSocket ? "127.0.0.1" : "127.0.0.1,127.0.0.2,127.0.0.3";
      auto made = udp::makeUdpPort(config);
      ASSERT_TRUE(made.ok()) << made.error().message;
      port = std::move(made).value();
    }
    connect(makeDatagramTransport(config, std::make_unique<AttackerPort>(std::move(port), attack)).value());
  }

  // Sends messages until `count` have arrived or the channel has failed; returns how many arrived with other bytes.
  int exchange(int count, std::size_t length) {
    int wrong = 0;
    for (int i = 0; i < count && stateOf(atB) == ChannelState::kConnected; ++i) {
      const OperationToken token = ++lastToken_;
      std::vector<std::byte> out(length), in(length);
      for (std::size_t at = 0; at < length; ++at) out[at] = static_cast<std::byte>((at + 31 * token) & 0xff);
      exclusive([&] {
        (void)b->postReceive({.token = token, .key = {.tag = 1}, .data = in.data(), .capacity = length});
        (void)a->postSend({.token = token, .key = {.tag = 1}, .data = out.data(), .length = length});
      });
      const bool done = wait([&] { return atB.received.contains(token) || atB.state != ChannelState::kConnected; });
      EXPECT_TRUE(done) << "message " << i;
      if (!done) return wrong;
      exclusive([&] {
        wrong += atB.received.contains(token) && in != out ? 1 : 0;
        a->cancelSend(token);
      });
    }
    return wrong;
  }

  ChannelState stateOf(const Recorder& recorder) {
    ChannelState state{};
    exclusive([&] { state = recorder.state; });
    return state;
  }
  std::uint64_t figure(const std::string& name) {
    TransportReport report;
    exclusive([&] { report = transport->report(); });
    for (const PortFigure& figure : report.port) {
      if (figure.name == name) return figure.value;
    }
    ADD_FAILURE() << name;
    return 0;
  }
  std::uint64_t duplicates() {
    TransportReport report;
    exclusive([&] { report = transport->report(); });
    return report.total.duplicatesReceived;
  }

  // The attacker's.
  bool begun_ = false, found_ = false;
  std::size_t seen_ = 0;
  std::vector<Datagram> kept_;
  std::array<std::uint64_t, 2> ids_{};

 private:
  OperationToken lastToken_ = 0;
};

TEST_P(Attacker, ChangesPayload_NoWrongBytesArriveSealed) {
  connectUnder([this](const Datagram& datagram) {
    Datagram changed = datagram;
    if (wire::isData(typeOf(datagram)) && ++seen_ % 5 == 0) flipPayload(changed);
    return std::vector<Datagram>{changed};
  });
  const int wrong = exchange(20, 300'000);
  EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
  if (sealed()) {
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(figure("dropped_forged"), 0u);
  } else {
    EXPECT_GT(wrong, 0) << "the attack works no more: it proves nothing";
  }
}

TEST_P(Attacker, ForgesResets_SealedSessionsLiveOn) {
  if (!sealed() && std::get<Path>(GetParam()) == Path::kSockets) GTEST_SKIP() << "as over one socket, in more time";
  connectUnder([this](const Datagram& datagram) {
    std::vector<Datagram> arriving{datagram};
    if (!begun_) return arriving;
    for (Datagram& reset : forgedResets(datagram)) arriving.push_back(std::move(reset));
    return arriving;
  });
  exclusive([&] { begun_ = true; });
  EXPECT_EQ(exchange(10, 100'000), 0);
  if (sealed()) {
    EXPECT_EQ(stateOf(atA), ChannelState::kConnected);
    EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
    EXPECT_GT(figure("dropped_forged"), 0u);
    EXPECT_GT(figure("dropped_unsealed"), 0u);
  } else {
    EXPECT_TRUE(stateOf(atA) == ChannelState::kFailed || stateOf(atB) == ChannelState::kFailed)
        << "the attack works no more: it proves nothing";
  }
}

TEST_P(Attacker, RepeatsAtOnceAndLater_SealedSessionsNeverSeeIt) {
  connectUnder([this](const Datagram& datagram) {
    if (kept_.size() < 100) kept_.push_back(datagram);
    return std::vector<Datagram>{datagram, datagram, kept_[seen_++ % kept_.size()]};
  });
  EXPECT_EQ(exchange(30, 200'000), 0);
  EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
  if (sealed()) {
    EXPECT_EQ(duplicates(), 0u);
    EXPECT_GT(figure("dropped_replayed"), 100u);
  } else {
    EXPECT_GT(duplicates(), 0u) << "the attack works no more: it proves nothing";
  }
}

// Under another session's id, back to its sender, of another version, cut and lengthened.
TEST_P(Attacker, SendsNonsense_SealedSessionsLiveOn) {
  if (!sealed()) GTEST_SKIP() << "plain datagrams have tests of their own: core_hostile_test.cc";
  connectUnder([this](const Datagram& datagram) {
    const std::uint64_t id = wire::receiverIdOf(datagram);
    if (id != ids_[0]) ids_[1] = std::exchange(ids_[0], id);
    std::vector<Datagram> arriving{datagram, datagram, datagram, datagram, datagram};
    storeLittle(arriving[1].data() + 8, ids_[1]);
    arriving[2][2] = std::byte{1};
    arriving[3].resize(datagram.size() - 1 - seen_++ % 60);
    arriving[4].resize(datagram.size() + 1);
    return arriving;
  });
  EXPECT_EQ(exchange(10, 100'000), 0);
  EXPECT_EQ(stateOf(atA), ChannelState::kConnected);
  EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
}

TEST_P(Attacker, Listens_FindsNoByteOfAMessage) {
  static constexpr std::string_view kMarker = "a text that no other datagram has";
  connectUnder([this](const Datagram& datagram) {
    const auto* const text = reinterpret_cast<const char*>(datagram.data());
    found_ = found_ || std::string_view(text, datagram.size()).find(kMarker) != std::string_view::npos;
    return std::vector<Datagram>{datagram};
  });
  std::string out;
  for (int i = 0; i < 1000; ++i) out += kMarker;
  std::string in(out.size(), ' ');
  exclusive([&] {
    (void)b->postReceive(
        {.token = 1, .key = {.tag = 1}, .data = reinterpret_cast<std::byte*>(in.data()), .capacity = in.size()});
    (void)a->postSend(
        {.token = 1, .key = {.tag = 1}, .data = reinterpret_cast<const std::byte*>(out.data()), .length = out.size()});
  });
  ASSERT_TRUE(wait([&] { return atB.received.contains(1) && atA.sent.contains(1); }));
  EXPECT_EQ(in, out);
  exclusive([&] { EXPECT_EQ(found_, !sealed()); });
}

std::string nameOf(const ::testing::TestParamInfo<std::tuple<Path, Security>>& info) {
  static constexpr const char* kPaths[] = {"Memory", "Socket", "Sockets"};
  return std::string(kPaths[static_cast<std::size_t>(std::get<Path>(info.param))]) +
         (std::get<Security>(info.param) == Security::kEncrypt ? "Sealed" : "Plain");
}

INSTANTIATE_TEST_SUITE_P(Paths, Attacker,
                         ::testing::Combine(::testing::Values(Path::kMemory, Path::kSocket, Path::kSockets),
                                            ::testing::Values(Security::kOff, Security::kEncrypt)),
                         nameOf);

}  // namespace
}  // namespace gloo_bypass::test
