// Ports over UDP sockets within one process: over the loopback, both families, with and without offload.
#include <gtest/gtest.h>
#include <netinet/ip_icmp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "tests/support/forged_icmp.h"
#include "tests/support/no_more_descriptors.h"
#include "tests/support/no_more_threads.h"
#include "tests/transport/udp/port_pair.h"
#include "transport/channel/channel_address.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/network/local_address.h"
#include "transport/udp/back_end.h"
#include "transport/udp/peer_filter.h"
#include "transport/udp/port_address.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::udp {
namespace {

// Called for each message before the kernel. Not 0: the error to return in its place.
std::function<int(const msghdr&)> beforeSending;

}  // namespace
}  // namespace gloo_bypass::udp

// Replaces the C library's.
extern "C" int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  if (gloo_bypass::udp::beforeSending && count > 0) {
    if (const int error = gloo_bypass::udp::beforeSending(messages->msg_hdr)) {
      errno = error;
      return -1;
    }
  }
  return static_cast<int>(::syscall(SYS_sendmmsg, socket, messages, count, flags));
}

namespace gloo_bypass::udp {
namespace {

using network::chooseLocalAddress;
using network::Endpoint;
using network::parseIp;
using std::chrono::milliseconds;
using std::chrono::seconds;

TransportConfig at(const std::string& address) {
  TransportConfig config;
  config.interface = address;
  return config;
}

// SendBatch -------------------------------------------------------------------------------------

class Batch : public ::testing::Test {
 protected:
  bool append(SendBatch::Destination& to, std::size_t bytes) {
    const auto data = pattern(bytes);
    return batch_.append(to, {std::span(data).first(bytes / 2), std::span(data).subspan(bytes / 2)});
  }
  std::vector<std::size_t> segments() const {
    std::vector<std::size_t> counts;
    for (const auto& run : batch_.runs()) counts.push_back(run.segments);
    return counts;
  }
  // The content of a run, as the kernel gets it.
  std::vector<std::byte> content(std::size_t run) const {
    std::vector<std::byte> all;
    for (const auto& datagram : batch_.datagrams(batch_.runs()[run])) {
      all.insert(all.end(), datagram.begin, datagram.begin + datagram.copied);
      all.insert(all.end(), datagram.inPlace.begin(), datagram.inPlace.end());
    }
    return all;
  }
  SendBatch batch_;
  void expectWholeRuns() const {
    const std::vector<std::size_t> runs = segments();
    EXPECT_EQ(std::adjacent_find(runs.begin(), runs.end(), std::not_equal_to<>()), runs.end());
  }

