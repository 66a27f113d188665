// Shared-memory ports between two real processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/transport/dpdk/port_process.h"
#include "transport/dpdk/dpdk_port.h"

namespace gloo_bypass::dpdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

TimePoint now() { return TimePoint(Clock::now().time_since_epoch()); }

// The event itself must end the wait, for which a busy machine needs a second at most; the shortest bound on a wait
// here is 10 s.
constexpr seconds kPromptly{10};

class MemifPort : public ::testing::Test {
 protected:
  void SetUp() override { (void)testDirectory(); }  // named after this process, before any child is forked
  void TearDown() override { removeTestDirectory(); }
};

// Frame `index` of a stream: its length and bytes follow from seed and index.
class Stream {
 public:
  Stream(unsigned seed, std::size_t maxBytes) : random_(seed), maxBytes_(maxBytes), bytes_(maxBytes + 64) {
    for (auto& b : bytes_) b = static_cast<std::byte>(random_());
  }
  std::span<const std::byte> next() {
    ++index_;
    // Small, middling and full frames; the index is part of the bytes, so that order shows.
    const unsigned kind = random_() % 8;
    const std::size_t limit = kind < 5 ? 256 : kind < 7 ? 9000 : maxBytes_;
    std::size_t length = kind == 7 && random_() % 4 == 0 ? maxBytes_ : 8 + random_() % (std::min(limit, maxBytes_) - 7);
    std::byte* begin = bytes_.data() + random_() % 64;
    std::memcpy(begin, &index_, sizeof(index_));
    return {begin, length};
  }

 private:
  std::minstd_rand random_;
  std::size_t maxBytes_;
  std::uint64_t index_ = 0;
  std::vector<std::byte> bytes_;
};

class ComparingSink : public PacketSink {
 public:
  ComparingSink(unsigned seed, std::size_t maxBytes) : stream_(seed, maxBytes) {}
  void onDatagram(LinkId, std::span<const std::byte> datagram) noexcept override {
    const auto expected = stream_.next();
    ++received;
    if (datagram.size() != expected.size() || std::memcmp(datagram.data(), expected.data(), expected.size()) != 0)
      ++wrong;
  }
  void onLinkDown(LinkId, const Error& error) noexcept override { down = error.message; }
  std::size_t received = 0, wrong = 0;
  std::string down;

 private:
  Stream stream_;
};

void streamBothWays(Partner& partner, unsigned seedOut, unsigned seedIn, std::size_t frames,
                    const TransportConfig& config) {
  const auto port = openPort(config);
  const LinkId link = linkPorts(*port, partner);
  const std::size_t maxBytes = port->linkProperties(link).maxDatagramBytes;
  Stream out(seedOut, maxBytes);
  ComparingSink sink(seedIn, maxBytes);
  std::size_t sent = 0;
  std::span<const std::byte> pending;
  bool done = false;
  for (const auto limit = Clock::now() + seconds(100); !done && Clock::now() < limit;) {
    const std::size_t before = sent + sink.received;
    port->onTick(now());
    // Sends until the ring is full, then takes less than it sends: full rings both ways most of the time.
    for (int i = 0; i < 100 && sent < frames; ++i) {
      if (pending.empty()) pending = out.next();
      const std::size_t cut = std::min<std::size_t>(pending.size(), 40);
      const OutgoingDatagram datagram{pending.first(cut), pending.subspan(cut)};
      if (port->transmit(link, std::span(&datagram, 1)) == 0) break;
      pending = {};
      ++sent;
    }
    (void)port->receive(sink, 16);
    done = sent == frames && sink.received == frames;
    // Yield only if there is nothing to do: beside other threads Linux 6.18 gives a yielding thread its core back
    // milliseconds later.
    if (sent + sink.received == before) std::this_thread::yield();
  }
  EXPECT_TRUE(done) << "sent " << sent << " received " << sink.received << " " << sink.down;
  EXPECT_EQ(sink.wrong, 0U);
  EXPECT_EQ(sink.down, "");
  EXPECT_GT(port->counters().transmitFull, 0U);
  EXPECT_EQ(port->counters().droppedMalformed, 0U);
  partner.meet();
}

