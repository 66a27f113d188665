// Ports over a Linux interface: two processes in two network namespaces joined by a veth pair. Needs root and `ip`.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tests/support/attacker_port.h"
#include "tests/support/forged_icmp.h"
#include "tests/support/no_more_descriptors.h"
#include "tests/transport/dpdk/port_process.h"
#include "transport/base/file_descriptor.h"
#include "transport/channel/channel_address.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/kernel_interface.h"
#include "transport/dpdk/port_address.h"
#include "transport/network/endpoint.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::dpdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

TimePoint now() { return TimePoint(Clock::now().time_since_epoch()); }

bool shell(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

class NetdevPort : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root for network namespaces and raw sockets";
    prefix_ = "gbdpdk" + std::to_string(::getpid());
    const std::string a = name('a'), b = name('b');
    const bool made = shell("ip netns add " + a) && shell("ip netns add " + b) &&
                      shell("ip -n " + a + " link add v0 type veth peer name v0 netns " + b) &&
                      shell("ip -n " + a + " addr add 10.77.0.1/24 dev v0") &&
                      shell("ip -n " + b + " addr add 10.77.0.2/24 dev v0");
    if (!made) {
      TearDown();
      GTEST_SKIP() << "cannot make network namespaces with a veth pair here";
    }
    for (const std::string& end : {a, b}) {
      ASSERT_TRUE(shell("ip -n " + end + " link set v0 mtu 9000 up"));
    }
  }
  void TearDown() override {
    if (prefix_.empty()) return;
    (void)shell("ip netns del " + name('a'));
    (void)shell("ip netns del " + name('b'));
    (void)shell("ip netns del " + name('c'));
  }
  std::string name(char end) const { return prefix_ + end; }

  // One end, as a process inside one of the namespaces.
  ProcessEnd inside(char end, std::function<void(Partner&)> body, bool killed = false) const {
    const std::string path = "/var/run/netns/" + name(end);
    return {[path, body](Partner& partner) {
              const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
              ASSERT_EQ(::setns(fd, CLONE_NEWNET), 0);
              body(partner);
            },
            killed};
  }

 private:
  std::string prefix_;
};

TransportConfig netdevConfig() {
  TransportConfig config;
  config.link = LinkMode::kNetdev;
  config.interface = "v0";
  return config;
}

std::unique_ptr<PacketPort> openPort() { return dpdk::openPort(netdevConfig()); }

// Blocks as the engine does.
bool blockForDatagram(PacketPort& port, CollectingSink& sink, Duration limit) {
  const auto deadline = Clock::now() + limit;
  while (Clock::now() < deadline) {
    port.onTick(now());
    if (port.receive(sink, 32) > 0) return true;
    if (!sink.down.empty()) return false;
    port.armWakeup();
    const bool got = port.receive(sink, 32) > 0;
    if (!got) port.block(std::min<Duration>(limit, seconds(3)));
    port.disarmWakeup();
    if (got) return true;
  }
  return false;
}

bool transmitOne(PacketPort& port, LinkId link, std::span<const std::byte> bytes) {
  const std::size_t cut = std::min<std::size_t>(bytes.size(), 40);
  const OutgoingDatagram datagram{bytes.first(cut), bytes.subspan(cut)};
  const bool sent = waitFor([&] {
    if (port.transmit(link, std::span(&datagram, 1)) == 1) return true;
    CollectingSink none;  // ARP is under way, nothing else is
    port.onTick(now());
    (void)port.receive(none, 1);
    EXPECT_TRUE(none.datagrams.empty());
    return false;
  });
  port.wakePeers();
  return sent;
}

std::vector<std::byte> pattern(std::size_t length) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 31 + length);
  return bytes;
}

TEST(KernelInterfaceTest, NoDescriptorIsLeft_ErrorNamesTheLimit) {
  std::optional<test::NoMoreDescriptors> none(std::in_place);
  const auto interface = readKernelInterface("lo");
  const auto hop = nextHop({}, 0x7f000001);
  none.reset();
  ASSERT_FALSE(interface.ok() || hop.ok());
  EXPECT_NE(interface.error().message.find("RLIMIT_NOFILE"), std::string::npos) << interface.error().message;
  EXPECT_NE(hop.error().message.find("RLIMIT_NOFILE"), std::string::npos) << hop.error().message;
}