  SendBatch::Destination one_, two_;
};

TEST_F(Batch, EqualSizesToOnePeer_AreOneRunThatAShorterOneEnds) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(append(one_, 1000));
  ASSERT_TRUE(append(one_, 10));
  ASSERT_TRUE(append(one_, 10));
  ASSERT_TRUE(append(one_, 11));
  ASSERT_TRUE(append(two_, 11));
  ASSERT_TRUE(append(one_, 11));
  EXPECT_EQ(segments(), (std::vector<std::size_t>{4, 1, 1, 1, 1}));
  ASSERT_EQ(batch_.runs()[0].bytes, 3010U);
  const auto sent = content(0);
  ASSERT_EQ(sent.size(), 3010U);
  EXPECT_EQ(std::memcmp(&sent[1000], pattern(1000).data(), 1000), 0);
  EXPECT_EQ(std::memcmp(&sent[3000], pattern(10).data(), 10), 0);
}

TEST_F(Batch, LongPayload_StaysWhereItIsUntilKept) {
  const auto header = pattern(20, 1);
  auto first = pattern(8952, 2), second = pattern(8952, 3);
  auto expected = header;
  expected.insert(expected.end(), second.begin(), second.end());
  ASSERT_TRUE(batch_.append(one_, {header, first, true}));
  ASSERT_TRUE(batch_.append(one_, {header, second, true}));
  ASSERT_TRUE(append(one_, 100));
  EXPECT_EQ(segments(), (std::vector<std::size_t>{3}));
  EXPECT_EQ(batch_.datagrams(batch_.runs()[0])[1].inPlace.data(), second.data());
  batch_.remove(1);
  std::fill(first.begin(), first.end(), std::byte{0});  // gone, and its user's again
  batch_.keep();
  std::fill(second.begin(), second.end(), std::byte{0});
  const auto last = pattern(100);
  expected.insert(expected.end(), last.begin(), last.end());
  EXPECT_EQ(content(0), expected);
  EXPECT_EQ(batch_.runs()[0].bytes, expected.size());
  batch_.remove(2);
  batch_.keep();
  EXPECT_TRUE(batch_.empty());
}

TEST_F(Batch, RunsAreNotLongerThanTheKernelTakes) {
  for (std::size_t i = 0; i < SendBatch::kMaxSegments + 1; ++i) ASSERT_TRUE(append(one_, 100));
  EXPECT_EQ(segments(), (std::vector<std::size_t>{SendBatch::kMaxSegments, 1}));
  batch_.remove(SendBatch::kMaxSegments + 1);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(append(one_, 8972));
  EXPECT_EQ(segments(), (std::vector<std::size_t>{7, 1}));
}

// A message of one datagram costs the kernel a third of one of 44.
TEST_F(Batch, Burst_IsWholeRuns) {
  for (const std::size_t size : {1232U, 1452U, 1472U, 4052U, 8952U, 8972U, 65'507U}) {
    SCOPED_TRACE(size);
    const std::size_t burst = SendBatch::burst(size);
    EXPECT_GT(burst, SendBatch::kMaxSegments / 2);
    for (std::size_t i = 0; i < burst; ++i) {
      if (append(one_, size)) continue;
      expectWholeRuns();
      batch_.remove(burst);
      ASSERT_TRUE(append(one_, size));
    }
    expectWholeRuns();
    batch_.remove(burst);
    ASSERT_TRUE(batch_.empty());
  }
}

TEST_F(Batch, Full_TakesNoMoreUntilAllHasLeft) {
  std::size_t count = 0;
  while (append(one_, 60'000)) ++count;
  EXPECT_EQ(count, SendBatch::kBytes / 60'000);
  batch_.remove(1);
  EXPECT_EQ(segments().size(), count - 1);
  EXPECT_FALSE(append(one_, 60'000));
  batch_.remove(count - 1);
  EXPECT_TRUE(batch_.empty());
  EXPECT_TRUE(append(one_, 60'000));
}

TEST_F(Batch, PartOfARunLeaves_TheRestStays) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(append(one_, 100));
  ASSERT_TRUE(append(two_, 100));
  batch_.remove(2);
  EXPECT_EQ(segments(), (std::vector<std::size_t>{3, 1}));
  EXPECT_EQ(batch_.runs()[0].bytes, 300U);
  ASSERT_TRUE(append(one_, 100));
  batch_.remove(3);
  EXPECT_EQ(segments(), (std::vector<std::size_t>{1, 1}));
  batch_.remove(2);
  EXPECT_TRUE(batch_.empty());
}

// UdpSocket -------------------------------------------------------------------------------------

TEST(UdpSocket, RunOfDatagrams_IsOneSegmentedSendAndOneReceive) {
  const auto a = UdpSocket::open(*parseIp("127.0.0.1")), b = UdpSocket::open(*parseIp("127.0.0.1"));
  const auto plain = UdpSocket::open(*parseIp("127.0.0.1"), {}, Offload::kNone);
  ASSERT_TRUE(a.ok() && b.ok() && plain.ok());
  if (!a.value()->offloads()) GTEST_SKIP() << "this kernel has no UDP_SEGMENT";
  SendBatch batch;
  const auto fill = [&](SendBatch::Destination& to) {
    for (std::size_t i = 0; i < 20; ++i) {
      const auto bytes = pattern(i == 19 ? 77 : 1472, i);
      ASSERT_TRUE(batch.append(to, {bytes, {}}));
    }
    ASSERT_EQ(a.value()->send(batch).error, 0);
    ASSERT_TRUE(batch.empty());
  };
  SendBatch::Destination toB{.link = 1, .peer = b.value()->local()}, toPlain{.link = 2, .peer = plain.value()->local()};
  fill(toB);
  const auto received = b.value()->receive();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].segmentBytes, 1472U);
  ASSERT_EQ(received[0].bytes.size(), 19 * 1472 + 77U);
  // A socket that cannot receive offload gets the same as single datagrams.
  fill(toPlain);
  std::size_t count = 0;
  for (auto messages = plain.value()->receive(); !messages.empty(); messages = plain.value()->receive()) {
    for (const auto& message : messages) {
      EXPECT_EQ(message.bytes.size(), count == 19 ? 77U : 1472U);
      EXPECT_EQ(message.segmentBytes, message.bytes.size());
      ++count;
    }
  }
  EXPECT_EQ(count, 20U);
}

TEST(UdpSocket, LargerThanTheMtu_FailsAndIsNotFragmented) {
  const auto a = UdpSocket::open(*parseIp("127.0.0.1")), b = UdpSocket::open(*parseIp("127.0.0.1"));
  ASSERT_TRUE(a.ok() && b.ok());
  const auto mtu = routeMtu(a.value()->local(), b.value()->local());
  ASSERT_TRUE(mtu.ok());
  ASSERT_GE(mtu.value(), 65'000U);  // more does not fit UDP: what is too large for an MTU is in udp_namespace_test.cc
  SendBatch batch;
  SendBatch::Destination to{.link = 1, .peer = b.value()->local()};
  const auto bytes = pattern(65'508);
  ASSERT_TRUE(batch.append(to, {bytes, {}}));
  const auto failure = a.value()->send(batch);
  EXPECT_EQ(failure.error, EMSGSIZE);
  EXPECT_EQ(failure.segments, 1U);
  EXPECT_TRUE(b.value()->receive().empty());
}

// UdpPort ---------------------------------------------------------------------------------------

struct Kind {
  std::string name, address;
  Offload offload;
};

class UdpPorts : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    const std::string& address = GetParam().address;
    if (address == "::1" && !UdpSocket::open(*parseIp(address)).ok()) GTEST_SKIP() << "no ::1 here";
    a_ = open();
    b_ = open();
    ASSERT_TRUE(a_ != nullptr && b_ != nullptr);
    toB_ = linkTo(*a_, *b_);
    toA_ = linkTo(*b_, *a_);
  }
  std::unique_ptr<PacketPort> open() {
    auto port = makeUdpPort(at(GetParam().address), GetParam().offload);
    EXPECT_TRUE(port.ok()) << port.error().message;
    return port.ok() ? std::move(port).value() : nullptr;
  }
  std::unique_ptr<PacketPort> a_, b_;
  LinkId toB_ = 0, toA_ = 0;
  KeepingSink atA_, atB_;
};

TEST_P(UdpPorts, PingPongOfAllSizes_ArrivesBitExact) {
  const std::size_t largest = a_->linkProperties(toB_).maxDatagramBytes;
  EXPECT_EQ(largest, GetParam().address == "::1" ? 65'488U : 65'507U);
  for (std::size_t length = 1; length <= largest;
       length = length == largest ? largest + 1 : std::min(length * 3 / 2 + 1, largest)) {
    ASSERT_EQ(transmit(*a_, toB_, pattern(length)), 1U);
    wakePeers(*a_);
    ASSERT_TRUE(receiveUntil(*b_, atB_, [&] { return !atB_.datagrams.empty(); })) << length;
    ASSERT_EQ(atB_.datagrams[0], pattern(length));
    ASSERT_EQ(atB_.links[0], toA_);
    ASSERT_TRUE(atB_.arrivalsTold);
    ASSERT_EQ(transmit(*b_, toA_, atB_.datagrams[0]), 1U);
    wakePeers(*b_);
    ASSERT_TRUE(receiveUntil(*a_, atA_, [&] { return !atA_.datagrams.empty(); })) << length;
    ASSERT_EQ(atA_.datagrams[0], pattern(length));
    atA_ = atB_ = {};
  }
  EXPECT_EQ(a_->counters().packetsSent, b_->counters().packetsReceived);
  EXPECT_EQ(a_->counters().bytesSent, b_->counters().bytesReceived);
}

TEST_P(UdpPorts, BurstsOfSeveralSizes_ArriveWholeAndInOrderAsManyATimeAsAsked) {
  std::vector<std::size_t> sizes;
  for (const std::size_t size : {1472, 100, 1200, 8972, 1}) {
    for (int i = 0; i < 50; ++i) sizes.push_back(size);
    sizes.push_back(size / 2 + 1);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) ASSERT_EQ(transmit(*a_, toB_, pattern(sizes[i], i)), 1U) << i;
  wakePeers(*a_);
  while (atB_.datagrams.size() < sizes.size()) {
    const std::size_t before = atB_.datagrams.size();
    ASSERT_TRUE(receiveUntil(*b_, atB_, [&] { return atB_.datagrams.size() > before; })) << before;
    const std::size_t some = b_->receive(atB_, 7);
    ASSERT_LE(some, 7U);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) ASSERT_EQ(atB_.datagrams[i], pattern(sizes[i], i)) << i;
}

TEST_P(UdpPorts, ManyPeers_EachGetsItsOwn) {
  std::vector<std::unique_ptr<PacketPort>> peers;
  std::vector<LinkId> links;
  for (std::size_t i = 0; i < 100; ++i) {
    peers.push_back(open());
    links.push_back(linkTo(*a_, *peers.back()));
    EXPECT_EQ(linkTo(*a_, *peers.back()), links.back());
    (void)linkTo(*peers.back(), *a_);
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < peers.size(); ++i) ASSERT_EQ(transmit(*a_, links[i], pattern(500, i)), 1U);
  }
  wakePeers(*a_);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    KeepingSink sink;
    ASSERT_TRUE(receiveUntil(*peers[i], sink, [&] { return sink.datagrams.size() >= 3; })) << i;
    for (const auto& datagram : sink.datagrams) EXPECT_EQ(datagram, pattern(500, i));
  }
}

TEST_P(UdpPorts, ToItself_Arrives) {
  const LinkId self = linkTo(*a_, *a_);
  ASSERT_EQ(transmit(*a_, self, pattern(300)), 1U);
  wakePeers(*a_);
  ASSERT_TRUE(receiveUntil(*a_, atA_, [&] { return !atA_.datagrams.empty(); }));
  EXPECT_EQ(atA_.datagrams[0], pattern(300));
}

TEST_P(UdpPorts, StrangersDatagrams_AreCountedAndNotHandedUp) {
  const auto stranger = open();
  ASSERT_EQ(transmit(*stranger, linkTo(*stranger, *b_), pattern(100)), 1U);
  wakePeers(*stranger);
  ASSERT_EQ(transmit(*a_, toB_, pattern(60)), 1U);
  wakePeers(*a_);
  // The kernel tells how many it dropped with the next datagram.
  const auto dropped = [&] { return b_->counters().droppedForeign + b_->counters().droppedNoBuffer; };
  ASSERT_TRUE(receiveUntil(*b_, atB_, [&] { return !atB_.datagrams.empty() && dropped() == 1; }));
  ASSERT_EQ(atB_.datagrams.size(), 1U);
  EXPECT_EQ(atB_.datagrams[0], pattern(60));
}

// Without the kernel's filter, which is for fewer, each one wakes whoever sleeps.
TEST_P(UdpPorts, StrangersDatagrams_WithMorePeersThanTheFilterHolds_AreTold) {
  for (std::size_t i = 0; i < kMostFilteredPeers; ++i) {
    Endpoint peer = *parseIp(GetParam().address);
    peer.setPort(static_cast<std::uint16_t>(1 + i));
    ASSERT_TRUE(b_->openLink(encode(std::span(&peer, 1))).ok());
  }
  const auto stranger = open();
  ASSERT_EQ(transmit(*stranger, linkTo(*stranger, *b_), pattern(100)), 1U);
  wakePeers(*stranger);
  ASSERT_TRUE(receiveUntil(*b_, atB_, [&] { return atB_.strangers == 1; }));
  EXPECT_TRUE(atB_.datagrams.empty());
}

TEST_P(UdpPorts, ClosedLink_WhatItTookArrivesAndItCanBeOpenedAgain) {
  ASSERT_EQ(transmit(*a_, toB_, pattern(10)), 1U);
  a_->closeLink(toB_);
  wakePeers(*a_);
  const LinkId again = linkTo(*a_, *b_);
  EXPECT_NE(again, toB_);
  ASSERT_EQ(transmit(*a_, again, pattern(20)), 1U);
  wakePeers(*a_);
  ASSERT_TRUE(receiveUntil(*b_, atB_, [&] { return atB_.datagrams.size() == 2; }));
  EXPECT_EQ(atB_.datagrams[0], pattern(10));
  EXPECT_EQ(atB_.datagrams[1], pattern(20));
}

TEST_P(UdpPorts, WakeFromAnotherThread_EndsASleep) {
  a_->armWakeup();
  const TimePoint start = monotonicNow();
  std::thread waker([&] {
    ::usleep(50'000);
    a_->wake();
  });
  a_->block(seconds(30));
  a_->disarmWakeup();
  waker.join();
  EXPECT_LT(monotonicNow() - start, seconds(20));
}

TEST_P(UdpPorts, PortClosedAndNeverAsleep_LinkGoesDown) {
  b_.reset();
  atA_.session = pattern(60);
  for (const TimePoint end = monotonicNow() + seconds(20); atA_.down.empty() && monotonicNow() < end; ::usleep(1'000)) {
    (void)transmit(*a_, toB_, pattern(60));
    wakePeers(*a_);
    (void)a_->receive(atA_, 64);
  }
  EXPECT_EQ(atA_.down.size(), 1U);
}

TEST_P(UdpPorts, PortClosed_LinkGoesDownOnlyIfASessionIsQuoted) {
  b_.reset();
  atA_.session = pattern(60);
  const auto sendUntilDown = [&](std::span<const std::byte> bytes, Duration limit) {
    const TimePoint end = monotonicNow() + limit;
    while (atA_.down.empty() && monotonicNow() < end) {
      (void)transmit(*a_, toB_, bytes);
      wakePeers(*a_);
      (void)receiveUntil(*a_, atA_, [&] { return !atA_.down.empty(); }, milliseconds(20));
    }
    return !atA_.down.empty();
  };
  EXPECT_FALSE(sendUntilDown(pattern(61), milliseconds(300)));
  EXPECT_TRUE(sendUntilDown(pattern(60), seconds(20)));
  ASSERT_EQ(atA_.down.size(), 1U);
  EXPECT_EQ(atA_.down[0].first, toB_);
  EXPECT_NE(atA_.down[0].second.find("port is closed"), std::string::npos);
  EXPECT_EQ(transmit(*a_, toB_, pattern(10)), 0U);
}

INSTANTIATE_TEST_SUITE_P(, UdpPorts,
                         ::testing::Values(Kind{"IPv4", "127.0.0.1", Offload::kWhereThereIs},
                                           Kind{"IPv6", "::1", Offload::kWhereThereIs},
                                           Kind{"IPv4Plain", "127.0.0.1", Offload::kNone},
                                           Kind{"IPv6Plain", "::1", Offload::kNone}),
                         [](const auto& info) { return info.param.name; });

void sendByte(const UdpSocket& from, const UdpSocket& there) {
  const Endpoint to = there.local();
  EXPECT_EQ(::sendto(from.fd(), "x", 1, 0, &to.any, to.isV6() ? sizeof(to.v6) : sizeof(to.v4)), 1);
}

// Whether the next to arrive, and the only one, is a byte of `from`.
bool arrives(const UdpSocket& from, UdpSocket& there) {
  pollfd waiting{there.fd(), POLLIN, 0};
  if (::poll(&waiting, 1, 5000) != 1) return false;
  const auto received = there.receive();
  return received.size() == 1 && received[0].bytes.size() == 1 &&
         network::toString(received[0].from) == network::toString(from.local());
}

bool passes(const UdpSocket& from, UdpSocket& there) {
  sendByte(from, there);
  return arrives(from, there);
}

TEST(PeerFilter, AnyNumberOfPeers_TheyPassAndStrangersWakeNobody) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    const auto open = [&] { return std::move(UdpSocket::open(*parseIp(address))).value(); };
    const auto socket = open(), stranger = open();
    EXPECT_TRUE(passes(*stranger, *socket)) << "no filter yet";
    std::vector<std::unique_ptr<UdpSocket>> peers;
    std::vector<Endpoint> addresses;
    for (std::size_t i = 0; i <= kMostFilteredPeers; ++i) {
      const bool told = i < 4 || i == 77 || i >= kMostFilteredPeers - 1;
      if (told) {
        socket->acceptOnly(addresses);
        // If it passed, it would be before the next peer's.
        sendByte(*stranger, *socket);
        EXPECT_EQ(std::ranges::count_if(peers, [&](const auto& peer) { return passes(*peer, *socket); }), i)
            << address << ": " << i;
      }
      addresses.push_back(peers.emplace_back(open())->local());
    }
    socket->acceptOnly(addresses);
    EXPECT_TRUE(passes(*stranger, *socket)) << "more than the filter holds";
    EXPECT_TRUE(passes(*peers.back(), *socket));
  }
}

// Errors of the network, through the real sessions ------------------------------------------------

class OneSession : public ::testing::Test, public ChannelObserver {
 protected:
  static constexpr std::uint64_t kPeerSession = 0x1122334455667788;
  // Begins to connect, at an open port, with a session that does not exist.
  void connect() {
    auto port = openPort(at("127.0.0.1"));
    own_ = decode(port->localAddress()).value().front();
    peer_ = openPort(at("127.0.0.1"));
    transport_ = makeDatagramTransport({}, std::move(port)).value();
    transport_->progress().exclusive([&] {
      auto channel = transport_->openChannel({}, this);
      ASSERT_TRUE(channel.ok());
      channel_ = std::move(channel).value();
      ASSERT_TRUE(channel_->connect(encodeChannelAddress({kPeerSession, peer_->localAddress(), "a peer"})).ok());
    });
  }
  void TearDown() override {
    if (!transport_) return;
    transport_->progress().exclusive([&] { channel_.reset(); });
    transport_.reset();
  }
  bool failsWithin(Duration limit) {
    return transport_->progress().waitUntil([&] { return channel_->state() == ChannelState::kFailed; },
                                            monotonicNow() + limit);
  }
  void onSendComplete(OperationToken) noexcept override {}
  void onReceiveComplete(OperationToken, std::size_t) noexcept override {}
  void onMessageAnnounced(MessageKey, std::size_t) noexcept override {}
  void onStateChange(ChannelState) noexcept override {}

  Endpoint own_;
  std::unique_ptr<PacketPort> peer_;
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<MessageChannel> channel_;
};

TEST_F(OneSession, PeersPortCloses_ChannelFailsAtOnce) {
  connect();
  EXPECT_FALSE(failsWithin(milliseconds(100)));
  peer_.reset();
  ASSERT_TRUE(failsWithin(seconds(10)));
  EXPECT_EQ(channel_->error().code, ErrorCode::kPeerVanished);
  EXPECT_NE(channel_->error().message.find("a peer"), std::string::npos);
  EXPECT_NE(channel_->error().message.find("127.0.0.1:"), std::string::npos);
}

// The kernel has two queues: one for a peer's datagrams, one for the news that its port is closed.
class PeerEnds : public ::testing::Test, public PacketSink {
 protected:
  void SetUp() override {
    ASSERT_TRUE(port_ != nullptr && peer_ != nullptr);
    toPeer_ = linkTo(*port_, *peer_);
    toPort_ = linkTo(*peer_, *port_);
  }
  static bool send(PacketPort& from, LinkId link) {
    static const std::vector<std::byte> bytes(1000);
    const OutgoingDatagram datagram{bytes, {}};
    const bool taken = from.transmit(link, {&datagram, 1}) == 1;
    from.wakePeers();
    return taken;
  }
  // As the kernel answers over the loopback, before the call returns.
  void endPeer() {
    peer_.reset();
    ASSERT_TRUE(send(*port_, toPeer_));
  }
  void onDatagram(LinkId, std::span<const std::byte>) noexcept override { ++(down_ ? after_ : before_); }
  void onLinkDown(LinkId, const Error& error) noexcept override { down_ = error.code == ErrorCode::kPeerVanished; }
  bool sentBySession(LinkId, std::span<const std::byte>) const noexcept override { return true; }

  std::unique_ptr<PacketPort> port_ = openPort(at("127.0.0.1")), peer_ = openPort(at("127.0.0.1"));
  LinkId toPeer_ = 0, toPort_ = 0;
  std::size_t before_ = 0, after_ = 0;
  bool down_ = false;
};

TEST_F(PeerEnds, WhatItHadSentBefore_IsHandedUpBeforeTheLinksEnd) {
  constexpr std::size_t kDatagrams = 150;  // more than a receive() takes; where no limit was raised a socket holds 185
  for (std::size_t sent = 0; sent < kDatagrams;) sent += send(*peer_, toPort_) ? 1 : 0;
  endPeer();
  const TimePoint end = monotonicNow() + seconds(10);
  while (!down_ && monotonicNow() < end) (void)port_->receive(*this, 64);
  EXPECT_TRUE(down_);
  EXPECT_EQ(before_, kDatagrams);
  EXPECT_EQ(after_, 0u);
}

// The socket is never empty, and datagrams without a byte fill it as well.
TEST_F(PeerEnds, SomebodyKeepsSendingEmptyDatagrams_TheLinksEndIsToldAllTheSame) {
  const Endpoint own = decode(port_->localAddress()).value().front();
  const FileDescriptor stranger(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  endPeer();
  for (int i = 0; i < 100'000 && !down_; ++i) {
    ASSERT_EQ(::sendto(stranger.get(), nullptr, 0, 0, &own.any, sizeof(own.v4)), 0);
    (void)port_->receive(*this, 64);
  }
  EXPECT_TRUE(down_);
}

std::vector<std::byte> beginningOfHelloTo(std::uint64_t session) {
  wire::PacketHeader header;
  header.type = wire::FrameType::kHello;
  header.receiverId = session;
  wire::PacketWriter writer;
  writer.begin(header);
  const auto written = writer.finish();
  return {written.begin(), written.begin() + wire::kCommonHeaderBytes};
}

void forgeUnreachable(const Endpoint& from, const Endpoint& to, std::uint64_t session, std::uint16_t mtu = 0,
                      std::uint8_t code = ICMP_PORT_UNREACH) {
  test::forgeUnreachable(from, to, beginningOfHelloTo(session), mtu, code);
}

TEST_F(OneSession, ForgedUnreachable_CountsOnlyWithOurSessionsId) {
  if (!test::rawSocket()) GTEST_SKIP() << "needs root for a raw socket";
  connect();
  const Endpoint peer = decode(peer_->localAddress()).value().front();
  for (int i = 0; i < 20; ++i) forgeUnreachable(own_, peer, kPeerSession + 1);
  EXPECT_FALSE(failsWithin(milliseconds(300)));
  forgeUnreachable(own_, peer, kPeerSession);
  EXPECT_TRUE(failsWithin(seconds(5)));
}

// More than one receive() reads: a port that never sleeps does not forget the rest.
TEST(UdpErrors, ManyForgedUnreachables_AllAreReadInTheEnd) {
  if (!test::rawSocket()) GTEST_SKIP() << "needs root for a raw socket";
  const auto port = openPort(at("127.0.0.1")), peer = openPort(at("127.0.0.1"));
  const Endpoint own = decode(port->localAddress()).value().front(),
                 other = decode(peer->localAddress()).value().front();
  const LinkId link = linkTo(*port, *peer);
  KeepingSink sink;
  sink.session = beginningOfHelloTo(1);
  for (int i = 0; i < 70; ++i) forgeUnreachable(own, other, 2);
  forgeUnreachable(own, other, 1);
  port->receive(sink, 64);  // meets with an error
  port->receive(sink, 64);
  EXPECT_TRUE(sink.down.empty()) << "one receive() reads without a bound";
  port->receive(sink, 64);
  ASSERT_EQ(sink.down.size(), 1U);
  EXPECT_EQ(sink.down[0].first, link);
}

class Segmentation : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto* socket : {&a_, &b_, &c_}) *socket = std::move(UdpSocket::open(*parseIp("127.0.0.1"))).value();
    if (!a_->offloads()) GTEST_SKIP() << "this kernel has no UDP_SEGMENT";
  }
  void TearDown() override { beforeSending = nullptr; }
  // The number of messages in which three datagrams arrived.
  std::size_t messagesOfThree(SendBatch::Destination& to, UdpSocket& there) {
    SendBatch batch;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(batch.append(to, {pattern(1000), {}}));
    EXPECT_EQ(a_->send(batch).error, 0);
    std::size_t messages = 0, bytes = 0;
    for (auto received = there.receive(); !received.empty(); received = there.receive()) {
      messages += received.size();
      for (const auto& message : received) bytes += message.bytes.size();
    }
    EXPECT_EQ(bytes, 3000U);
    return messages;
  }

  std::unique_ptr<UdpSocket> a_, b_, c_;
};

// Each ends one call with its error (icmp_err_convert), even an unrelated call.
TEST_F(Segmentation, ForgedUnreachableOfEachCodeBeforeEachCall_StaysOn) {
  if (!test::rawSocket()) GTEST_SKIP() << "needs root for a raw socket";
  SendBatch::Destination toB{.link = 1, .peer = b_->local()};
  for (std::uint8_t code = 0; code <= NR_ICMP_UNREACH; ++code) {
    if (code == ICMP_FRAG_NEEDED) continue;  // the kernel would remember it, for other tests too
    SCOPED_TRACE(static_cast<int>(code));
    beforeSending = [&](const msghdr&) {
      forgeUnreachable(a_->local(), b_->local(), 1, 0, code);
      return 0;
    };
    SendBatch batch;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(batch.append(toB, {pattern(1000), {}}));
    EXPECT_NE(a_->send(batch).error, 0) << "the messages did not come";
    beforeSending = nullptr;
    EXPECT_TRUE(a_->metError());
    EXPECT_EQ(messagesOfThree(toB, *b_), 1U);
  }
}

// As the kernel does with IPsec on the path.
TEST_F(Segmentation, KernelRefusesItTowardsOnePeer_ThatOneGetsSingleDatagramsUntilTheKernelTakesItAgain) {
  SendBatch::Destination toB{.link = 1, .peer = b_->local()}, toC{.link = 2, .peer = c_->local()};
  const TimePoint before = monotonicNow();
  bool refuses = true;
  int tried = 0;
  beforeSending = [&](const msghdr& message) {
    if (message.msg_controllen == 0 || message.msg_name != &toB.peer) return 0;
    ++tried;
    return refuses ? EIO : 0;
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(messagesOfThree(toB, *b_), 3U);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("each datagram is sent by itself"), std::string::npos);
  EXPECT_GT(toB.singlyUntil, before) << "it is asked again each time";
  EXPECT_LE(toB.singlyUntil, monotonicNow() + std::chrono::minutes(1)) << "it is never asked again";
  toB.singlyUntil += std::chrono::hours(1);
  const int first = tried;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(messagesOfThree(toB, *b_), 3U);
  EXPECT_EQ(tried, first) << "it is asked before its time";
  EXPECT_EQ(messagesOfThree(toC, *c_), 1U);
  refuses = false;
  toB.singlyUntil = monotonicNow();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(messagesOfThree(toB, *b_), 1U);
}

// A hint about the path's MTU is only a reason to probe: this one is wrong.
TEST_F(OneSession, ForgedFragmentationNeeded_ChangesNothing) {
  if (!test::rawSocket()) GTEST_SKIP() << "needs root for a raw socket";
  // In a separate network: the kernel would remember the forged MTU, for other tests too.
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0 || std::system("ip link set lo up") != 0) GTEST_SKIP() << "needs CAP_NET_ADMIN";
    connect();
    const Endpoint peer = decode(peer_->localAddress()).value().front();
    for (const std::uint64_t session : {kPeerSession + 1, kPeerSession}) {
      forgeUnreachable(own_, peer, session, 1300);
      EXPECT_FALSE(failsWithin(milliseconds(300)));
    }
    // A later connection is not refused either.
    forgeUnreachable(own_, peer, kPeerSession, 600);
    auto later = makeUdpPort(at("127.0.0.1"));
    ASSERT_TRUE(later.ok());
    const auto link = later.value()->openLink(peer_->localAddress());
    EXPECT_TRUE(link.ok()) << link.error().message;
  }).join();
}