TEST_F(MemifPort, BothDirectionsUnderFullRings_EveryFrameArrivesBitExactInOrder) {
  constexpr std::size_t kFrames = 80'000;  // the rings' 16-bit counters wrap
  const TransportConfig config = memifTestConfig();
  runProcesses({[&](Partner& p) { streamBothWays(p, 1, 2, kFrames, config); }},
               {[&](Partner& p) { streamBothWays(p, 2, 1, kFrames, config); }});
}

TEST_F(MemifPort, TinyRing_EveryFrameArrives) {
  TransportConfig config = memifTestConfig();
  config.memifLog2Slots = 1;
  config.memifBufferBytes = 2048;
  runProcesses({[&](Partner& p) { streamBothWays(p, 1, 2, 2'000, config); }},
               {[&](Partner& p) { streamBothWays(p, 2, 1, 2'000, config); }});
}

// Waits for one datagram, blocking as the engine does.
bool blockForDatagram(PacketPort& port, CollectingSink& sink, Clock::time_point limit) {
  while (Clock::now() < limit) {
    port.onTick(now());
    if (port.receive(sink, 32) > 0) return true;
    if (!sink.down.empty()) return false;
    port.armWakeup();
    if (port.receive(sink, 32) > 0) {
      port.disarmWakeup();
      return true;
    }
    port.block(seconds(20));
    port.disarmWakeup();
  }
  return false;
}

void transmitOne(PacketPort& port, LinkId link, std::span<const std::byte> bytes) {
  const OutgoingDatagram datagram{bytes, {}};
  CollectingSink ignored;
  EXPECT_TRUE(waitFor([&] {
    port.onTick(now());
    (void)port.receive(ignored, 0);
    return port.transmit(link, std::span(&datagram, 1)) == 1;
  }));
  port.wakePeers();
}

TEST_F(MemifPort, PingPongWithBothEndsBlocking_NoWakeUpIsLost) {
  constexpr int kRounds = 5'000;
  const auto end = [](bool first) {
    return [first](Partner& partner) {
      const auto port = openPort();
      const LinkId link = linkPorts(*port, partner);
      CollectingSink sink;
      std::array<std::byte, 8> ping{};
      constexpr std::byte kLast{1};
      // Each round waits for the scheduler twice: on a busy machine fewer must suffice. The first end announces the
      // last round.
      const auto enough = Clock::now() + seconds(15);
      if (first) transmitOne(*port, link, ping);
      for (int i = 1; ping[0] != kLast; ++i) {
        const auto before = Clock::now();
        ASSERT_TRUE(blockForDatagram(*port, sink, before + seconds(25))) << "round " << i;
        // block() is called with 20 s: a lost wake-up would take that long.
        ASSERT_LT(Clock::now() - before, seconds(8)) << "round " << i;
        ASSERT_EQ(sink.datagrams.front().size(), ping.size());
        if (first) {
          if (i == kRounds || Clock::now() > enough) ping[0] = kLast;
        } else {
          ping[0] = sink.datagrams.front()[0];
        }
        sink.datagrams.clear();
        if (first || ping[0] != kLast) transmitOne(*port, link, ping);
      }
      partner.meet();
    };
  };
  runProcesses({end(true)}, {end(false)});
}

TEST_F(MemifPort, SenderBlockedOnFullRing_WakesWhenReceiverTakes) {
  runProcesses({[](Partner& partner) {
                 const auto port = openPort();
                 const LinkId link = linkPorts(*port, partner);
                 CollectingSink sink;
                 const std::vector<std::byte> bytes(4096);
                 const OutgoingDatagram datagram{bytes, {}};
                 transmitOne(*port, link, bytes);
                 while (port->transmit(link, std::span(&datagram, 1)) == 1) {
                 }
                 port->armWakeup();
                 ASSERT_EQ(port->receive(sink, 32), 0U);
                 ASSERT_EQ(port->transmit(link, std::span(&datagram, 1)), 0U);
                 partner.meet();
                 const auto before = Clock::now();
                 std::size_t sent = 0;
                 while (sent == 0 && Clock::now() - before < seconds(10)) {
                   port->block(seconds(20));
                   port->disarmWakeup();
                   ASSERT_EQ(port->receive(sink, 32), 0U);
                   port->armWakeup();
                   sent = port->transmit(link, std::span(&datagram, 1));
                 }
                 EXPECT_LT(Clock::now() - before, seconds(10));
                 port->disarmWakeup();
                 EXPECT_EQ(sent, 1U);
                 partner.meet();
               }},
               {[](Partner& partner) {
                 const auto port = openPort();
                 linkPorts(*port, partner);
                 // Keeps the handshake going without taking frames until the sender says that it is full.
                 CollectingSink sink;
                 std::atomic<bool> met{false};
                 std::thread waiter([&] {
                   partner.meet();
                   met = true;
                 });
                 EXPECT_TRUE(waitFor([&] {
                   port->onTick(now());
                   (void)port->receive(sink, 0);
                   return met.load();
                 }));
                 waiter.join();
                 // A sender is woken for half a ring, or when nothing is left to receive.
                 EXPECT_TRUE(waitFor([&] { return port->receive(sink, 32) == 0 && !sink.datagrams.empty(); }));
                 partner.meet();
               }});
}

TEST_F(MemifPort, PeerKilledWhileBothStream_LinkGoesDownPromptlyAndNothingCrashes) {
  const auto flood = [](Partner& partner, bool victim) {
    const auto port = openPort();
    const LinkId link = linkPorts(*port, partner);
    const std::size_t maxBytes = port->linkProperties(link).maxDatagramBytes;
    const std::vector<std::byte> bytes(maxBytes);
    CollectingSink sink;
    auto lastActivity = Clock::now();
    std::size_t received = 0;
    const bool down = waitFor([&] {
      port->onTick(now());
      const OutgoingDatagram datagram{{}, bytes};
      while (port->transmit(link, std::span(&datagram, 1)) == 1) {
      }
      const std::size_t count = port->receive(sink, 32);
      if (count > 0) lastActivity = Clock::now();
      received += count;
      sink.datagrams.clear();
      if (victim && received > 2000) ::kill(::getpid(), SIGKILL);
      return !sink.down.empty();
    });
    ASSERT_TRUE(down);
    EXPECT_LT(Clock::now() - lastActivity, kPromptly);
    EXPECT_EQ(sink.down.front().first, link);
    EXPECT_EQ(sink.down.front().second.code, ErrorCode::kPeerVanished);
    EXPECT_NE(sink.down.front().second.message.find("process"), std::string::npos);
    EXPECT_EQ(port->transmit(link, {}), 0U);
  };
  // Either end may be memif's client: the ids are random, so several rounds see both.
  for (int i = 0; i < 4; ++i) {
    runProcesses({[&](Partner& p) { flood(p, true); }, true}, {[&](Partner& p) { flood(p, false); }});
  }
}

// Every mapping of links' memory.
void overwriteSharedMemory() {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memif_region") == std::string::npos) continue;
    const std::size_t dash = line.find('-');
    auto* const begin = reinterpret_cast<void*>(std::stoul(line.substr(0, dash), nullptr, 16));
    auto* const end = reinterpret_cast<void*>(std::stoul(line.substr(dash + 1), nullptr, 16));
    std::memset(begin, 0xff, static_cast<std::size_t>(static_cast<char*>(end) - static_cast<char*>(begin)));
    ++found;
  }
  EXPECT_GT(found, 0U);
}

TEST_F(MemifPort, PeerOverwritesTheSharedMemory_LinkGoesDownAndNothingCrashes) {
  // Either end may be memif's client: the ids are random, so several rounds see both.
  for (int i = 0; i < 4; ++i) {
    runProcesses({[](Partner& partner) {
                   const auto port = openPort();
                   const LinkId link = linkPorts(*port, partner);
                   transmitOne(*port, link, std::array<std::byte, 8>{});
                   partner.meet();
                   overwriteSharedMemory();
                   partner.meet();
                 }},
                 {[](Partner& partner) {
                   const auto port = openPort();
                   linkPorts(*port, partner);
                   CollectingSink sink;
                   const auto take = [&] {
                     port->onTick(now());
                     (void)port->receive(sink, 32);
                   };
                   EXPECT_TRUE(waitFor([&] { return take(), !sink.datagrams.empty(); }));
                   partner.meet();
                   EXPECT_TRUE(waitFor([&] { return take(), !sink.down.empty(); }));
                   if (!sink.down.empty()) {
                     EXPECT_EQ(sink.down.front().second.code, ErrorCode::kPeerViolatedProtocol);
                   }
                   partner.meet();
                 }});
  }
}

TEST_F(MemifPort, PeerKilledWhileWeBlock_WakesAndReportsLinkDown) {
  runProcesses({[](Partner& partner) {
                  const auto port = openPort();
                  const LinkId link = linkPorts(*port, partner);
                  const std::array<std::byte, 8> ping{};
                  transmitOne(*port, link, ping);
                  partner.meet();
                  ::kill(::getpid(), SIGKILL);
                },
                true},
               {[](Partner& partner) {
                 const auto port = openPort();
                 linkPorts(*port, partner);
                 CollectingSink sink;
                 ASSERT_TRUE(blockForDatagram(*port, sink, Clock::now() + seconds(20)));
                 partner.meet();
                 const auto before = Clock::now();
                 EXPECT_FALSE(blockForDatagram(*port, sink, before + seconds(15)));
                 ASSERT_EQ(sink.down.size(), 1U);
                 EXPECT_LT(Clock::now() - before, kPromptly);
               }});
}

TEST_F(MemifPort, PeerSendsAndCloses_LastFramesArriveBeforeLinkDown) {
  runProcesses({[](Partner& partner) {
                 auto port = openPort();
                 const LinkId link = linkPorts(*port, partner);
                 const std::vector<std::byte> bytes(20'000, std::byte{7});
                 for (int i = 0; i < 20; ++i) transmitOne(*port, link, bytes);
                 port.reset();
                 partner.meet();
               }},
               {[](Partner& partner) {
                 const auto port = openPort();
                 linkPorts(*port, partner);
                 CollectingSink sink;
                 // The frames and the end arrive together: the peer is gone when we look.
                 EXPECT_TRUE(waitFor([&] {
                   port->onTick(now());
                   (void)port->receive(sink, 1);
                   return !sink.datagrams.empty();
                 }));
                 partner.meet();
                 EXPECT_TRUE(waitFor([&] {
                   (void)port->receive(sink, 3);
                   return !sink.down.empty();
                 }));
                 EXPECT_EQ(sink.datagrams.size(), 20U);
                 EXPECT_NE(sink.down.front().second.message.find("closed"), std::string::npos);
               }});
  EXPECT_TRUE(std::filesystem::is_empty(testDirectory()));
}

// Only the connector, which has the smaller id, can know; the session's connect timeout bounds the acceptor's wait.
TEST_F(MemifPort, AcceptorGoneBeforeLinking_ConnectorsLinkGoesDown) {
  const auto end = [](Partner& partner) {
    auto port = openPort();
    partner.send(port->localAddress());
    const auto address = partner.receive();
    const bool connector = std::memcmp(port->localAddress().data() + 5, address.data() + 5, 16) < 0;
    if (!connector) port.reset();
    partner.meet();
    if (!connector) return;
    const auto link = port->openLink(address);
    ASSERT_TRUE(link.ok());
    CollectingSink sink;
    EXPECT_TRUE(waitFor([&] {
      port->onTick(now());
      (void)port->receive(sink, 1);
      return !sink.down.empty();
    }));
    ASSERT_EQ(sink.down.size(), 1U);
    EXPECT_EQ(sink.down[0].first, link.value());
    EXPECT_EQ(sink.down[0].second.code, ErrorCode::kPeerVanished) << sink.down[0].second.message;
  };
  runProcesses({end}, {end});
}

TEST_F(MemifPort, LinkToItself_CarriesDatagrams) {
  runProcess([] {
    const auto port = openPort();
    const auto link = port->openLink(port->localAddress());
    ASSERT_TRUE(link.ok());
    EXPECT_EQ(port->openLink(port->localAddress()).value(), link.value());
    const std::vector<std::byte> head(10, std::byte{1}), body(5000, std::byte{2});
    const OutgoingDatagram datagram{head, body};
    CollectingSink sink;
    std::size_t sent = 0;
    while (port->transmit(link.value(), std::span(&datagram, 1)) == 1) ++sent;
    EXPECT_EQ(sent, std::size_t{1} << memifTestConfig().memifLog2Slots);
    EXPECT_EQ(port->receive(sink, sent + 1), sent);
    ASSERT_EQ(sink.datagrams.size(), sent);
    EXPECT_EQ(sink.datagrams[0].size(), 5010U);
    EXPECT_EQ(sink.datagrams[31][5009], std::byte{2});
  });
}

TEST_F(MemifPort, TwoPortsOfOneProcess_CarryDatagrams) {
  runProcess([] {
    const auto a = openPort();
    const auto b = openPort();
    const LinkId ab = a->openLink(b->localAddress()).value();
    const LinkId ba = b->openLink(a->localAddress()).value();
    CollectingSink atA, atB;
    const std::vector<std::byte> bytes(30'000, std::byte{3});
    const OutgoingDatagram datagram{{}, bytes};
    std::size_t sentA = 0, sentB = 0;
    EXPECT_TRUE(waitFor([&] {
      a->onTick(now());
      b->onTick(now());
      if (sentA < 100) sentA += a->transmit(ab, std::span(&datagram, 1));
      if (sentB < 100) sentB += b->transmit(ba, std::span(&datagram, 1));
      (void)a->receive(atA, 32);
      (void)b->receive(atB, 32);
      return atA.datagrams.size() == 100 && atB.datagrams.size() == 100;
    })) << "sent "
        << sentA << " and " << sentB << ", received " << atB.datagrams.size() << " and " << atA.datagrams.size();
    for (const auto& [link, error] : atA.down) ADD_FAILURE() << error.message;
    for (const auto& [link, error] : atB.down) ADD_FAILURE() << error.message;
  });
}

TEST_F(MemifPort, BusyWithItself_StillHearsOthers) {
  runProcess([] {
    const auto a = openPort();
    const auto b = openPort();
    const LinkId self = a->openLink(a->localAddress()).value(), ba = b->openLink(a->localAddress()).value();
    (void)a->openLink(b->localAddress());
    const std::vector<std::byte> toSelf(10, std::byte{1}), fromB(20, std::byte{2});
    const OutgoingDatagram own{toSelf, {}}, other{fromB, {}};
    CollectingSink atA, atB;
    bool sent = false;
    EXPECT_TRUE(waitFor(
        [&] {
          while (a->transmit(self, std::span(&own, 1)) == 1) continue;
          a->onTick(now());
          b->onTick(now());
          sent = sent || b->transmit(ba, std::span(&other, 1)) == 1;
          atA.datagrams.clear();
          (void)a->receive(atA, 4);
          (void)b->receive(atB, 4);
          return std::ranges::any_of(atA.datagrams, [&](const auto& datagram) { return datagram == fromB; });
        },
        seconds(5)));
  });
}

TEST_F(MemifPort, FourPortsFullyMeshed_EveryLinkCarries) {
  runProcess([] {
    std::vector<std::unique_ptr<PacketPort>> ports;
    for (int i = 0; i < 4; ++i) ports.push_back(openPort());
    std::vector<std::vector<LinkId>> links(4, std::vector<LinkId>(4));
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t j = 0; j < 4; ++j) links[i][j] = ports[i]->openLink(ports[j]->localAddress()).value();
    }
    std::vector<CollectingSink> sinks(4);
    std::vector<std::vector<int>> sent(4, std::vector<int>(4));
    const std::vector<std::byte> bytes(100, std::byte{3});
    EXPECT_TRUE(waitFor([&] {
      bool done = true;
      for (std::size_t i = 0; i < 4; ++i) {
        ports[i]->onTick(now());
        for (std::size_t j = 0; j < 4; ++j) {
          const OutgoingDatagram datagram{bytes, {}};
          if (sent[i][j] == 0) sent[i][j] = static_cast<int>(ports[i]->transmit(links[i][j], std::span(&datagram, 1)));
        }
        (void)ports[i]->receive(sinks[i], 32);
        done &= sinks[i].datagrams.size() == 4;
      }
      return done;
    }));
    for (auto& sink : sinks) EXPECT_TRUE(sink.down.empty());
  });
}

}  // namespace
}  // namespace gloo_bypass::dpdk
