// Ports of link mode auto: which link a peer gets, and that one sleep waits for both.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/refused_call.h"
#include "tests/support/temporary_folder.h"
#include "tests/transport/dpdk/port_process.h"
#include "tests/transport/udp/port_pair.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/port_address.h"
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

// Where memory cannot be shared -----------------------------------------------------------------

TransportConfig withoutMemory(const std::string& directory) {
  TransportConfig config = onHost(directory);
  config.memifDirectoryIsDefault = true;
  return config;
}

// The lines about links that opening them puts on stderr.
std::string saidWhileLinking(PacketPort& from, const PacketPort& to, LinkId& link) {
  ::testing::internal::CaptureStderr();
  link = linkTo(from, to);
  return ::testing::internal::GetCapturedStderr();
}

TEST(AutoPort, OneRankCannotShareMemory_BothUseTheNetworkAndSayWhyOnce) {
  inProcess([](const std::string& hostA, const std::string&) {
    const auto a = openPort(onHost(hostA)), b = openPort(withoutMemory("/proc/nowhere")), c = openPort(onHost(hostA));
    EXPECT_NE(b->describe().find("no shared memory (memif directory '/proc/nowhere' cannot be made"), std::string::npos)
        << b->describe();
    LinkId toB = 0, toA = 0, again = 0;
    const std::string atA = saidWhileLinking(*a, *b, toB), atB = saidWhileLinking(*b, *a, toA);
    const std::string cause = "memif directory '/proc/nowhere' cannot be made (No such file or directory)";
    for (const std::string& said : {atA, atB}) {
      EXPECT_NE(said.find(cause), std::string::npos) << said;
      EXPECT_NE(said.find("over the network"), std::string::npos) << said;
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    }
    EXPECT_NE(atA.find("process " + std::to_string(::getpid())), std::string::npos) << atA;
    EXPECT_EQ(saidWhileLinking(*a, *openPort(withoutMemory("/proc/nowhere")), again), "");
    EXPECT_EQ(saidWhileLinking(*b, *c, again), "");
    for (const auto& [port, link] : {std::pair(a.get(), toB), std::pair(b.get(), toA)}) {
      EXPECT_FALSE(port->linkProperties(link).lossless);
      EXPECT_FALSE(port->linkProperties(link).local);
    }
    expectPasses(*a, toB, *b, toA);
    expectPasses(*b, toA, *a, toB);
    const LinkId toC = linkTo(*a, *c), fromC = linkTo(*c, *a);
    EXPECT_TRUE(a->linkProperties(toC).lossless);
    expectPasses(*a, toC, *c, fromC);
    const LinkId self = linkTo(*b, *b);
    expectPasses(*b, self, *b, self);
  });
}

TEST(AutoPort, PeersReason_IsShownWithoutControlCharacters) {
  inProcess([](const std::string& hostA, const std::string&) {
    const auto a = openPort(onHost(hostA)), b = openPort(withoutMemory("/proc/\033[2Jx\r\ny"));
    LinkId ignored = 0;
    const std::string said = saidWhileLinking(*a, *b, ignored);
    EXPECT_NE(said.find("\\x1b[2Jx\\x0d\\x0ay"), std::string::npos) << said;
    EXPECT_EQ(said.find('\033'), std::string::npos);
  });
}