// Addresses and settings ------------------------------------------------------------------------

std::string errorOf(const TransportConfig& config) {
  const auto port = makeUdpPort(config);
  if (port.ok()) return "none";
  EXPECT_EQ(port.error().message.find('\n'), std::string::npos);
  return port.error().message;
}

TEST(UdpAddresses, NoDescriptorIsLeft_ErrorNamesTheLimit) {
  const auto a = openPort(at("127.0.0.1")), b = openPort(at("127.0.0.1"));
  std::optional<test::NoMoreDescriptors> none(std::in_place);
  const auto link = a->openLink(b->localAddress());
  const std::string port = errorOf(at("127.0.0.1"));
  none.reset();
  ASSERT_FALSE(link.ok());
  EXPECT_NE(link.error().message.find("RLIMIT_NOFILE"), std::string::npos) << link.error().message;
  EXPECT_NE(port.find("RLIMIT_NOFILE"), std::string::npos) << port;
}

TEST(UdpAddresses, WrongSettings_OneClearLineEach) {
  EXPECT_NE(errorOf(at("nonesuch0")).find("no interface 'nonesuch0'"), std::string::npos);
  EXPECT_NE(errorOf(at("nonesuch0")).find("lo"), std::string::npos);
  EXPECT_NE(errorOf(at("\033[2J\n")).find("no interface '\\x1b[2J\\x0a'"), std::string::npos);
  EXPECT_NE(errorOf(at("192.0.2.1")).find("GLOO_BYPASS_INTERFACE"), std::string::npos);
  EXPECT_NE(errorOf(at("a,b,c,d,e,f,g,h,i")).find("has 9 names, more than 8"), std::string::npos);
  const auto port = openPort(at("127.0.0.1"));
  TransportConfig config = at("127.0.0.1");
  const std::uint16_t taken = decode(port->localAddress()).value().front().port();
  config.udpPorts = {taken, taken};
  EXPECT_EQ(
      errorOf(config),
      "no UDP port of GLOO_BYPASS_UDP_PORT='" + std::to_string(taken) +
          "' is free at 127.0.0.1 on lo: each rank of a host takes one: set a longer range, or 0 for any free port");
  config = {};
  config.mtu = 575;
  EXPECT_NE(errorOf(config).find("GLOO_BYPASS_MTU='575'"), std::string::npos);
}

