// Leftovers of memory links: transports over memif ports of one process that open and close channels.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/no_more_descriptors.h"
#include "tests/support/no_more_memory.h"
#include "tests/support/no_more_threads.h"
#include "tests/transport/dpdk/port_process.h"
#include "transport/base/exhausted.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/packet_socket.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/dpdk/back_end.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/port_address.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::dpdk {
namespace {

using Bytes = std::vector<std::byte>;
constexpr int kPeers = 40;
constexpr std::size_t kMessageBytes = 100'000;

struct Held {
  std::ptrdiff_t descriptors = 0, mappings = 0;
  bool operator<=(const Held& other) const { return descriptors <= other.descriptors && mappings <= other.mappings; }
};

void PrintTo(const Held& held, std::ostream* out) {
  *out << held.descriptors << " descriptors, " << held.mappings << " shared mappings";
}

// Heap and stacks vary: count the memory shared with peers.
Held heldNow() {
  Held held;
  held.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos || line.find("memif") != std::string::npos) ++held.mappings;
  }
  return held;
}

std::shared_ptr<Transport> openTransport() {
  const TransportConfig config = memifTestConfig();
  auto port = makeDpdkPort(config);
  EXPECT_TRUE(port.ok()) << (port.ok() ? "" : port.error().message);
  return makeDatagramTransport(config, std::move(port).value()).value();
}

struct Observer final : ChannelObserver {
  void onSendComplete(OperationToken) noexcept override { sent = true; }
  void onReceiveComplete(OperationToken, std::size_t) noexcept override { received = true; }
  void onMessageAnnounced(MessageKey, std::size_t) noexcept override {}
  void onStateChange(ChannelState next) noexcept override { state = next; }
  bool sent = false, received = false;
  ChannelState state = ChannelState::kUnconnected;
};

// One end of a channel.
struct End {
  explicit End(Transport& of) : transport(of) {
    within([&] { channel = std::move(transport.openChannel({}, &observer).value()); });
  }
  ~End() { close(); }
  void within(const std::function<void()>& f) { transport.progress().exclusive(f); }
  bool wait(const std::function<bool()>& condition) {
    return transport.progress().waitUntil(condition, monotonicNow() + Duration(std::chrono::seconds(20)));
  }
  void connect(const Bytes& address) {
    within([&] { ASSERT_TRUE(channel->connect(address).ok()); });
  }
  void connect(const End& peer) { connect(peer.channel->localAddress()); }
  void close(bool abort = false) {
    within([&] {
      if (channel) channel->close(abort);
      channel.reset();
    });
  }
  std::string why() {
    std::string text;
    within([&] { text = channel->state() == ChannelState::kFailed ? channel->error().message : "no error"; });
    return text;
  }

  Transport& transport;
  Observer observer;
  std::unique_ptr<MessageChannel> channel;
};

void expectConnected(End& a, End& b) {
  for (End* end : {&a, &b}) {
    (void)end->wait([&] {
      return end->observer.state == ChannelState::kConnected || end->observer.state == ChannelState::kFailed;
    });
    ASSERT_EQ(end->observer.state, ChannelState::kConnected) << end->why();
  }
}

void connectBoth(End& a, End& b) {
  a.connect(b);
  b.connect(a);
  expectConnected(a, b);
}

// The last operation of `from` before it closes.
void sendAndClose(End& from, End& to) {
  const Bytes out(kMessageBytes, std::byte{7});
  Bytes in(kMessageBytes);
  to.within([&] {
    ASSERT_TRUE(to.channel->postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = in.size()}).ok());
  });
  from.within([&] {
    ASSERT_TRUE(from.channel->postSend({.token = 1, .key = {}, .data = out.data(), .length = out.size()}).ok());
  });
  from.close();
  ASSERT_TRUE(to.wait([&] { return to.observer.received || to.observer.state == ChannelState::kFailed; }));
  ASSERT_TRUE(to.observer.received) << to.why();
  EXPECT_EQ(in, out);
}

