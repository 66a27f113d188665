// Ports over UDP sockets between two network namespaces joined by a veth pair, under a network's faults. Needs root and
// `ip`.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/support/channel_pair.h"
#include "tests/transport/udp/port_pair.h"
#include "transport/base/file_descriptor.h"
#include "transport/network/local_address.h"

namespace gloo_bypass::udp {
namespace {

using network::chooseInterface;
using network::chooseLocalAddress;
using std::chrono::milliseconds;
using std::chrono::seconds;

bool shell(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

// Within five seconds: the kernel reports a carrier later than it has it.
bool isUp(const std::string& interface) {
  return shell("timeout 5 sh -c 'until ip link show " + interface + " | grep -q \"state UP\"; do sleep 0.01; done'");
}

// The address, or the error's message.
std::string textOf(const Result<network::Endpoint>& address) {
  return address ? ipText(address.value()) : address.error().message;
}
std::string textOf(const Result<std::string>& text) { return text ? text.value() : text.error().message; }

class UdpNamespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root for network namespaces";
    prefix_ = "gbudp" + std::to_string(::getpid());
    const bool made = shell("ip netns add " + name('a')) && shell("ip netns add " + name('b')) &&
                      shell("ip -n " + name('a') + " link add v0 type veth peer name v0 netns " + name('b')) &&
                      shell("ip -n " + name('a') + " addr add 10.77.0.1/24 dev v0") &&
                      shell("ip -n " + name('b') + " addr add 10.77.0.2/24 dev v0");
    if (!made) GTEST_SKIP() << "cannot make network namespaces with a veth pair here";
    for (const char end : {'a', 'b'}) ASSERT_TRUE(shell("ip -n " + name(end) + " link set v0 mtu 9000 up"));
  }
  void TearDown() override {
    if (prefix_.empty()) return;
    (void)shell("ip netns del " + name('a'));
    (void)shell("ip netns del " + name('b'));
  }
  std::string name(char end) const { return prefix_ + end; }