TEST(UdpAddresses, PortRange_EachTakesTheFirstFreeOneUntilNoneIsLeft) {
  TransportConfig config = at("127.0.0.77");
  config.udpPorts = {27'701, 27'703};  // outside the range from which the kernel assigns ports
  std::vector<std::unique_ptr<PacketPort>> ports;
  for (std::uint16_t expected = 27'701; expected <= 27'703; ++expected) {
    ports.push_back(openPort(config));
    ASSERT_TRUE(ports.back());
    EXPECT_EQ(decode(ports.back()->localAddress()).value().front().port(), expected);
  }
  EXPECT_NE(errorOf(config).find("GLOO_BYPASS_UDP_PORT='27701-27703' is free at 127.0.0.77 on lo"), std::string::npos)
      << errorOf(config);
  ports.erase(ports.begin() + 1);
  EXPECT_EQ(decode(openPort(config)->localAddress()).value().front().port(), 27'702) << "free again";
}

TEST(UdpBackEnd, SettingsThatDoNothing_AreALineEach) {
  TransportConfig config;
  EXPECT_TRUE(backEnd().ignoredSettings(config).empty());
  config.capture = "/tmp/x.pcapng";
  config.telemetry = true;
  EXPECT_EQ(backEnd().ignoredSettings(config).size(), 2u);
  EXPECT_TRUE(backEnd().make(config).ok()) << "they keep nothing from working";
}

TEST(UdpBackEnd, NoThreadIsLeft_ErrorNamesTheLimits) {
  {
    const test::NoMoreThreads none;
    const auto made = makeTransport(backEnd(), at("127.0.0.1"));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kExhausted);
    EXPECT_NE(made.error().message.find("no thread can be started"), std::string::npos) << made.error().message;
    EXPECT_NE(made.error().message.find("ulimit -u"), std::string::npos) << made.error().message;
  }
  EXPECT_TRUE(makeTransport(backEnd(), at("127.0.0.1")).ok());
}