void expectBackTo(const Held& before, int round) {
  EXPECT_TRUE(waitFor([&] { return heldNow() <= before; }))
      << "round " << round << ": " << ::testing::PrintToString(heldNow()) << ", before "
      << ::testing::PrintToString(before);
}

class MemifLinks : public ::testing::Test {
 protected:
  void SetUp() override { (void)testDirectory(); }
  void TearDown() override { removeTestDirectory(); }
};

// `keeps`: the program keeps its channels to ended peers open.
void survive(Partner& partner, int peers, bool keeps) {
  const auto survivor = openTransport();
  const Held before = heldNow();
  std::vector<std::unique_ptr<End>> kept;
  for (int round = 0; round < peers; ++round) {
    auto own = std::make_unique<End>(*survivor);
    partner.send(own->channel->localAddress());
    own->connect(partner.receive());
    const Bytes out(kMessageBytes, std::byte{7});
    Bytes in(out.size());
    own->within([&] {
      ASSERT_TRUE(own->channel->postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = in.size()}).ok());
    });
    ASSERT_TRUE(own->wait([&] { return own->observer.received || own->observer.state == ChannelState::kFailed; }));
    ASSERT_TRUE(own->observer.received) << own->why();
    EXPECT_EQ(in, out);
    if (keeps) kept.push_back(std::move(own));
    own.reset();
    expectBackTo(before, round);
    partner.meet();
  }
}

void comeAndGo(Partner& partner, int times) {
  for (int round = 0; round < times; ++round) {
    const auto transport = openTransport();
    {
      End own(*transport);
      partner.send(own.channel->localAddress());
      own.connect(partner.receive());
      const Bytes out(kMessageBytes, std::byte{7});
      own.within([&] {
        ASSERT_TRUE(own.channel->postSend({.token = 1, .key = {}, .data = out.data(), .length = out.size()}).ok());
      });
      ASSERT_TRUE(own.wait([&] { return own.observer.sent || own.observer.state == ChannelState::kFailed; }));
    }
    transport->closeAll();
    partner.meet();
  }
}

TEST_F(MemifLinks, FortyPeersOneAfterTheOther_NothingOfThemIsKept) {
  runProcesses({[](Partner& p) { survive(p, kPeers, false); }}, {[](Partner& p) { comeAndGo(p, kPeers); }});
}

TEST_F(MemifLinks, PeersEndAndTheirChannelsStayOpen_NothingOfThemIsKept) {
  runProcesses({[](Partner& p) { survive(p, kPeers, true); }}, {[](Partner& p) { comeAndGo(p, kPeers); }});
}

// Groups come and go between two processes that live on.
TEST_F(MemifLinks, FortyGroupsOneAfterTheOther_NothingOfThemIsKept) {
  runProcess([] {
    const auto a = openTransport(), b = openTransport();
    const Held before = heldNow();
    for (int round = 0; round < kPeers && !::testing::Test::HasFailure(); ++round) {
      {
        End atA(*a), atB(*b);
        connectBoth(atA, atB);
        if (::testing::Test::HasFailure()) return;
        sendAndClose(round % 2 == 0 ? atA : atB, round % 2 == 0 ? atB : atA);
      }
      expectBackTo(before, round);
    }
  });
}

