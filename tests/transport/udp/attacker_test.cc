// An attacker on the path, over real sockets and in memory: each attack succeeds against plain datagrams and fails
// against sealed ones, 100 times of 100.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/attacker_port.h"
#include "tests/support/channel_pair.h"
#include "tests/support/forged_icmp.h"
#include "tests/support/loopback_port.h"
#include "transport/security/packet_protection.h"
#include "transport/udp/port_address.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::test {
namespace {

using Datagram = AttackerPort::Datagram;

enum class Path : std::uint8_t { kMemory, kSocket, kSockets, kSocketV6 };

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
      config.interface = std::get<Path>(GetParam()) == Path::kSocket     ? "127.0.0.1"
                         : std::get<Path>(GetParam()) == Path::kSocketV6 ? "::1"
                                                                         : "127.0.0.1,127.0.0.2,127.0.0.3";
      auto made = udp::makeUdpPort(config);
      ASSERT_TRUE(made.ok()) << made.error().message;
      port = std::move(made).value();
      address_ = udp::decode(port->localAddress()).value().front();
    }
    connect(makeDatagramTransport(config, std::make_unique<AttackerPort>(std::move(port), attack)).value());
  }

  // Sends messages until there were kAttacks or the channel has failed; returns how many arrived with other bytes.
  int exchange(std::size_t length) {
    exclusive([&] { begun_ = true; });
    int wrong = 0;
    for (int i = 0; attacks() < kAttacks && stateOf(atB) == ChannelState::kConnected; ++i) {
      const OperationToken token = ++lastToken_;
      std::vector<std::byte> out(length), in(length);
      for (std::size_t at = 0; at < length; ++at) out[at] = static_cast<std::byte>((at + 31 * token) & 0xff);
      exclusive([&] {
        (void)b->postReceive({.token = token, .key = {.tag = 1}, .data = in.data(), .capacity = length});
        (void)a->postSend({.token = token, .key = {.tag = 1}, .data = out.data(), .length = length});
      });
      const bool done = wait([&] { return atB.received.contains(token) || atB.state != ChannelState::kConnected; });
      EXPECT_TRUE(done && i < kMostMessages) << "message " << i;
      if (!done || i == kMostMessages) return wrong;
      exclusive([&] {
        wrong += atB.received.contains(token) && in != out ? 1 : 0;
        a->cancelSend(token);
      });
    }
    return wrong;
  }

  // With forged ICMP: the kernel would remember a forged MTU, for other tests too.
  void inNetworkOfItsOwn(const std::function<void()>& f) {
    if (!test::rawSocket()) GTEST_SKIP() << "needs root for a raw socket";
    std::thread([&] {
      if (::unshare(CLONE_NEWNET) != 0 || std::system("ip link set lo up") != 0) GTEST_SKIP() << "needs CAP_NET_ADMIN";
      f();
    }).join();
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
  // Of the channels' largest datagrams. With exclusive access.
  std::size_t smallestSize() const {
    const TransportReport report = transport->report();
    std::size_t smallest = wire::kMaxDatagramBytes;
    for (const ChannelReport& channel : report.channels) {
      smallest = std::min(smallest, channel.path->datagramBytes);
    }
    return smallest;
  }
  // An IPv4 packet's, or what the loopback interface's MTU leaves.
  std::size_t largestSize() const {
    return (std::get<Path>(GetParam()) == Path::kSocketV6 ? 65'488 : 65'507) -
           (sealed() ? security::PacketProtection::kOverheadBytes : 0);
  }
  // Received twice, beyond what the channels themselves sent twice, as a busy machine makes them do.
  std::int64_t duplicates() {
    ChannelCounters total;
    exclusive([&] { total = transport->report().total; });
    return static_cast<std::int64_t>(total.duplicatesReceived) - static_cast<std::int64_t>(total.retransmits);
  }

  std::size_t attacks() {
    std::size_t attacks = 0;
    exclusive([&] { attacks = attacks_; });
    return attacks;
  }

  static constexpr std::size_t kAttacks = 100;
  static constexpr int kMostMessages = 1000;

  // The attacker's.
  bool begun_ = false, found_ = false;  // begun_: the channels have connected
  std::size_t seen_ = 0, attacks_ = 0;
  std::vector<Datagram> kept_;
  std::array<std::uint64_t, 2> ids_{};
  network::Endpoint address_;  // of the first socket

 private:
  OperationToken lastToken_ = 0;
};