TEST(UdpAddresses, Named_IsAnOrderWhateverTheHint) {
  EXPECT_EQ(ipText(chooseLocalAddress("lo", "192.0.2.1").value()), "127.0.0.1");
  EXPECT_EQ(ipText(chooseLocalAddress("127.0.0.9", "").value()), "127.0.0.9");
}

TEST(UdpAddresses, PeersThatCannotBeReached_OneClearLineEach) {
  const auto port = openPort(at("127.0.0.1"));
  const auto errorTo = [&](const std::string& ip) {
    Endpoint peer = *parseIp(ip);
    peer.setPort(5000);
    const auto link = port->openLink(encode({&peer, 1}));
    return link.ok() ? std::string("none") : link.error().message;
  };
  EXPECT_NE(errorTo("192.0.2.1").find("GLOO_BYPASS_INTERFACE"), std::string::npos);
  EXPECT_NE(errorTo("::1").find("one family"), std::string::npos);
  EXPECT_NE(errorTo("0.1.2.3").find("malformed"), std::string::npos);
  EXPECT_NE(errorTo("239.0.0.1").find("malformed"), std::string::npos);
  auto bytes = port->localAddress();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(port->openLink(std::span(bytes).first(length)).ok());
  bytes[3] = std::byte{'U'};
  EXPECT_NE(port->openLink(bytes).error().message.find("another kind of port"), std::string::npos);
}