// One rank of many on a host; to its port each is a separate process. Pages are allocated at first touch, or this would
// take 480 MB.
TEST_F(MemifLinks, SixtyFourPeersAtATime_AllConnectAndNothingIsKept) {
  runProcess([] {
    constexpr int kPeersAtATime = 64;  // twice what DPDK's driver allowed
    const auto hub = openTransport();
    const Held before = heldNow();
    {
      std::vector<std::shared_ptr<Transport>> others;
      std::vector<std::unique_ptr<End>> hubEnds, otherEnds;
      for (int i = 0; i < kPeersAtATime; ++i) {
        others.push_back(openTransport());
        hubEnds.push_back(std::make_unique<End>(*hub));
        otherEnds.push_back(std::make_unique<End>(*others.back()));
        hubEnds.back()->connect(*otherEnds.back());
        otherEnds.back()->connect(*hubEnds.back());
      }
      for (std::size_t i = 0; i < others.size() && !::testing::Test::HasFailure(); ++i) {
        expectConnected(*hubEnds[i], *otherEnds[i]);
        sendAndClose(*hubEnds[i], *otherEnds[i]);
      }
      for (const auto& other : others) other->closeAll();
    }
    expectBackTo(before, 0);
  });
}

// One end has finished with the old group and its link while the other connects for the next one.
TEST_F(MemifLinks, NextGroupConnectsWhileTheLastOnesLinkEnds_BothEndsMeet) {
  runProcess([] {
    const auto a = openTransport(), b = openTransport();
    for (int round = 0; round < 2 * kPeers && !::testing::Test::HasFailure(); ++round) {
      Transport& first = round % 2 == 0 ? *a : *b;
      Transport& second = round % 2 == 0 ? *b : *a;
      End oldFirst(first), oldSecond(second);
      connectBoth(oldFirst, oldSecond);
      if (::testing::Test::HasFailure()) return;
      End nextFirst(first), nextSecond(second);
      oldFirst.close(/*abort=*/round % 4 >= 2);
      nextSecond.connect(nextFirst);  // over the old link, which the first no longer wants
      nextFirst.connect(nextSecond);
      expectConnected(nextFirst, nextSecond);
    }
  });
}

// Each connects alone, and gives up: the other's port has accepted a connection that is useless now.
TEST_F(MemifLinks, OneEndGivesUpBeforeTheOtherConnects_TheNextTryMeets) {
  runProcess([] {
    const auto a = openTransport(), b = openTransport();
    for (int round = 0; round < 4 && !::testing::Test::HasFailure(); ++round) {
      Transport& first = round % 2 == 0 ? *a : *b;
      Transport& second = round % 2 == 0 ? *b : *a;
      End early(first), never(second), nextFirst(first), nextSecond(second);
      early.connect(never);
      early.close(true);
      connectBoth(nextFirst, nextSecond);
    }
  });
}

TEST(MemifExhausted, NoThreadIsLeft_ErrorNamesTheLimitsAndSignalsStayAsTheyWere) {
  sigset_t before, after;
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  {
    const test::NoMoreThreads none;
    const auto made = makeTransport(backEnd(), memifTestConfig());
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find("ulimit -u"), std::string::npos) << made.error().message;
  }
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &after), 0);
  EXPECT_EQ(::sigismember(&after, SIGTERM), ::sigismember(&before, SIGTERM)) << "blocked for good";
  EXPECT_TRUE(makeTransport(backEnd(), memifTestConfig()).ok());
}

PortId idOf(const std::vector<std::byte>& address) { return decodeMemifAddress(address).value().portId; }

// The end that accepts. It has `more` descriptors, then enough.
void acceptWithFew(Partner& partner, rlim_t more) {
  const std::vector<std::byte> peer = partner.receive();
  std::unique_ptr<PacketPort> port;
  do {  // the smaller id connects
    port.reset();
    auto made = makeDpdkPort(memifTestConfig());
    ASSERT_TRUE(made.ok()) << made.error().message;
    port = std::move(made).value();
  } while (idOf(port->localAddress()) < idOf(peer));
  partner.send(port->localAddress());
  CollectingSink sink;
  const auto link = port->openLink(peer);
  ASSERT_TRUE(link.ok()) << link.error().message;
  std::atomic<bool> met = false, hasEnough = false;
  std::thread waiter([&] {
    partner.meet();
    met = true;
    hasEnough.wait(false);  // UBSan needs descriptors to check what a thread's end destroys
  });
  const auto serveUntilMet = [&] {
    EXPECT_TRUE(waitFor([&] {
      port->onTick(monotonicNow());
      (void)port->receive(sink, 64);
      return met.load();
    }));
  };
  ::testing::internal::CaptureStderr();
  {
    const test::NoMoreDescriptors few(more);
    serveUntilMet();
  }
  hasEnough = true;
  hasEnough.notify_all();
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string own = sink.down.empty() ? said : sink.down.front().second.message;
  EXPECT_NE(own.find("RLIMIT_NOFILE"), std::string::npos) << "said: " << said << "; link: " << own;
  waiter.join();
}