TEST_P(Attacker, ChangesPayload_NoWrongBytesArriveSealed) {
  connectUnder([this](const Datagram& datagram) {
    Datagram changed = datagram;
    if (wire::isData(typeOf(datagram)) && ++seen_ % 5 == 0) {
      flipPayload(changed);
      ++attacks_;
    }
    return std::vector<Datagram>{changed};
  });
  const int wrong = exchange(300'000);
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
    ++attacks_;
    for (Datagram& reset : forgedResets(datagram)) arriving.push_back(std::move(reset));
    return arriving;
  });
  EXPECT_EQ(exchange(100'000), 0);
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
    ++attacks_;
    return std::vector<Datagram>{datagram, datagram, kept_[seen_++ % kept_.size()]};
  });
  EXPECT_EQ(exchange(200'000), 0);
  EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
  if (sealed()) {
    EXPECT_LE(duplicates(), 0);
    EXPECT_GE(figure("dropped_replayed"), kAttacks);
  } else {
    EXPECT_GT(duplicates(), 0) << "the attack works no more: it proves nothing";
  }
}

// What is so old looks new to the protocol, whose time stamps wrap around. In virtual time: SealedSessions. In real
// time by hand, as it takes two minutes: --gtest_also_run_disabled_tests --gtest_filter='*RepeatsAllAfter137Seconds*'
TEST_P(Attacker, DISABLED_RepeatsAllAfter137Seconds_SealedSessionsNeverSeeIt) {
  if (!sealed()) GTEST_SKIP() << "plain datagrams are at an attacker's mercy at once";
  bool repeats = false;
  connectUnder([&](const Datagram& datagram) {
    ++attacks_;
    if (!repeats) {
      kept_.push_back(datagram);
      return std::vector<Datagram>{datagram};
    }
    std::vector<Datagram> arriving{datagram};
    for (int i = 0; i < 10 && seen_ < kept_.size(); ++i) arriving.push_back(kept_[seen_++]);
    return arriving;
  });
  EXPECT_EQ(exchange(200'000), 0);
  std::this_thread::sleep_for(std::chrono::seconds(137));
  exclusive([&] {
    repeats = true;
    attacks_ = 0;
  });
  const std::uint64_t before = figure("dropped_replayed");
  for (bool all = false; !all && stateOf(atB) == ChannelState::kConnected;) {
    EXPECT_EQ(exchange(200'000), 0);
    exclusive([&] {
      all = seen_ == kept_.size();
      attacks_ = 0;
    });
  }
  EXPECT_EQ(stateOf(atA), ChannelState::kConnected);
  EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
  EXPECT_LE(duplicates(), 0);
  EXPECT_GE(figure("dropped_replayed") + figure("dropped_forged") - before, kAttacks);
}

// ICMP is the kernel's business with one socket.
class IcmpAttacker : public Attacker {};

// "The port is closed", quoting a datagram that just went by.
TEST_P(IcmpAttacker, ForgesPortUnreachable_SealedSessionsLiveOn) {
  inNetworkOfItsOwn([&] {
    connectUnder([this](const Datagram& datagram) {
      if (begun_ && attacks_++ < kAttacks) test::forgeUnreachable(address_, address_, datagram);
      return std::vector<Datagram>{datagram};
    });
    EXPECT_EQ(exchange(100'000), 0);
    if (sealed()) {
      EXPECT_EQ(stateOf(atA), ChannelState::kConnected);
      EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
    } else {
      EXPECT_EQ(stateOf(atB), ChannelState::kFailed) << "the attack works no more: it proves nothing";
    }
  });
}

// "The datagram was too large", quoting one too.
TEST_P(IcmpAttacker, ForgesTooLarge_DatagramsStayAsLarge) {
  inNetworkOfItsOwn([&] {
    connectUnder([this](const Datagram& datagram) {
      if (begun_) test::forgeUnreachable(address_, address_, datagram, ++attacks_ % 2 == 0 ? 600 : 1300);
      return std::vector<Datagram>{datagram};
    });
    ASSERT_TRUE(wait([&] { return smallestSize() == largestSize(); }));
    // Longer than the probes take by which a session would find a smaller size.
    for (const TimePoint end = monotonicNow() + std::chrono::seconds(1); monotonicNow() < end;) {
      EXPECT_EQ(exchange(100'000), 0);
      exclusive([&] { attacks_ = 0; });
    }
    exclusive([&] {
      begun_ = false;
      EXPECT_EQ(smallestSize(), largestSize());
    });
    EXPECT_EQ(stateOf(atA), ChannelState::kConnected);
    EXPECT_EQ(stateOf(atB), ChannelState::kConnected);
  });
}

// Under another session's id, back to its sender, of another version, cut and lengthened.
TEST_P(Attacker, SendsNonsense_SealedSessionsLiveOn) {
  if (!sealed()) GTEST_SKIP() << "plain datagrams have tests of their own: core_hostile_test.cc";
  connectUnder([this](const Datagram& datagram) {
    const std::uint64_t id = wire::receiverIdOf(datagram);
    if (id != ids_[0]) ids_[1] = std::exchange(ids_[0], id);
    ++attacks_;
    std::vector<Datagram> arriving{datagram, datagram, datagram, datagram, datagram};
    storeLittle(arriving[1].data() + 8, ids_[1]);
    arriving[2][2] = std::byte{1};
    arriving[3].resize(datagram.size() - 1 - seen_++ % 60);
    arriving[4].resize(datagram.size() + 1);
    return arriving;
  });
  EXPECT_EQ(exchange(100'000), 0);
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

// One end of a sealed channel between two processes, over the loopback.
struct SealedEnd {
  SealedEnd(int rank, int toOther) {
    TransportConfig config;
    config.security = Security::kEncrypt;
    config.interface = "127.0.0.1";
    transport = makeDatagramTransport(config, udp::makeUdpPort(config).value()).value();
    exclusive([&] {
      channel = std::move(transport->openChannel({.localRank = rank, .peerRank = 1 - rank}, &observer).value());
      const auto own = channel->localAddress();
      EXPECT_EQ(::send(toOther, own.data(), own.size(), 0), static_cast<ssize_t>(own.size()));
    });
    std::vector<std::byte> peer(MessageChannel::kMaxAddressBytes);
    const ssize_t length = ::recv(toOther, peer.data(), peer.size(), 0);
    EXPECT_GT(length, 0);
    exclusive([&] { EXPECT_TRUE(channel->connect(std::span(peer).first(static_cast<std::size_t>(length))).ok()); });
    EXPECT_TRUE(reaches(ChannelState::kConnected));
  }
  ~SealedEnd() {
    exclusive([&] { channel.reset(); });
  }
  void exclusive(const std::function<void()>& f) const { transport->progress().exclusive(f); }
  bool reaches(ChannelState state) const {
    return transport->progress().waitUntil([&] { return observer.state == state; },
                                           monotonicNow() + std::chrono::seconds(30));
  }
  Recorder observer;
  std::shared_ptr<Transport> transport;
  std::unique_ptr<MessageChannel> channel;
};

// Its kernel's ICMP proves nothing, but nobody answers.
TEST(SealedPeer, IsKilled_ChannelFailsWithinSeconds) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const FileDescriptor here(ends[0]), there(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const SealedEnd end(1, there.get());
    ::raise(SIGKILL);
  }
  const SealedEnd end(0, here.get());
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const TimePoint begin = monotonicNow();
  ASSERT_TRUE(end.reaches(ChannelState::kFailed));
  EXPECT_GE(monotonicNow() - begin, std::chrono::seconds(2)) << "it believed the ICMP";
  EXPECT_LE(monotonicNow() - begin, std::chrono::seconds(30));
  end.exclusive([&] {
    EXPECT_EQ(end.channel->error().code, ErrorCode::kPeerVanished);
    EXPECT_NE(end.channel->error().message.find("port is closed"), std::string::npos);
  });
}

std::string nameOf(const ::testing::TestParamInfo<std::tuple<Path, Security>>& info) {
  static constexpr const char* kPaths[] = {"Memory", "Socket", "Sockets", "SocketV6"};
  return std::string(kPaths[static_cast<std::size_t>(std::get<Path>(info.param))]) +
         (std::get<Security>(info.param) == Security::kEncrypt ? "Sealed" : "Plain");
}

INSTANTIATE_TEST_SUITE_P(Paths, Attacker,
                         ::testing::Combine(::testing::Values(Path::kMemory, Path::kSocket, Path::kSockets),
                                            ::testing::Values(Security::kOff, Security::kEncrypt)),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Paths, IcmpAttacker,
                         ::testing::Combine(::testing::Values(Path::kSocket, Path::kSocketV6),
                                            ::testing::Values(Security::kOff, Security::kEncrypt)),
                         nameOf);

}  // namespace
}  // namespace gloo_bypass::test