// Several sockets -------------------------------------------------------------------------------

TEST(UdpAddresses, List_EachNameGivesAnAddressOrOneClearLine) {
  const auto chosen = network::chooseLocalAddresses("127.0.0.9,lo,::1", "", 3);
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  ASSERT_EQ(chosen.value().size(), 3U);
  EXPECT_EQ(ipText(chosen.value()[0]), "127.0.0.9");
  EXPECT_EQ(ipText(chosen.value()[1]), "127.0.0.1");
  EXPECT_EQ(ipText(chosen.value()[2]), "::1");
  EXPECT_EQ(network::chooseLocalAddresses("", "", 1).value().size(), 1U);
  const auto errorOfList = [](const std::string& list) {
    const auto refused = network::chooseLocalAddresses(list, "", 8);
    return refused.ok() ? std::string("none") : refused.error().message;
  };
  EXPECT_NE(errorOfList("lo,nonesuch").find("no interface 'nonesuch'"), std::string::npos);
  EXPECT_NE(errorOfList("lo,127.0.0.1").find("leads to 127.0.0.1 twice"), std::string::npos);
  EXPECT_NE(errorOfList("lo,").find("has an empty name"), std::string::npos);
  EXPECT_NE(errorOfList("lo,127.0.0.9,::1,a,b,c,d,e,f").find("has 9 names, more than 8"), std::string::npos);
}