TEST_F(NetdevPort, PingPongOfAllSizesWithBlocking_ArrivesBitExact) {
  const auto end = [](bool first) {
    return [first](Partner& partner) {
      const auto port = openPort();
      const LinkId link = linkPorts(*port, partner);
      partner.meet();
      const std::size_t maxBytes = port->linkProperties(link).maxDatagramBytes;
      EXPECT_EQ(maxBytes, 9000U - 28U);
      EXPECT_FALSE(port->linkProperties(link).lossless);
      EXPECT_TRUE(port->traits().gathers);
      CollectingSink sink;
      for (std::size_t length = 1; length <= maxBytes;
           length = length == maxBytes ? maxBytes + 1 : std::min(length + 97, maxBytes)) {
        if (first) {
          ASSERT_TRUE(transmitOne(*port, link, pattern(length)));
        }
        ASSERT_TRUE(blockForDatagram(*port, sink, seconds(10))) << length;
        ASSERT_EQ(sink.datagrams.size(), 1U);
        ASSERT_EQ(sink.datagrams[0], pattern(length));
        sink.datagrams.clear();
        if (!first) {
          ASSERT_TRUE(transmitOne(*port, link, pattern(length)));
        }
      }
      EXPECT_TRUE(sink.down.empty());
      partner.meet();
    };
  };
  runProcesses(inside('a', end(true)), inside('b', end(false)));
}