  // A socket belongs to the namespace that made it; routes are looked up in the thread's.
  void inside(char end, const std::function<void()>& body) const {
    std::thread([&] {
      const FileDescriptor fd(::open(("/var/run/netns/" + name(end)).c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_EQ(::setns(fd.get(), CLONE_NEWNET), 0);
      body();
    }).join();
  }
  void open() {
    TransportConfig config;
    config.interface = "v0";
    inside('a', [&] { a_ = openPort(config); });
    inside('b', [&] { b_ = openPort(config); });
    ASSERT_TRUE(a_ && b_);
    inside('a', [&] { toB_ = linkTo(*a_, *b_); });
    inside('b', [&] { toA_ = linkTo(*b_, *a_); });
  }
  void expectArrives(std::size_t bytes) {
    atB_.datagrams.clear();
    ASSERT_EQ(transmit(*a_, toB_, pattern(bytes)), 1U);
    wakePeers(*a_);
    EXPECT_TRUE(
        receiveUntil(*b_, atB_, [&] { return !atB_.datagrams.empty() && atB_.datagrams.back() == pattern(bytes); }));
  }
  // A queue that passes 2 MB/s keeps its content charged to the socket. Slow, so that it fills under a sanitizer too.
  bool slowDown() {
    return shell("tc -n " + name('a') + " qdisc add dev v0 root tbf rate 16mbit burst 64kb limit 64mb");
  }
  // Sends as many numbered datagrams as needed; kMany: without end.
  static constexpr std::size_t kMany = 100'000;
  std::size_t fillTheSocket(std::size_t bytes) {
    std::size_t taken = 0;
    while (taken < kMany && transmit(*a_, toB_, pattern(bytes, taken)) == 1) {
      if (++taken % 32 == 0) wakePeers(*a_);
      (void)b_->receive(atB_, 1000);
    }
    return taken;
  }
  void expectAllArrive(std::size_t count, std::size_t bytes) {
    const auto all = [&] {
      (void)a_->receive(atA_, 1);  // sends what is left
      return atB_.datagrams.size() == count;
    };
    ASSERT_TRUE(receiveUntil(*b_, atB_, all)) << atB_.datagrams.size() << " of " << count << " arrived, "
                                              << b_->counters().droppedNoBuffer << " found no room";
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(atB_.datagrams[i], pattern(bytes, i)) << i;
  }
  // The error of a's link when it goes down while a goes on sending.
  std::string downAfter(std::size_t bytes, Duration limit) {
    for (const TimePoint end = monotonicNow() + limit; atA_.down.empty() && monotonicNow() < end; ::usleep(10'000)) {
      a_->onTick(monotonicNow());
      (void)transmit(*a_, toB_, pattern(bytes));
      wakePeers(*a_);
      (void)a_->receive(atA_, 64);
    }
    return atA_.down.empty() ? "" : atA_.down[0].second;
  }

  std::unique_ptr<PacketPort> a_, b_;
  LinkId toB_ = 0, toA_ = 0;
  KeepingSink atA_, atB_;

 private:
  std::string prefix_;
};

TEST_F(UdpNamespaces, InterfaceIsTheRoutesToMaster) {
  inside('a', [] {
    EXPECT_EQ(textOf(chooseLocalAddress("", "10.77.0.2")), "10.77.0.1");
    ASSERT_TRUE(shell("ip link add down0 type veth peer name down1"));
    EXPECT_NE(textOf(chooseLocalAddress("down0", "")).find("is down"), std::string::npos);
  });
}

TEST_F(UdpNamespaces, MasterIsThisHost_InterfaceIsTheOneWithThatAddress) {
  ASSERT_TRUE(shell("ip -n " + name('a') + " addr add fd77::1/64 dev v0 nodad"));
  ASSERT_TRUE(shell("ip -n " + name('a') + " link set lo up"));
  inside('a', [] {
    ASSERT_TRUE(isUp("v0"));
    for (const char* own : {"10.77.0.1", "fd77::1"}) {
      EXPECT_EQ(textOf(chooseLocalAddress("", own)), own);
      EXPECT_EQ(textOf(chooseInterface(own)), "v0");
    }
    EXPECT_EQ(textOf(chooseInterface("fd77::2")), "v0");
  });
}

// Rank 0 is started with localhost, as in many recipes; others know its host by another address. A hint that leads
// nowhere is no better.
TEST_F(UdpNamespaces, MasterLeadsToNoOtherHost_DefaultRoutesAddressElseTheOnlyOneElseTheLoopbacks) {
  const auto expectEach = [](const std::string& ipv4, const std::string& ipv6) {
    for (const char* hint : {"localhost", "127.0.0.1", "127.0.1.1", "", "192.0.2.1"}) {
      EXPECT_EQ(textOf(chooseLocalAddress("", hint)), ipv4) << hint;
    }
    EXPECT_EQ(textOf(chooseLocalAddress("", "::1")), ipv6);
  };
  ASSERT_TRUE(shell("ip -n " + name('a') + " link set lo up"));
  inside('a', [&] {
    ASSERT_TRUE(isUp("v0"));
    expectEach("10.77.0.1", "10.77.0.1");
    EXPECT_EQ(textOf(chooseLocalAddress("", "no-such-host.invalid")), "10.77.0.1");
    ASSERT_TRUE(shell("ip addr add fd77::1/64 dev v0 nodad"));
    expectEach("10.77.0.1", "fd77::1");
    EXPECT_EQ(textOf(chooseInterface("127.0.0.1")), "v0") << "the only one that leads to other hosts";
    ASSERT_TRUE(
        shell("ip link add w0 type veth peer name w1 && ip addr add 10.76.0.1/24 dev w0 && ip link set w0 up "
              "&& ip link set w1 up"));
    ASSERT_TRUE(isUp("w0"));
    expectEach("127.0.0.1", "::1");
    EXPECT_NE(textOf(chooseInterface("127.0.0.1")).find("to one of: v0 w0"), std::string::npos);
    ASSERT_TRUE(shell("ip route add default via 10.76.0.2"));
    expectEach("10.76.0.1", "10.76.0.1");
    EXPECT_EQ(textOf(chooseInterface("127.0.0.1")), "w0");
    ASSERT_TRUE(shell("ip -6 route add default via fd77::2"));
    expectEach("10.76.0.1", "fd77::1");
    ASSERT_TRUE(shell("ip link set v0 down && ip link set w0 down"));
    expectEach("127.0.0.1", "::1");
    EXPECT_NE(textOf(chooseInterface("127.0.0.1")).find("no interface that leads to other hosts"), std::string::npos);
  });
}

// Its source would be link-local too, which is useless to a peer.
TEST_F(UdpNamespaces, MasterIsLinkLocal_InterfacesOtherAddressIsTaken) {
  inside('a', [] {
    ASSERT_TRUE(shell("ip addr add fe80::77/64 dev v0 nodad"));
    EXPECT_EQ(textOf(chooseLocalAddress("", "fe80::78%v0")), "10.77.0.1");
  });
}

TEST_F(UdpNamespaces, NoInterfaceButTheLoopback_SaysSo) {
  inside('b', [] {
    ASSERT_TRUE(shell("ip link del v0 && ip link set lo up"));
    EXPECT_NE(textOf(chooseInterface("127.0.0.1")).find("no interface that leads to other hosts"), std::string::npos);
  });
}

TEST_F(UdpNamespaces, LargestDatagrams_ArriveAndLinkKnowsTheMtu) {
  open();
  EXPECT_EQ(a_->linkProperties(toB_).maxDatagramBytes, 9000U - 28U);
  expectArrives(9000 - 28);
}

// For minutes after an ICMP message, forged or out of date: a link must not stay small because of it.
TEST_F(UdpNamespaces, KernelKnowsOfASmallerWay_LinkBeginsWithItAndMayGrow) {
  ASSERT_TRUE(shell("ip -n " + name('a') + " route replace 10.77.0.0/24 dev v0 src 10.77.0.1 mtu 1300"));
  open();
  EXPECT_EQ(a_->linkProperties(toB_).firstDatagramBytes, 1300U - 28U);
  EXPECT_EQ(a_->linkProperties(toB_).maxDatagramBytes, 9000U - 28U);
  EXPECT_EQ(b_->linkProperties(toA_).firstDatagramBytes, 1472U);
  expectArrives(9000 - 28);
}

TEST_F(UdpNamespaces, SlowInterface_PushesBackAndLosesNothing) {
  if (!slowDown()) GTEST_SKIP() << "no tc, or no tbf";
  open();
  constexpr std::size_t kDatagrams = 10'000, kBytes = 1400;
  std::size_t sent = 0, refused = 0;
  TimePoint longest{}, start = monotonicNow();
  const TimePoint end = start + seconds(30);
  while (sent < kDatagrams && monotonicNow() < end) {
    if (sent % 32 == 0) (void)b_->receive(atB_, 1000);  // or its socket would have no room
    if (transmit(*a_, toB_, pattern(kBytes, sent)) == 1) {
      ++sent;
      continue;
    }
    ++refused;
    a_->armWakeup();
    const TimePoint before = monotonicNow();
    if (transmit(*a_, toB_, pattern(kBytes, sent)) == 1) {
      ++sent;
    } else {
      a_->block(seconds(5));
    }
    longest = std::max(longest, TimePoint(monotonicNow() - before));
    a_->disarmWakeup();
    (void)b_->receive(atB_, 1000);
  }
  EXPECT_EQ(sent, kDatagrams);
  EXPECT_GT(refused, 0U);
  EXPECT_GT(a_->counters().transmitFull, 0U);
  EXPECT_LT(longest, TimePoint(seconds(4))) << "block() did not wait for room";
  expectAllArrive(kDatagrams, kBytes);
}

// wakePeers() scribbles over what transmit() was given.
TEST_F(UdpNamespaces, LongDatagramsWaitForRoom_TheirUserHasTheBufferBack) {
  if (!slowDown()) GTEST_SKIP() << "no tc, or no tbf";
  open();
  const std::size_t taken = fillTheSocket(8000);
  ASSERT_LT(taken, kMany) << "it pushed back at nothing";
  wakePeers(*a_);
  expectAllArrive(taken, 8000);
}

// A channel's last message says that it has failed.
TEST_F(UdpNamespaces, LinkClosedWhileTheSocketIsFull_WhatWasTakenArrivesAndThePortSleeps) {
  if (!slowDown()) GTEST_SKIP() << "no tc, or no tbf";
  open();
  const std::size_t taken = fillTheSocket(1400);
  ASSERT_LT(taken, kMany) << "it pushed back at nothing";
  a_->closeLink(toB_);
  expectAllArrive(taken, 1400);
  a_->armWakeup();
  const TimePoint before = monotonicNow();
  a_->block(milliseconds(200));
  EXPECT_GE(monotonicNow() - before, milliseconds(150)) << "the socket has room, and nothing waits for it";
  a_->disarmWakeup();
}

TEST_F(UdpNamespaces, MtuShrinks_SessionsAreToldAndTheLinkGoesOn) {
  open();
  expectArrives(8000);
  ASSERT_TRUE(shell("ip -n " + name('a') + " link set v0 mtu 1500"));
  inside('a', [&] { EXPECT_EQ(downAfter(8000, kGiveUpAfter + seconds(1)), ""); });
  ASSERT_FALSE(atA_.tooLarge.empty());
  EXPECT_EQ(atA_.tooLarge[0], std::pair(toB_, std::size_t{8000}));
  atB_.datagrams.clear();
  EXPECT_FALSE(receiveUntil(
      *b_, atB_, [&] { return !atB_.datagrams.empty(); }, milliseconds(100)))
      << "a fragmented datagram";
  expectArrives(1400);
}

// The other end of the pair drops larger packets, and the kernel reports a full queue.
TEST_F(UdpNamespaces, MtuOfTheOtherEndShrinks_WhatFitsStillArrives) {
  // Otherwise datagrams sent together would be one packet, which the pair does not inspect.
  if (!shell("ip netns exec " + name('a') + " ethtool -K v0 tx-udp-segmentation off")) GTEST_SKIP() << "no ethtool";
  open();
  ASSERT_TRUE(shell("ip -n " + name('b') + " link set v0 mtu 1500"));
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(transmit(*a_, toB_, pattern(8000)), 1U);
    wakePeers(*a_);
    ASSERT_EQ(transmit(*a_, toB_, pattern(1400)), 1U);
    ASSERT_TRUE(receiveUntil(*b_, atB_, [&] {
      (void)a_->receive(atA_, 1);  // sends what is left
      return atB_.datagrams.size() == static_cast<std::size_t>(i) + 1;
    }));
  }
  for (const auto& datagram : atB_.datagrams) EXPECT_EQ(datagram, pattern(1400));
}

TEST_F(UdpNamespaces, BurstThatNoLongerFits_IsNotFragmented) {
  open();
  ASSERT_TRUE(shell("ip -n " + name('a') + " link set v0 mtu 1500"));
  for (int i = 0; i < 5; ++i) ASSERT_EQ(transmit(*a_, toB_, pattern(8000)), 1U);
  inside('a', [&] { wakePeers(*a_); });
  (void)a_->receive(atA_, 1);
  EXPECT_EQ(atA_.tooLarge, (std::vector<std::pair<LinkId, std::size_t>>{{toB_, 8000}}));
  EXPECT_FALSE(receiveUntil(*b_, atB_, [&] { return !atB_.datagrams.empty(); }, milliseconds(100)));
}

TEST_F(UdpNamespaces, InterfaceDeleted_LinkGoesDownWithinSecondsNamingIt) {
  open();
  expectArrives(100);
  ASSERT_TRUE(shell("ip -n " + name('a') + " link del v0"));
  const TimePoint start = monotonicNow();
  EXPECT_NE(downAfter(100, seconds(10)).find("interface 'v0' was deleted"), std::string::npos);
  EXPECT_GE(monotonicNow() - start, kGiveUpAfter);
}

// An obstacle that passes, but lasts longer than a port waits for a deleted interface.
struct Outage {
  const char* name;
  const char *begin, *end;  // of `ip -n NAMESPACE`
  char where;
  const char* trouble;
};

class UdpOutage : public UdpNamespaces, public ::testing::WithParamInterface<Outage> {};

TEST_P(UdpOutage, Passes_LinkGoesOn) {
  open();
  expectArrives(100);
  EXPECT_EQ(a_->trouble(toB_), "");
  ASSERT_TRUE(shell("ip -n " + name(GetParam().where) + " " + GetParam().begin));
  EXPECT_EQ(downAfter(100, kGiveUpAfter + seconds(1)), "");
  EXPECT_NE(a_->trouble(toB_).find(GetParam().trouble), std::string::npos) << a_->trouble(toB_);
  ASSERT_TRUE(shell("ip -n " + name(GetParam().where) + " " + GetParam().end));
  EXPECT_EQ(downAfter(100, seconds(1)), "");
  expectArrives(200);
  EXPECT_EQ(a_->trouble(toB_), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, UdpOutage,
    testing::Values(Outage{"InterfaceDown", "link set v0 down", "link set v0 up", 'a', "interface 'v0' is down"},
                    Outage{"CarrierLost", "link set v0 down", "link set v0 up", 'b', "interface 'v0' has no carrier"},
                    Outage{"AddressRemoved", "addr del 10.77.0.1/24 dev v0", "addr add 10.77.0.1/24 dev v0", 'a',
                           "nothing can be sent from 10.77.0.1 to 10.77.0.2"},
                    Outage{"RouteGone", "route del 10.77.0.0/24", "route add 10.77.0.0/24 dev v0 src 10.77.0.1", 'a',
                           "Network is unreachable"}),
    [](const auto& info) { return info.param.name; });

// Through the real sessions: the path's MTU is probed, and large messages leave in full datagrams.
TEST_F(UdpNamespaces, LargeMessages_ArriveBitExactInFullDatagrams) {
  for (const char end : {'a', 'b'}) ASSERT_TRUE(shell("ip -n " + name(end) + " link set v0 mtu 1500"));
  open();
  struct End {
    std::shared_ptr<Transport> transport;
    test::Recorder recorder;
    std::unique_ptr<MessageChannel> channel;
    bool wait(const std::function<bool()>& condition) {
      return transport->progress().waitUntil(condition, monotonicNow() + seconds(60));
    }
  } ends[2];
  ends[0].transport = makeDatagramTransport({}, std::move(a_)).value();
  ends[1].transport = makeDatagramTransport({}, std::move(b_)).value();
  std::vector<std::byte> addresses[2];
  for (int i = 0; i < 2; ++i) {
    ends[i].transport->progress().exclusive([&] {
      ends[i].channel =
          std::move(ends[i].transport->openChannel({.localRank = i, .peerRank = 1 - i}, &ends[i].recorder).value());
      addresses[i] = ends[i].channel->localAddress();
    });
  }
  for (int i = 0; i < 2; ++i) {
    inside(i == 0 ? 'a' : 'b', [&] {
      ends[i].transport->progress().exclusive([&] { EXPECT_TRUE(ends[i].channel->connect(addresses[1 - i]).ok()); });
    });
  }
  constexpr std::size_t kBytes = 4 << 20, kMessages = 8;
  const auto sent = pattern(kBytes);
  std::vector<std::vector<std::byte>> received(kMessages, std::vector<std::byte>(kBytes));
  ASSERT_TRUE(ends[0].wait([&] { return ends[0].recorder.state == ChannelState::kConnected; }));
  for (std::size_t i = 0; i < kMessages; ++i) {
    ends[1].transport->progress().exclusive([&] {
      EXPECT_TRUE(
          ends[1]
              .channel->postReceive({.token = i, .key = {.tag = i}, .data = received[i].data(), .capacity = kBytes})
              .ok());
    });
    ends[0].transport->progress().exclusive([&] {
      EXPECT_TRUE(
          ends[0].channel->postSend({.token = i, .key = {.tag = i}, .data = sent.data(), .length = kBytes}).ok());
    });
  }
  ASSERT_TRUE(ends[1].wait([&] { return ends[1].recorder.received.size() == kMessages; }));
  for (const auto& message : received) ASSERT_EQ(message, sent);
  ChannelCounters counters;
  ends[0].transport->progress().exclusive([&] { counters = ends[0].channel->counters(); });
  RecordProperty("retransmits", static_cast<int>(counters.retransmits));
  EXPECT_GT(counters.wireBytesSent / counters.packetsSent, 1400U) << counters.packetsSent << " datagrams";
  for (End& end : ends) end.transport->progress().exclusive([&] { end.channel.reset(); });
}

}  // namespace
}  // namespace gloo_bypass::udp