TEST(UdpAddresses, SeveralEndpoints_ComeBackAsTheyWere_CutShortAsAListOfTheFirst) {
  std::vector<Endpoint> several{*parseIp("10.0.0.2"), *parseIp("fd00::2"), *parseIp("10.0.1.2")};
  for (Endpoint& one : several) one.setPort(4711);
  const auto bytes = encode(several);
  const auto decoded = decode(bytes);
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded.value().size(), several.size());
  for (std::size_t i = 0; i < several.size(); ++i) EXPECT_EQ(toString(decoded.value()[i]), toString(several[i]));
  // Up to the end of the first or second endpoint they are a shorter list.
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const bool isList = length == 5 + 7 || length == 5 + 7 + 19;
    EXPECT_EQ(decode(std::span(bytes).first(length)).ok(), isList) << length;
  }
  for (const auto other : {std::byte{1}, std::byte{2}, std::byte{4}}) {
    auto ofOther = bytes;
    ofOther[4] = other;
    EXPECT_EQ(decode(ofOther).error().code, ErrorCode::kConfiguration) << "a release with another format";
  }
  std::vector<Endpoint> many(PacketPort::kMaxRails + 1, several[0]);
  EXPECT_FALSE(decode(encode(many)).ok());
  many.pop_back();
  EXPECT_TRUE(decode(encode(many)).ok());
}

