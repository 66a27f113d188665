// Ports of link mode auto: which link a peer gets, and that one sleep waits for both.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/unit/dpdk/port_process.h"
#include "tests/unit/udp/port_pair.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::dpdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using udp::KeepingSink;
using udp::linkTo;
using udp::pattern;
using udp::receiveUntil;
using udp::transmit;

TransportConfig onHost(const std::string& directory) {
  TransportConfig config;
  config.memifDirectory = directory;
  config.interface = "127.0.0.1";
  return config;
}

// The EAL runs in a child.
void inProcess(const std::function<void(const std::string& hostA, const std::string& hostB)>& body) {
  const TemporaryFolder a, b;
  runProcess([&] { body(a.path, b.path); });
}

// Both ends of a link, until a datagram has passed from `from`.
void expectPasses(PacketPort& from, LinkId fromLink, PacketPort& to, LinkId toLink) {
  KeepingSink ignored, sink;
  const auto bytes = pattern(1000);
  std::size_t sent = 0;
  const bool arrived = waitFor([&] {
    for (PacketPort* port : {&from, &to}) port->onTick(monotonicNow());
    (void)from.receive(ignored, 64);
    if (sent == 0) sent = transmit(from, fromLink, bytes);
    from.wakePeers();
    (void)to.receive(sink, 64);
    return !sink.datagrams.empty();
  });
  ASSERT_TRUE(arrived);
  EXPECT_EQ(sink.datagrams[0], bytes);
  EXPECT_EQ(sink.links[0], toLink);
}

TEST(AutoPort, SameHost_Memory_OtherHost_Network) {
  inProcess([](const std::string& hostA, const std::string& hostB) {
    const auto a = openPort(onHost(hostA)), neighbour = openPort(onHost(hostA)), remote = openPort(onHost(hostB));
    const LinkId toNeighbour = linkTo(*a, *neighbour), fromNeighbour = linkTo(*neighbour, *a);
    const LinkId toRemote = linkTo(*a, *remote), fromRemote = linkTo(*remote, *a);
    EXPECT_TRUE(a->linkProperties(toNeighbour).lossless);
    EXPECT_TRUE(a->linkProperties(toNeighbour).local);
    EXPECT_FALSE(a->linkProperties(toRemote).lossless);
    EXPECT_FALSE(remote->linkProperties(fromRemote).lossless);
    EXPECT_NE(toNeighbour, toRemote);
    expectPasses(*a, toNeighbour, *neighbour, fromNeighbour);
    expectPasses(*neighbour, fromNeighbour, *a, toNeighbour);
    expectPasses(*a, toRemote, *remote, fromRemote);
    expectPasses(*remote, fromRemote, *a, toRemote);
    EXPECT_EQ(a->counters().packetsSent, 2U);
    EXPECT_EQ(a->counters().packetsReceived, 2U);
  });
}

// As where a volume is mounted at another place in each container.
TEST(AutoPort, SameDirectoryUnderAnotherName_Memory) {
  inProcess([](const std::string& hostA, const std::string&) {
    std::filesystem::create_directory(hostA + "/x");
    std::filesystem::permissions(hostA + "/x", std::filesystem::perms::owner_all);
    const auto a = openPort(onHost(hostA + "/x")), b = openPort(onHost(hostA + "/./x"));
    const LinkId toB = linkTo(*a, *b), toA = linkTo(*b, *a);
    EXPECT_TRUE(a->linkProperties(toB).lossless);
    expectPasses(*a, toB, *b, toA);
  });
}

TEST(AutoPort, ToItself_Memory) {
  inProcess([](const std::string& hostA, const std::string&) {
    const auto a = openPort(onHost(hostA));
    const LinkId self = linkTo(*a, *a);
    EXPECT_TRUE(a->linkProperties(self).lossless);
    expectPasses(*a, self, *a, self);
  });
}

// Each of 10 s sleeps ends at once: a wake-up that were lost would take that long.
TEST(AutoPort, AsleepWithLinksOfBothKinds_EitherWakes) {
  inProcess([](const std::string& hostA, const std::string& hostB) {
    const auto a = openPort(onHost(hostA)), neighbour = openPort(onHost(hostA)), remote = openPort(onHost(hostB));
    const LinkId toNeighbour = linkTo(*a, *neighbour), fromNeighbour = linkTo(*neighbour, *a);
    const LinkId toRemote = linkTo(*a, *remote), fromRemote = linkTo(*remote, *a);
    expectPasses(*neighbour, fromNeighbour, *a, toNeighbour);
    expectPasses(*remote, fromRemote, *a, toRemote);
    KeepingSink sink;
    const auto wokenBy = [&](const std::function<void()>& what) {
      const TimePoint begin = monotonicNow();
      a->armWakeup();
      EXPECT_EQ(a->receive(sink, 64), 0U);
      std::thread other([&] {
        ::usleep(20'000);
        what();
      });
      a->block(seconds(10));
      a->disarmWakeup();
      other.join();
      return monotonicNow() - begin < Duration(seconds(5));
    };
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(wokenBy([&] {
        EXPECT_EQ(transmit(*neighbour, fromNeighbour, pattern(100)), 1U);
        neighbour->wakePeers();
      }));
      EXPECT_EQ(a->receive(sink, 64), 1U);
      EXPECT_TRUE(wokenBy([&] {
        EXPECT_EQ(transmit(*remote, fromRemote, pattern(100)), 1U);
        remote->wakePeers();
      }));
      EXPECT_TRUE(receiveUntil(*a, sink, [&] { return sink.datagrams.size() == 2U * static_cast<unsigned>(i) + 2; }));
      EXPECT_TRUE(wokenBy([&] { a->wake(); }));
    }
  });
}

