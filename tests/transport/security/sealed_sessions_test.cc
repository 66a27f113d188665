// Sessions over sealed datagrams in virtual time: key changes, losses and an attacker together.
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "tests/transport/core/session_pair.h"
#include "tests/transport/security/octets.h"
#include "transport/security/packet_protection.h"

namespace gloo_bypass::security::test {
namespace {

using gloo_bypass::test::Bytes;
using gloo_bypass::test::SessionPair;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = PacketProtection::Verdict;

SessionConfig sealedLink() {
  SessionConfig config;
  config.sealedLink = true;
  return config;
}

class SealedSessions {
 public:
  explicit SealedSessions(unsigned seed)
      : pair(seed, sealedLink(),
             {.delay = milliseconds(2),
              .jitter = milliseconds(1),
              .loss = 0.01,
              .maxDatagramBytes = 1456,
              .firstDatagramBytes = 1456}),
        random_(seed) {
    pair.onLeave = [this](bool fromA, Bytes& datagram) { return travels(fromA, datagram); };
    pair.connectBoth();
  }

  // `count` messages each way arrive as they were sent.
  bool exchange(std::size_t count, std::size_t length) {
    std::vector<std::vector<Bytes>> out(2), in(2);
    for (std::size_t i = 0; i < 2 * count; ++i) {
      out[i % 2].push_back(gloo_bypass::test::pattern(length, ++messages_));
      in[i % 2].emplace_back(length);
    }
    const std::size_t before = pair.a.receivesCompleted + pair.b.receivesCompleted;
    for (std::size_t i = 0; i < 2 * count; ++i) {
      auto& from = i % 2 == 0 ? pair.a : pair.b;
      auto& to = i % 2 == 0 ? pair.b : pair.a;
      EXPECT_TRUE(
          to.session
              ->postReceive({.token = ++token_, .key = {.tag = 1}, .data = in[i % 2][i / 2].data(), .capacity = length})
              .ok());
      EXPECT_TRUE(
          from.session
              ->postSend({.token = token_, .key = {.tag = 1}, .data = out[i % 2][i / 2].data(), .length = length})
              .ok());
    }
    const auto done = [&] { return pair.a.receivesCompleted + pair.b.receivesCompleted == before + 2 * count; };
    return pair.runUntil(done, seconds(600)) && in == out;
  }
  // Repeats all that was overheard; how many open.
  int repeatAll() {
    int opened = 0;
    Bytes plain(wire::kMaxDatagramBytes);
    for (const auto& [fromA, sealed] : overheard_) {
      opened += (fromA ? b : a).open(sealed, plain.data()) == Verdict::kOpened ? 1 : 0;
    }
    return opened;
  }

  SessionPair pair;
  PacketProtection a = end(1, 2), b = end(2, 1);
  int flipped = 0, repeated = 0;
  bool listens = true;  // and keeps all that leaves

 private:
  static PacketProtection end(unsigned send, unsigned receive) {
    return {secretOf(pattern(32, send)),
            secretOf(pattern(32, receive)),
            send < receive ? KeyChanges::kBegins : KeyChanges::kFollows,
            makeAead,
            {.packetsPerKey = 64, .mostPacketsPerKey = 10'000}};
  }

  // The way of a datagram, with the attacker on it. What the wire delays or loses afterwards is plain, and the seal's
  // order is that of leaving.
  bool travels(bool fromA, Bytes& datagram) {
    PacketProtection& from = fromA ? a : b;
    PacketProtection& to = fromA ? b : a;
    Bytes sealed(datagram.size() + PacketProtection::kOverheadBytes), plain(wire::kMaxDatagramBytes);
    EXPECT_EQ(from.seal(std::span(datagram).first(wire::kShortHeaderBytes),
                        std::span(datagram).subspan(wire::kShortHeaderBytes), sealed.data()),
              sealed.size());
    if (listens) overheard_.emplace_back(fromA, sealed);
    if (random_() % 20 == 0) {
      Bytes changed = sealed;
      changed[random_() % changed.size()] ^= static_cast<std::byte>(1u << random_() % 8);
      EXPECT_NE(to.open(changed, plain.data()), Verdict::kOpened);
      ++flipped;
      if (random_() % 2 == 0) return false;  // and the right one never comes
    }
    if (to.open(sealed, plain.data()) != Verdict::kOpened) {
      ADD_FAILURE() << "a datagram of the peer did not open";
      return false;
    }
    const auto& [oldFromA, old] = overheard_[random_() % overheard_.size()];
    if (random_() % 10 == 0 && oldFromA == fromA && old != sealed) {
      Bytes again(wire::kMaxDatagramBytes);
      repeated += to.open(old, again.data()) == Verdict::kOpened ? 0 : 1;  // one that was held back opens once
    }
    plain.resize(datagram.size());
    datagram = plain;
    return true;
  }

  std::mt19937 random_;
  std::vector<std::pair<bool, Bytes>> overheard_;
  OperationToken token_ = 0;
  std::uint64_t messages_ = 0;
};

TEST(SealedSessions, KeyChangesLossAndAnAttacker_BitExact) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    SealedSessions sessions(seed);
    ASSERT_TRUE(sessions.exchange(20, 60'000));
    EXPECT_GT(sessions.a.sendPhase(), 10u);
    EXPECT_GT(sessions.flipped, 50);
    EXPECT_GT(sessions.repeated, 50);
    EXPECT_EQ(sessions.pair.a.session->counters().corruptedReceived, 0u);
    EXPECT_EQ(sessions.pair.b.session->counters().invalidReceived, 0u);
  }
}

// Timestamps of the protocol wrap around after 275 s: what is 137 s old looks new to a plain session.
TEST(SealedSessions, AllRepeatedAfter137Seconds_NothingOpens) {
  SealedSessions sessions(4);
  ASSERT_TRUE(sessions.exchange(20, 60'000));
  (void)sessions.repeatAll();  // what the attacker held back may open now
  sessions.listens = false;
  sessions.pair.runFor(seconds(137));
  EXPECT_EQ(sessions.repeatAll(), 0);
  EXPECT_TRUE(sessions.exchange(5, 60'000));
}

}  // namespace
}  // namespace gloo_bypass::security::test