TEST(UdpRails, PortsWithUnequalLists_HaveAsManyWaysAsTheShorterOne) {
  const auto one = openPort(at("127.0.0.1")), two = openPort(at("127.0.0.1,127.0.0.2")),
             three = openPort(at("127.0.0.3,127.0.0.4,127.0.0.5"));
  EXPECT_EQ(one->rails(three->localAddress()), 1U);
  EXPECT_EQ(three->rails(one->localAddress()), 1U);
  EXPECT_EQ(two->rails(three->localAddress()), 2U);
  EXPECT_EQ(three->rails(two->localAddress()), 2U);
}

TEST(UdpRails, EachWay_GoesFromItsOwnAddressToItsOwnAddress) {
  const auto a = openPort(at("127.0.0.1,127.0.0.2")), b = openPort(at("127.0.0.3,127.0.0.4"));
  KeepingSink sink;
  std::vector<LinkId> here, there;
  for (std::size_t rail = 0; rail < 2; ++rail) {
    here.push_back(a->openRail(b->localAddress(), rail).value());
    there.push_back(b->openRail(a->localAddress(), rail).value());
    EXPECT_NE(a->describeLink(here[rail]).find("of 127.0.0." + std::to_string(1 + rail)), std::string::npos);
    EXPECT_NE(a->describeLink(here[rail]).find("to 127.0.0." + std::to_string(3 + rail)), std::string::npos);
  }
  EXPECT_EQ(a->openLink(b->localAddress()).value(), here[0]);
  for (std::size_t rail = 0; rail < 2; ++rail) {
    const auto sent = pattern(100 + rail);
    ASSERT_EQ(transmit(*a, here[rail], sent), 1U);
    wakePeers(*a);
    ASSERT_TRUE(receiveUntil(*b, sink, [&] { return sink.datagrams.size() == rail + 1; })) << "asleep on both sockets";
    EXPECT_EQ(sink.datagrams[rail], sent);
    EXPECT_EQ(sink.links[rail], there[rail]);
  }
  EXPECT_EQ(a->counters().packetsSent, 2U);
  EXPECT_EQ(b->counters().packetsReceived, 2U);
}

}  // namespace
}  // namespace gloo_bypass::udp