TEST_F(NetdevPort, BurstsOneWay_WhatArrivesIsWholeAndInOrder) {
  constexpr std::uint32_t kFrames = 20'000;
  runProcesses(inside('a',
                      [](Partner& partner) {
                        const auto port = openPort();
                        const LinkId link = linkPorts(*port, partner);
                        partner.meet();
                        std::vector<std::byte> bytes = pattern(8000);
                        std::atomic<bool> met{false};
                        std::thread waiter([&] {
                          partner.meet();
                          met = true;
                        });
                        // A burst may lose its last frames; single frames after it do arrive.
                        for (std::uint32_t i = 0; i < kFrames || !met; ++i) {
                          std::memcpy(bytes.data(), &i, sizeof(i));
                          EXPECT_TRUE(transmitOne(*port, link, bytes));
                          if (i >= kFrames) ::usleep(10'000);
                        }
                        waiter.join();
                        partner.meet();
                      }),
               inside('b', [](Partner& partner) {
                 const auto port = openPort();
                 linkPorts(*port, partner);
                 partner.meet();
                 class OrderSink : public PacketSink {
                  public:
                   void onDatagram(LinkId, std::span<const std::byte> d) noexcept override {
                     std::uint32_t index = 0;
                     if (d.size() == 8000) std::memcpy(&index, d.data(), sizeof(index));
                     if (d.size() != 8000 || (received > 0 && index <= last)) ++wrong;
                     if (std::memcmp(d.data() + 4, expected.data() + 4, d.size() - 4) != 0) ++wrong;
                     last = index;
                     ++received;
                   }
                   void onLinkDown(LinkId, const Error&) noexcept override {}
                   std::vector<std::byte> expected = pattern(8000);
                   std::uint32_t last = 0;
                   std::size_t received = 0, wrong = 0;
                 } sink;
                 EXPECT_TRUE(waitFor(
                     [&] {
                       port->onTick(now());
                       (void)port->receive(sink, 64);
                       return sink.last >= kFrames - 1;
                     },
                     seconds(25)))
                     << sink.received << " received, the last one " << sink.last;
                 EXPECT_EQ(sink.wrong, 0U);
                 partner.meet();
                 partner.meet();  // the port stays until no one sends to it any more
               }));
}

TEST_F(NetdevPort, PeerKilled_IcmpPortUnreachableTakesTheLinkDown) {
  runProcesses(inside(
                   'a',
                   [](Partner& partner) {
                     const auto port = openPort();
                     const LinkId link = linkPorts(*port, partner);
                     partner.meet();
                     ASSERT_TRUE(transmitOne(*port, link, pattern(100)));
                     partner.meet();
                     ::kill(::getpid(), SIGKILL);
                   },
                   true),
               inside('b', [](Partner& partner) {
                 const auto port = openPort();
                 const LinkId link = linkPorts(*port, partner);
                 partner.meet();
                 CollectingSink sink;
                 ASSERT_TRUE(blockForDatagram(*port, sink, seconds(10)));
                 EXPECT_TRUE(sink.arrivalsTold);
                 // While the peer lives its kernel stays silent about our datagrams.
                 for (int i = 0; i < 5; ++i) ASSERT_TRUE(transmitOne(*port, link, pattern(100)));
                 EXPECT_FALSE(blockForDatagram(*port, sink, milliseconds(100)));
                 EXPECT_TRUE(sink.down.empty());
                 partner.meet();
                 const auto sendUntilDown = [&](std::span<const std::byte> bytes, Duration limit) {
                   return waitFor(
                       [&] {
                         const OutgoingDatagram datagram{bytes, {}};
                         port->onTick(now());
                         (void)port->transmit(link, std::span(&datagram, 1));
                         port->wakePeers();
                         (void)port->receive(sink, 32);
                         ::usleep(10'000);
                         return !sink.down.empty();
                       },
                       limit);
                 };
                 // The quoted datagram belongs to no session: anyone may send such a message.
                 sink.session = pattern(60);
                 EXPECT_FALSE(sendUntilDown(pattern(61), milliseconds(500)));
                 EXPECT_TRUE(sendUntilDown(pattern(60), seconds(20)));
                 ASSERT_FALSE(sink.down.empty());
                 EXPECT_EQ(sink.down[0].second.code, ErrorCode::kPeerVanished);
                 EXPECT_NE(sink.down[0].second.message.find("10.77.0.1"), std::string::npos);
               }));
}

TEST_F(NetdevPort, StrangersDatagrams_AreTold) {
  runProcesses(inside('a',
                      [](Partner& partner) {
                        const auto port = openPort();
                        partner.send(port->localAddress());
                        CollectingSink sink;
                        EXPECT_TRUE(waitFor([&] {
                          port->onTick(now());
                          (void)port->receive(sink, 32);
                          return sink.strangers == 1;
                        }));
                        EXPECT_TRUE(sink.datagrams.empty());
                      }),
               inside('b', [](Partner& partner) {
                 const auto to = decodeUdpAddress(partner.receive());
                 ASSERT_TRUE(to.ok()) << to.error().message;
                 sockaddr_in address{};
                 address.sin_family = AF_INET;
                 address.sin_addr.s_addr = htonl(to.value().ip);
                 address.sin_port = htons(to.value().port);
                 const FileDescriptor stranger(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
                 auto* const any = reinterpret_cast<const sockaddr*>(&address);
                 EXPECT_EQ(::sendto(stranger.get(), "hello", 5, 0, any, sizeof(address)), 5);
               }));
}

// a -- 9000 -- b, which forwards -- 1500 -- c.
TEST_F(NetdevPort, RouterSaysThatADatagramIsTooLarge_CountsIfItQuotesASession) {
  const std::string a = name('a'), b = name('b'), c = name('c');
  ASSERT_TRUE(shell("ip netns add " + c) && shell("ip -n " + b + " link add w0 type veth peer name v0 netns " + c) &&
              shell("ip -n " + b + " addr add 10.78.0.1/24 dev w0") && shell("ip -n " + b + " link set w0 up") &&
              shell("ip -n " + c + " addr add 10.78.0.2/24 dev v0") && shell("ip -n " + c + " link set v0 up") &&
              shell("ip -n " + a + " route add 10.78.0.0/24 via 10.77.0.2") &&
              shell("ip -n " + c + " route add default via 10.78.0.1") &&
              shell("ip netns exec " + b + " sysctl -q net.ipv4.ip_forward=1"));
  runProcesses(inside('a',
                      [](Partner& partner) {
                        const auto port = openPort();
                        const LinkId link = linkPorts(*port, partner);
                        CollectingSink sink;
                        sink.session = pattern(60);
                        const auto toldOf = [&](std::size_t bytes, Duration limit) {
                          auto datagram = pattern(60);  // quoted is the begin of it
                          datagram.resize(bytes);
                          if (bytes % 2 == 1) datagram[0] ^= std::byte{1};
                          EXPECT_TRUE(transmitOne(*port, link, datagram));
                          return waitFor(
                              [&] {
                                port->onTick(now());
                                (void)port->receive(sink, 32);
                                return !sink.tooLarge.empty();
                              },
                              limit);
                        };
                        EXPECT_FALSE(toldOf(8001, milliseconds(300)));  // of no session
                        EXPECT_TRUE(toldOf(8000, seconds(10)));
                        EXPECT_EQ(sink.tooLarge, (std::vector<std::pair<LinkId, std::size_t>>{{link, 1500 - 28 + 1}}));
                        EXPECT_TRUE(sink.down.empty());
                        partner.meet();
                      }),
               inside('c', [](Partner& partner) {
                 const auto port = openPort();
                 (void)linkPorts(*port, partner);
                 partner.meet();
               }));
}

// An attacker who changes one in five datagrams with data, forges resets, and repeats everything, at once and later.
class Attacks {
 public:
  using Datagram = test::AttackerPort::Datagram;
  std::vector<Datagram> operator()(const Datagram& datagram) {
    Datagram arrives = datagram;
    if (wire::isData(test::typeOf(datagram)) && ++data_ % 5 == 0) {
      test::flipPayload(arrives);
      ++changed;
    } else if (kept_.size() < 100) {
      kept_.push_back(datagram);
    }
    std::vector<Datagram> all = test::forgedResets(datagram);
    all.insert(all.end(), {arrives, arrives});
    if (!kept_.empty()) all.push_back(kept_[repeated++ % kept_.size()]);
    return all;
  }
  std::size_t changed = 0, repeated = 0;  // as many resets as repeated

 private:
  std::size_t data_ = 0;
  std::vector<Datagram> kept_;
};

// Gives the peer `own` for the number that the peer gives.
std::uint64_t peersNumber(Partner& partner, std::uint64_t own) {
  partner.send(std::as_bytes(std::span(&own, 1)));
  const std::vector<std::byte> sent = partner.receive();
  std::uint64_t number = 0;
  std::memcpy(&number, sent.data(), std::min(sent.size(), sizeof(number)));
  return number;
}

class AttackedEnd final : public ChannelObserver {
 public:
  // `attack` acts from when `begun` is true.
  AttackedEnd(Partner& partner, int rank, Security security, test::AttackerPort::Attack attack) {
    TransportConfig config = netdevConfig();
    config.security = security;
    config.session.longPathRtt = seconds(60);                          // a short path, however busy the machine
    if (security == Security::kOff) config.peerTimeout = seconds(10);  // an attack may end the peer
    auto port = std::make_unique<test::AttackerPort>(dpdk::openPort(config), [this, attack](const Datagram& datagram) {
      return begun ? attack(datagram) : std::vector<Datagram>{datagram};
    });
    transport = makeDatagramTransport(config, std::move(port)).value();
    exclusive([&] {
      channel = std::move(transport->openChannel({.localRank = rank, .peerRank = 1 - rank}, this)).value();
      partner.send(channel->localAddress());
      here = endpointOf(channel->localAddress());
    });
    const auto address = partner.receive();
    peer = endpointOf(address);
    exclusive([&] { EXPECT_TRUE(channel->connect(address).ok()); });
    EXPECT_TRUE(wait([&] { return state == ChannelState::kConnected; }));
    partner.meet();  // an attack on a peer that only connects would be another one
    exclusive([&] { begun = true; });
  }
  void exclusive(const std::function<void()>& f) const { transport->progress().exclusive(f); }
  bool wait(const std::function<bool()>& condition) const {
    return transport->progress().waitUntil(condition, monotonicNow() + seconds(30));
  }
  ChannelCounters counters() const {
    ChannelCounters total;
    exclusive([&] { total = transport->report().total; });
    return total;
  }
  // Sends and receives up to `messages`, as long as the channel lives. Checks what arrives.
  void exchange(OperationToken messages) {
    for (OperationToken i = 1; i <= messages; ++i) {
      std::ranges::fill(in, std::byte{0});
      bool lives = false, arrived = false;  // the channel's thread writes what they are made of
      exclusive([&] {
        lives = state == ChannelState::kConnected;
        if (!lives) return;
        (void)channel->postReceive({.token = i, .key = {.tag = 1}, .data = in.data(), .capacity = in.size()}).ok();
        (void)channel->postSend({.token = i, .key = {.tag = 1}, .data = out.data(), .length = out.size()}).ok();
      });
      if (!lives) return;
      ASSERT_TRUE(wait([&] {
        arrived = received == i;
        return state != ChannelState::kConnected || (arrived && sent == i);
      })) << i;
      if (arrived) {
        ASSERT_EQ(in, out) << i;
      }
    }
  }
  void onSendComplete(OperationToken token) noexcept override { sent = token; }
  void onReceiveComplete(OperationToken token, std::size_t) noexcept override { received = token; }
  void onMessageAnnounced(MessageKey, std::size_t) noexcept override {}
  void onStateChange(ChannelState next) noexcept override { state = next; }

  bool begun = false;
  network::Endpoint here, peer;
  std::vector<std::byte> out = pattern(300'000), in = std::vector<std::byte>(out.size());
  ChannelState state = ChannelState::kUnconnected;
  OperationToken sent = 0, received = 0;
  std::shared_ptr<Transport> transport;
  std::unique_ptr<MessageChannel> channel;

 private:
  using Datagram = Attacks::Datagram;

  static network::Endpoint endpointOf(std::span<const std::byte> channelAddress) {
    const auto address = decodeUdpAddress(decodeChannelAddress(channelAddress).value().portAddress).value();
    network::Endpoint endpoint = *network::parseIp(toString(address.ip));
    endpoint.setPort(address.port);
    return endpoint;
  }
};

TEST_F(NetdevPort, ChangesForgesAndRepeatsSealedDatagrams_NoWrongBytesAndNoEnd) {
  const auto end = [](int rank) {
    return [rank](Partner& partner) {
      Attacks attacks;
      AttackedEnd own(partner, rank, Security::kEncrypt, [&](const Attacks::Datagram& d) { return attacks(d); });
      own.exchange(30);
      partner.meet();
      own.exclusive([&] {
        EXPECT_EQ(own.state, ChannelState::kConnected);
        EXPECT_GE(attacks.changed, 100U);
        EXPECT_GE(attacks.repeated, 100U);
      });
      // What the peer itself sent twice is no attack: a busy machine makes it do so.
      const std::uint64_t twice = own.counters().duplicatesReceived;
      partner.meet();
      EXPECT_LE(twice, peersNumber(partner, own.counters().retransmits));
      own.exclusive([&] { own.channel.reset(); });
    };
  };
  runProcesses(inside('a', end(0)), inside('b', end(1)));
}

// From the peer's host, quoting a datagram that it has just received: "the port is closed", three times in a row, as a
// single one counts for nothing, and "too large".
TEST_F(NetdevPort, ForgesIcmp_EndsPlainSessionsOnly) {
  for (const Security security : {Security::kOff, Security::kEncrypt}) {
    const auto end = [security](int rank) {
      return [security, rank](Partner& partner) {
        std::size_t forged = 0;
        AttackedEnd* attacked = nullptr;
        AttackedEnd own(partner, rank, security, [&](const Attacks::Datagram& datagram) {
          if (rank == 1 && attacked != nullptr && forged < 100) {
            ++forged;
            for (int i = 0; i < 3; ++i) test::forgeUnreachable(attacked->peer, attacked->here, datagram);
            test::forgeUnreachable(attacked->peer, attacked->here, datagram, 1300);
          }
          return std::vector<Attacks::Datagram>{datagram};
        });
        own.exclusive([&] { attacked = &own; });
        own.exchange(30);
        partner.meet();
        own.exclusive([&] {
          if (security == Security::kOff) {
            ASSERT_EQ(own.state, ChannelState::kFailed);
            if (rank == 0) {
              EXPECT_NE(own.channel->error().message.find("the port is closed"), std::string::npos)
                  << own.channel->error().message << ": the attack works no more, and proves nothing";
            }
          } else {
            EXPECT_EQ(own.state, ChannelState::kConnected);
            EXPECT_GT(own.transport->report().channels.at(0).path->datagramBytes, 1300U);
            if (rank == 1) {
              EXPECT_EQ(forged, 100U);
            }
          }
        });
        partner.meet();
        own.exclusive([&] { own.channel.reset(); });
      };
    };
    runProcesses(inside('a', end(0)), inside('b', end(1)));
  }
}

TEST_F(NetdevPort, NobodyAnswersArp_LinkGoesDownAndTheNextOneTriesAnew) {
  runProcesses(inside('a',
                      [](Partner&) {
                        const auto port = openPort();
                        auto address = port->localAddress();
                        address[8] = std::byte{99};  // the last byte of the IPv4 address
                        const auto link = port->openLink(address);
                        ASSERT_TRUE(link.ok()) << link.error().message;
                        CollectingSink sink;
                        TimePoint virtualNow = now();
                        EXPECT_TRUE(waitFor([&] {
                          port->onTick(virtualNow);
                          virtualNow += milliseconds(100);
                          (void)port->receive(sink, 32);
                          return !sink.down.empty();
                        }));
                        EXPECT_NE(sink.down[0].second.message.find("ARP"), std::string::npos);
                        const auto next = port->openLink(address);
                        ASSERT_TRUE(next.ok()) << next.error().message;
                        EXPECT_NE(next.value(), link.value());
                        port->closeLink(link.value());
                        for (int i = 0; i < 50; ++i, virtualNow += milliseconds(100)) {
                          port->onTick(virtualNow);
                          (void)port->receive(sink, 32);
                        }
                        EXPECT_EQ(sink.down.size(), 1U) << "failed without another try";
                        EXPECT_TRUE(waitFor([&] {
                          port->onTick(virtualNow);
                          virtualNow += milliseconds(100);
                          (void)port->receive(sink, 32);
                          return sink.down.size() == 2;
                        }));
                        EXPECT_EQ(sink.down[1].first, next.value());
                      }),
               inside('b', [](Partner&) {}));
}

TEST_F(NetdevPort, WrongSettings_OneClearLine) {
  runProcesses(inside('a',
                      [](Partner&) {
                        const auto errorOf = [](const TransportConfig& config) {
                          const auto port = makeDpdkPort(config);
                          EXPECT_FALSE(port.ok());
                          return port.ok() ? std::string() : port.error().message;
                        };
                        TransportConfig config = netdevConfig();
                        config.interface = "nonesuch0";
                        EXPECT_NE(errorOf(config).find("no interface 'nonesuch0'"), std::string::npos);
                        EXPECT_NE(errorOf(config).find("v0"), std::string::npos);
                        config.interface = "lo";
                        ASSERT_TRUE(shell("ip link set lo up"));
                        EXPECT_NE(errorOf(config).find("loopback"), std::string::npos);
                        config = netdevConfig();
                        const auto port = openPort();
                        const auto address = port->localAddress();
                        const auto taken = static_cast<std::uint16_t>(std::to_integer<unsigned>(address[9]) << 8 |
                                                                      std::to_integer<unsigned>(address[10]));
                        config.udpPorts = {taken, taken};
                        EXPECT_NE(
                            errorOf(config).find("GLOO_BYPASS_UDP_PORT='" + std::to_string(taken) + "' is free at 10."),
                            std::string::npos)
                            << errorOf(config);
                        EXPECT_NE(errorOf(config).find(" on v0: each rank"), std::string::npos);
                        auto far = address;
                        far[5] = std::byte{11};
                        const auto link = port->openLink(far);
                        ASSERT_FALSE(link.ok());
                        EXPECT_NE(link.error().message.find("no route"), std::string::npos);
                      }),
               inside('b', [](Partner&) {}));
}

}  // namespace
}  // namespace gloo_bypass::dpdk