// What the peer says of it has bounds; the cause lies within them.
TEST(AutoPort, PeersReasonIsLong_ItsCauseIsSaid) {
  inProcess([](const std::string& hostA, const std::string&) {
    const auto a = openPort(onHost(hostA));
    const auto expectSaid = [&](const TransportConfig& config, const std::string& cause) {
      const auto b = openPort(config), neighbour = openPort(onHost(hostA));
      LinkId ignored = 0;
      const std::string atA = saidWhileLinking(*neighbour, *b, ignored);
      const std::string atB = saidWhileLinking(*b, *neighbour, ignored);
      EXPECT_NE(atA.find(cause), std::string::npos) << atA;
      EXPECT_NE(atB.find(cause), std::string::npos) << atB;
    };
    expectSaid(withoutMemory("/proc/" + std::string(56, 'd')), "cannot be made (No such file or directory)");
    expectSaid(withoutMemory("/tmp/" + std::string(400, 'd')), "is longer than 62 bytes");
    expectSaid(withoutMemory("/proc/" + std::string(50, '\a')), "cannot be made (No such file or directory)");
    const auto usable = withoutMemory(hostA);
    rlimit few{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &few), 0);
    few.rlim_cur = 65536;  // enough for the page
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
    const auto b = openPort(usable);
    few.rlim_cur = few.rlim_max;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
    LinkId ignored = 0;
    const std::string said = saidWhileLinking(*a, *b, ignored);
    EXPECT_NE(said.find("files may have 65536 (ulimit -f)"), std::string::npos) << said;
  });
}

// It may be a process of this host.
TEST(AutoPort, PeersMachineIsUnknown_ItsReasonIsSaid) {
  PortId machine{};
  machine.fill(7);
  NoMemoryAddress peer{.machineId = {}, .pid = 4711, .why = "boot_id cannot be read"};
  const std::string said = whyNoMemory(encodeAddress(peer), machine);
  EXPECT_NE(said.find("process 4711"), std::string::npos) << said;
  EXPECT_NE(said.find("boot_id cannot be read"), std::string::npos) << said;
  peer.machineId.fill(8);
  EXPECT_EQ(whyNoMemory(encodeAddress(peer), machine), "");
}