TEST(AutoPort, FirstNetworkLinkWhileAsleep_Wakes) {
  inProcess([](const std::string& hostA, const std::string& hostB) {
    const auto a = openPort(onHost(hostA)), remote = openPort(onHost(hostB));
    const TimePoint begin = monotonicNow();
    a->armWakeup();
    std::thread opener([&] {
      ::usleep(20'000);
      (void)linkTo(*a, *remote);
    });
    a->block(seconds(10));
    a->disarmWakeup();
    opener.join();
    EXPECT_LT(monotonicNow() - begin, Duration(seconds(5)));
  });
}

TEST(AutoPort, LinksOfBothKindsAreClosed_ThePeerLearnsOfItAndTheNextOnesCarry) {
  inProcess([](const std::string& hostA, const std::string& hostB) {
    const auto a = openPort(onHost(hostA)), neighbour = openPort(onHost(hostA)), remote = openPort(onHost(hostB));
    const LinkId toNeighbour = linkTo(*a, *neighbour), fromNeighbour = linkTo(*neighbour, *a);
    const LinkId toRemote = linkTo(*a, *remote), fromRemote = linkTo(*remote, *a);
    expectPasses(*a, toNeighbour, *neighbour, fromNeighbour);
    expectPasses(*a, toRemote, *remote, fromRemote);
    a->closeLink(toNeighbour);
    a->closeLink(toRemote);
    CollectingSink sink;
    ASSERT_TRUE(waitFor([&] {
      (void)neighbour->receive(sink, 64);
      return !sink.down.empty();
    }));
    EXPECT_EQ(sink.down[0].first, fromNeighbour);
    EXPECT_EQ(sink.down[0].second.code, ErrorCode::kPeerClosed) << sink.down[0].second.message;
    neighbour->closeLink(fromNeighbour);
    const LinkId nextToNeighbour = linkTo(*a, *neighbour), nextFromNeighbour = linkTo(*neighbour, *a);
    const LinkId nextToRemote = linkTo(*a, *remote);
    EXPECT_NE(nextToNeighbour, toNeighbour);
    EXPECT_NE(nextFromNeighbour, fromNeighbour);
    EXPECT_NE(nextToRemote, toRemote);
    expectPasses(*a, nextToNeighbour, *neighbour, nextFromNeighbour);
    expectPasses(*neighbour, nextFromNeighbour, *a, nextToNeighbour);
    expectPasses(*a, nextToRemote, *remote, fromRemote);
    expectPasses(*remote, fromRemote, *a, nextToRemote);
  });
}

TEST(AutoPort, PeersOfBothKindsEnd_EachLinkGoesDownByItsOwnId) {
  inProcess([](const std::string& hostA, const std::string& hostB) {
    const auto a = openPort(onHost(hostA));
    auto neighbour = openPort(onHost(hostA)), remote = openPort(onHost(hostB));
    const LinkId toNeighbour = linkTo(*a, *neighbour), fromNeighbour = linkTo(*neighbour, *a);
    const LinkId toRemote = linkTo(*a, *remote), fromRemote = linkTo(*remote, *a);
    expectPasses(*a, toNeighbour, *neighbour, fromNeighbour);
    expectPasses(*a, toRemote, *remote, fromRemote);
    neighbour.reset();
    remote.reset();
    CollectingSink sink;
    sink.session = pattern(40);  // what the network says counts if it quotes a session of ours
    ASSERT_TRUE(waitFor([&] {
      (void)a->receive(sink, 64);
      if (std::none_of(sink.down.begin(), sink.down.end(), [&](const auto& down) { return down.first == toRemote; })) {
        (void)transmit(*a, toRemote, pattern(40));
        a->wakePeers();
      }
      return sink.down.size() == 2;
    }));
    for (const auto& [link, error] : sink.down) {
      EXPECT_TRUE(link == toNeighbour || link == toRemote) << link;
      EXPECT_EQ(error.code, ErrorCode::kPeerVanished) << error.message;
      a->closeLink(link);
    }
    EXPECT_NE(sink.down[0].first, sink.down[1].first);
  });
}

TEST(AutoPort, PeerOfAnotherLinkMode_IsRefusedByName) {
  inProcess([](const std::string& hostA, const std::string&) {
    TransportConfig memif = onHost(hostA);
    memif.link = LinkMode::kMemif;
    const auto a = openPort(onHost(hostA)), b = openPort(memif);
    for (const auto& refused : {a->openLink(b->localAddress()), b->openLink(a->localAddress())}) {
      ASSERT_FALSE(refused.ok());
      EXPECT_NE(refused.error().message.find("set the same GLOO_BYPASS_LINK"), std::string::npos)
          << refused.error().message;
      EXPECT_NE(refused.error().message.find("link mode auto"), std::string::npos) << refused.error().message;
    }
  });
}

TEST(AutoPort, HostileAddresses_AreRefused) {
  inProcess([](const std::string& hostA, const std::string& hostB) {
    const auto a = openPort(onHost(hostA)), b = openPort(onHost(hostB));
    const auto good = b->localAddress();
    for (std::size_t length = 0; length < good.size(); ++length) {
      EXPECT_FALSE(a->openLink(std::span(good).first(length)).ok()) << length;
    }
    auto longer = good;
    longer[5] = longer[6] = std::byte{0xff};  // the first address's length
    EXPECT_FALSE(a->openLink(longer).ok());
  });
}

}  // namespace
}  // namespace gloo_bypass::dpdk