TEST(MemifExhausted, AcceptingEndHasNoDescriptor_BothEndsNameIt) {
  for (const rlim_t more : {0, 1}) {
    SCOPED_TRACE(more);
    runProcesses({[&](Partner& partner) {
                   auto made = makeDpdkPort(memifTestConfig());
                   ASSERT_TRUE(made.ok());
                   const auto port = std::move(made).value();
                   partner.send(port->localAddress());
                   const auto link = port->openLink(partner.receive());
                   ASSERT_TRUE(link.ok()) << link.error().message;
                   CollectingSink sink;
                   EXPECT_TRUE(waitFor([&] {
                     port->onTick(monotonicNow());
                     (void)port->receive(sink, 64);
                     return !sink.down.empty();
                   })) << "silence";
                   if (!sink.down.empty()) {
                     EXPECT_NE(sink.down.front().second.message.find("it has no descriptor left"), std::string::npos)
                         << sink.down.front().second.message;
                   }
                   partner.meet();
                 }},
                 {[&](Partner& partner) { acceptWithFew(partner, more); }});
  }
}

TEST(MemifExhausted, ConnectingEndHasNoMemory_BothEndsNameIt) {
  auto client = openPort(), server = openPort();
  if (idOf(server->localAddress()) < idOf(client->localAddress())) std::swap(client, server);
  ASSERT_TRUE(client->openLink(server->localAddress()).ok());
  ASSERT_TRUE(server->openLink(client->localAddress()).ok());
  CollectingSink atClient, atServer;
  ASSERT_TRUE(waitFor(otherThreadsSleep));
  {
    const test::NoMoreMemory none;
    (void)waitFor([&] {
      for (PacketPort* port : {client.get(), server.get()}) port->onTick(monotonicNow());
      (void)client->receive(atClient, 8);
      (void)server->receive(atServer, 8);
      return !atClient.down.empty() && !atServer.down.empty();
    });
  }
  ASSERT_FALSE(atClient.down.empty() || atServer.down.empty());
  EXPECT_NE(atClient.down.front().second.message.find("ulimit -v"), std::string::npos)
      << atClient.down.front().second.message;
  EXPECT_NE(atServer.down.front().second.message.find("it has no memory left"), std::string::npos)
      << atServer.down.front().second.message;
}

// For unprivileged users Linux counts, per user, descriptors that are sent and not yet received.
TEST(MemifExhausted, TooManyDescriptorsOnTheirWay_IsNotThePeersEnd) {
  runProcess([] {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
    ASSERT_EQ(::syscall(SYS_capset, &header, none.data()), 0);
    const rlimit limit{64, 64};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    const std::byte packet{};
    PacketIo sent = PacketIo::kDone;
    for (int i = 0; i < 100 && sent == PacketIo::kDone; ++i)
      sent = sendPacket(ends[0], std::span(&packet, 1), STDERR_FILENO);
    const int error = errno;
    EXPECT_EQ(sent, PacketIo::kExhausted);
    EXPECT_NE(exhausted(error).find("RLIMIT_NOFILE is 64"), std::string::npos) << exhausted(error);
  });
}

}  // namespace
}  // namespace gloo_bypass::dpdk