TEST(AutoPort, WithoutMemoryAsleep_WakesForBoth) {
  inProcess([](const std::string& hostA, const std::string&) {
    const auto a = openPort(onHost(hostA)), b = openPort(withoutMemory("/proc/nowhere"));
    KeepingSink sink;
    const auto sleeps = [&](const std::function<void()>& meanwhile) {
      const TimePoint begin = monotonicNow();
      b->armWakeup();
      EXPECT_EQ(b->receive(sink, 64), 0U);
      std::thread other([&] {
        ::usleep(20'000);
        meanwhile();
      });
      b->block(seconds(10));
      b->disarmWakeup();
      other.join();
      return monotonicNow() - begin;
    };
    EXPECT_LT(sleeps([&] { b->wake(); }), Duration(seconds(5))) << "before it uses the network";
    LinkId toB = 0, toA = 0;
    EXPECT_LT(sleeps([&] { toA = linkTo(*b, *a); }), Duration(seconds(5)));
    toB = linkTo(*a, *b);
    EXPECT_LT(sleeps([&] { b->wake(); }), Duration(seconds(5)));
    EXPECT_LT(sleeps([&] {
                EXPECT_EQ(transmit(*a, toB, pattern(100)), 1U);
                a->wakePeers();
              }),
              Duration(seconds(5)));
    EXPECT_TRUE(receiveUntil(*b, sink, [&] { return sink.links == std::vector<LinkId>{toA}; }));
  });
}

// Of a kind each: what is wrong with a directory that nobody named, and with one that somebody did.
TEST(AutoPort, DirectoryCannotBeUsed_DefaultIsDoneWithoutAndANamedOneRefused) {
  inProcess([](const std::string& host, const std::string&) {
    const std::string open = host + "/open", file = host + "/file", another = host + "/another";
    std::filesystem::create_directory(open);
    std::filesystem::permissions(open, std::filesystem::perms::all);
    std::ofstream(file) << "no directory";
    std::filesystem::create_directory(another);
    ASSERT_TRUE(::geteuid() != 0 || ::chown(another.c_str(), 12345, 12345) == 0);
    std::vector<std::string> unusable{
        open, file, file + "/m", "/proc/nowhere", "relative", "/tmp/" + std::string(90, 'x')};
    if (::geteuid() == 0) unusable.push_back(another);
    for (const std::string& directory : unusable) {
      SCOPED_TRACE(directory);
      const auto port = openPort(withoutMemory(directory));
      EXPECT_NE(port->describe().find("no shared memory (memif directory '" + directory), std::string::npos)
          << port->describe();
      EXPECT_NE(port->describe().find("UDP socket"), std::string::npos);
      const auto named = makeDpdkPort(onHost(directory));
      ASSERT_FALSE(named.ok());
      EXPECT_NE(named.error().message.find(directory), std::string::npos) << named.error().message;
      TransportConfig memif = withoutMemory(directory);
      memif.link = LinkMode::kMemif;
      const auto chosen = makeDpdkPort(memif);
      ASSERT_FALSE(chosen.ok());
      EXPECT_EQ(chosen.error().message, named.error().message);
    }
  });
}

// A sandbox that refuses what memory links need: found out before anybody has the port's address.
struct Refusal {
  const char* name;
  long call;
  std::optional<test::RefusedArgument> argument;
  const char* named;  // in the reason
};

// Of a length that no other address has.
constexpr test::RefusedArgument kUnixAddress{2, sizeof(sockaddr_un)};

class RefusedCall : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedCall, Auto_UsesTheNetwork_Memif_FailsAndBothNameTheCall) {
  for (const int error : {EPERM, ENOSYS}) {
    inProcess([&](const std::string& hostA, const std::string&) {
      const auto neighbour = openPort(onHost(hostA));
      ASSERT_TRUE(test::refuseCall(GetParam().call, error, GetParam().argument));
      const auto port = openPort(withoutMemory(hostA));
      EXPECT_NE(port->describe().find(GetParam().named), std::string::npos) << port->describe();
      EXPECT_NE(port->describe().find(std::strerror(error)), std::string::npos) << port->describe();
      LinkId toPort = 0, fromPort = 0;
      const std::string said = saidWhileLinking(*neighbour, *port, toPort);
      EXPECT_NE(said.find(GetParam().named), std::string::npos) << said;
      fromPort = linkTo(*port, *neighbour);
      expectPasses(*neighbour, toPort, *port, fromPort);
      expectPasses(*port, fromPort, *neighbour, toPort);
      TransportConfig memif = onHost(hostA);
      memif.link = LinkMode::kMemif;
      const auto chosen = makeDpdkPort(memif);
      ASSERT_FALSE(chosen.ok());
      EXPECT_NE(chosen.error().message.find(GetParam().named), std::string::npos) << chosen.error().message;
      EXPECT_EQ(chosen.error().message.find('\n'), std::string::npos);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    , RefusedCall,
    testing::Values(Refusal{"MemoryFile", SYS_memfd_create, {}, "memfd_create"},
                    Refusal{"FileSize", SYS_ftruncate, {}, "ftruncate"},
                    Refusal{"Seals", SYS_fcntl, test::RefusedArgument{1, F_ADD_SEALS}, "F_ADD_SEALS"},
                    Refusal{"Bind", SYS_bind, kUnixAddress, "bind"},
                    Refusal{"UnixSocket", SYS_socket, test::RefusedArgument{0, AF_UNIX}, "socket"},
                    Refusal{"Connect", SYS_connect, kUnixAddress, "connect"},
                    Refusal{"Accept", SYS_accept4, {}, "accept4"}, Refusal{"Listen", SYS_listen, {}, "listen"},
                    Refusal{"Credentials", SYS_getsockopt, test::RefusedArgument{2, SO_PEERCRED}, "SO_PEERCRED"},
                    Refusal{"Rename", SYS_rename, {}, "rename"},
                    Refusal{"Epoll", SYS_epoll_create1, {}, "epoll_create1"},
                    Refusal{"EpollControl", SYS_epoll_ctl, {}, "epoll_ctl"},
                    Refusal{"EpollWait", SYS_epoll_wait, {}, "epoll_wait"}),
    [](const auto& info) { return info.param.name; });

TEST(AutoPort, FilesMayNotBeSoLong_UsesTheNetworkAndNamesTheLimit) {
  inProcess([](const std::string& hostA, const std::string&) {
    const rlimit limit{1 << 20, 1 << 20};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto port = openPort(withoutMemory(hostA));
    EXPECT_NE(port->describe().find("ulimit -f"), std::string::npos) << port->describe();
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
