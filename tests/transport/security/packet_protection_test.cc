#include "transport/security/packet_protection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "tests/transport/security/octets.h"
#include "transport/base/byte_order.h"

namespace gloo_bypass::security::test {
namespace {

using Verdict = PacketProtection::Verdict;

constexpr std::uint64_t kReceiver = 0x1122334455667788;

// A plain datagram: what the session's writer makes, and a payload.
struct Plain {
  Octets header, payload;
  Octets whole() const {
    Octets out = header;
    out.insert(out.end(), payload.begin(), payload.end());
    return out;
  }
};

Plain plainDatagram(std::uint32_t sequence, std::size_t payloadBytes = 100) {
  wire::PacketHeader header;
  header.type = wire::FrameType::kChunk;
  header.receiverId = kReceiver;
  header.sequence = sequence;
  wire::PacketWriter writer;
  writer.begin(header);
  writer.chunkHeader({7, 1000});
  const auto written = writer.finish();
  return {copyOf(written), pattern(payloadBytes, sequence)};
}

Octets sealedBy(PacketProtection& end, const Plain& plain) {
  Octets out(plain.header.size() + plain.payload.size() + PacketProtection::kOverheadBytes);
  out.resize(end.seal(plain.header, plain.payload, out.data()));
  return out;
}

Verdict openedBy(PacketProtection& end, const Octets& datagram, Octets* plain = nullptr) {
  Octets out(std::max<std::size_t>(datagram.size(), 1));
  const Verdict verdict = end.open(datagram, out.data());
  if (verdict == Verdict::kOpened) out.resize(datagram.size() - PacketProtection::kOverheadBytes);
  if (plain != nullptr) *plain = out;
  return verdict;
}

class ProtectedPair : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kPacketsPerKey = 10;
  static PacketProtection end(unsigned send, unsigned receive, const ProtectionLimits& limits) {
    return {secretOf(pattern(32, send)), secretOf(pattern(32, receive)),
            send < receive ? KeyChanges::kBegins : KeyChanges::kFollows, makeAead, limits};
  }

  ProtectionLimits limits_{.packetsPerKey = kPacketsPerKey, .mostPacketsPerKey = 80, .mostForgeries = 100};
  PacketProtection a_ = end(1, 2, limits_), b_ = end(2, 1, limits_);
};

TEST_F(ProtectedPair, Datagram_OpensToTheSameBytesButForTheChecksum) {
  const Plain plain = plainDatagram(42);
  const Octets sealed = sealedBy(a_, plain);
  EXPECT_EQ(sealed.size(), plain.whole().size() + 16);
  Octets opened;
  ASSERT_EQ(openedBy(b_, sealed, &opened), Verdict::kOpened);
  Octets expected = plain.whole();
  std::fill_n(expected.begin() + 4, 4, std::byte{0});
  EXPECT_EQ(opened, expected);
  EXPECT_EQ(wire::peekReceiverId(sealed), kReceiver);  // ports and error messages of the network find the session
}

TEST_F(ProtectedPair, Sealed_ShowsNothingButTypeReceiverAndNumber) {
  const Octets one = sealedBy(a_, plainDatagram(42)), other = sealedBy(a_, plainDatagram(42));
  const auto header = wire::parseSealedHeader(other);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->type, wire::FrameType::kChunk);
  EXPECT_EQ(header->number, 1u);
  EXPECT_EQ(header->receiverId, kReceiver);
  int equal = 0;  // the same datagram again has other bytes
  for (std::size_t i = wire::kSealedHeaderBytes; i < one.size(); ++i) equal += one[i] == other[i] ? 1 : 0;
  EXPECT_LT(equal, 10);
}

TEST_F(ProtectedPair, AnyBitFlipped_IsRefused) {
  const Octets sealed = sealedBy(a_, plainDatagram(1, 30));
  ProtectionLimits patient = limits_;
  patient.mostForgeries = 1u << 20;
  PacketProtection b = end(2, 1, patient);
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    Octets flipped = sealed;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_NE(openedBy(b, flipped), Verdict::kOpened) << bit;
  }
  EXPECT_EQ(openedBy(b, sealed), Verdict::kOpened);
}

TEST_F(ProtectedPair, Replay_IsRefused_AtOnceAndLater) {
  const Octets first = sealedBy(a_, plainDatagram(1));
  EXPECT_EQ(openedBy(b_, first), Verdict::kOpened);
  EXPECT_EQ(openedBy(b_, first), Verdict::kReplayed);
  for (std::uint32_t i = 0; i < 40'000; ++i) {
    ASSERT_EQ(openedBy(b_, sealedBy(a_, plainDatagram(i))), Verdict::kOpened) << i;
    ASSERT_EQ(openedBy(a_, sealedBy(b_, plainDatagram(i))), Verdict::kOpened) << i;
    if (i % 1000 != 0) continue;
    ASSERT_NE(openedBy(b_, first), Verdict::kOpened) << i;
  }
}

TEST_F(ProtectedPair, ReflectedToItsSender_IsRefused) {
  EXPECT_EQ(openedBy(a_, sealedBy(a_, plainDatagram(1))), Verdict::kForged);
}

TEST_F(ProtectedPair, PlainDatagram_IsNotOpened) {
  EXPECT_EQ(openedBy(b_, plainDatagram(1).whole()), Verdict::kNotSealed);
  EXPECT_EQ(openedBy(b_, {}), Verdict::kNotSealed);
  const Octets sealed = sealedBy(a_, plainDatagram(1, 0));
  for (std::size_t length = 0; length < sealed.size(); ++length) {
    EXPECT_NE(openedBy(b_, Octets(sealed.begin(), sealed.begin() + static_cast<std::ptrdiff_t>(length))),
              Verdict::kOpened);
  }
}

TEST_F(ProtectedPair, ManyDatagramsBothWays_ChangeKeysWithoutAPause) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    Octets opened;
    ASSERT_EQ(openedBy(b_, sealedBy(a_, plainDatagram(i)), &opened), Verdict::kOpened) << i;
    EXPECT_EQ(Octets(opened.begin() + 60, opened.end()), plainDatagram(i).payload);
    if (i % 3 != 0) continue;
    ASSERT_EQ(openedBy(a_, sealedBy(b_, plainDatagram(i))), Verdict::kOpened) << i;
  }
  EXPECT_GT(a_.sendPhase(), 50u);
  EXPECT_LE(a_.sendPhase() - b_.sendPhase(), 1u);
}

TEST_F(ProtectedPair, PeerNeverHeard_NoKeyChangesAndTheLimitEndsIt) {
  for (std::uint64_t i = 0; i < limits_.mostPacketsPerKey; ++i)
    ASSERT_FALSE(sealedBy(a_, plainDatagram(1)).empty()) << i;
  EXPECT_EQ(a_.sendPhase(), 0u);
  EXPECT_FALSE(a_.spent());
  EXPECT_TRUE(sealedBy(a_, plainDatagram(1)).empty());
  EXPECT_TRUE(a_.spent());
}

// A port that stays full takes nothing, however often a datagram is sealed for it.
TEST_F(ProtectedPair, SealedAndNotSent_DoesNotUseTheKeyUp) {
  for (std::uint64_t i = 0; i < 20 * limits_.mostPacketsPerKey; ++i) {
    ASSERT_FALSE(sealedBy(a_, plainDatagram(1)).empty()) << i;
    a_.undo();
  }
  EXPECT_FALSE(a_.spent());
  EXPECT_EQ(openedBy(b_, sealedBy(a_, plainDatagram(1))), Verdict::kOpened);
}

// Neither end gets two phases ahead of what the other has opened, however much it sends and hears meanwhile.
TEST_F(ProtectedPair, OneWayIsCutForWholePhases_TheOtherEndStillHasTheKey) {
  for (PacketProtection* const cut : {&a_, &b_}) {
    PacketProtection& other = cut == &a_ ? b_ : a_;
    for (std::uint32_t i = 0; i < 3 * kPacketsPerKey; ++i) {
      ASSERT_FALSE(sealedBy(*cut, plainDatagram(i)).empty());  // and it never arrives
      ASSERT_EQ(openedBy(*cut, sealedBy(other, plainDatagram(i))), Verdict::kOpened) << i;
    }
    ASSERT_EQ(openedBy(other, sealedBy(*cut, plainDatagram(1))), Verdict::kOpened);
    ASSERT_EQ(openedBy(*cut, sealedBy(other, plainDatagram(1))), Verdict::kOpened);
  }
}

// Datagrams of the phase before that others overtook still open, and those of two phases before do not.
TEST_F(ProtectedPair, ReorderedAcrossAKeyChange_Opens) {
  std::deque<Octets> late;
  const auto exchange = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(openedBy(b_, sealedBy(a_, plainDatagram(1))), Verdict::kOpened);
      ASSERT_EQ(openedBy(a_, sealedBy(b_, plainDatagram(1))), Verdict::kOpened);
    }
  };
  late.push_back(sealedBy(a_, plainDatagram(1)));
  late.push_back(sealedBy(a_, plainDatagram(2)));
  exchange(10);
  EXPECT_EQ(b_.receivePhase(), 1u);
  EXPECT_EQ(openedBy(b_, late[0]), Verdict::kOpened);
  exchange(10);
  EXPECT_EQ(b_.receivePhase(), 2u);
  EXPECT_EQ(openedBy(b_, late[1]), Verdict::kForged);  // lost, and retransmitted under another number
  exchange(10);
}

TEST_F(ProtectedPair, RandomLossReorderingAndReplays_OpenEachDatagramOnce) {
  constexpr unsigned kSeed = 9001;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::vector<std::pair<bool, Octets>> underWay;  // whether to b
  std::vector<std::vector<int>> opened(2, std::vector<int>(20'000, 0));
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const bool toB = random() % 4 != 0;
    underWay.emplace_back(toB, sealedBy(toB ? a_ : b_, plainDatagram(i)));
    ASSERT_FALSE(underWay.back().second.empty()) << i;
    while (underWay.size() > 4) {
      const std::size_t which = random() % underWay.size();
      const auto [forB, datagram] = underWay[which];
      if (random() % 3 != 0)
        underWay.erase(underWay.begin() + static_cast<std::ptrdiff_t>(which));  // else replayed later
      if (random() % 10 == 0) continue;                                         // lost
      Octets plain;
      if (openedBy(forB ? b_ : a_, datagram, &plain) != Verdict::kOpened) continue;
      const auto sequence = loadLittle<std::uint32_t>(plain.data() + 24);
      ASSERT_EQ(++opened[forB ? 1 : 0][sequence], 1) << sequence;
      ASSERT_EQ(Octets(plain.begin() + 60, plain.end()), plainDatagram(sequence).payload);
    }
  }
  EXPECT_GT(std::count(opened[1].begin(), opened[1].end(), 1), 10'000);
  EXPECT_GT(b_.receivePhase(), 100u);
  EXPECT_FALSE(a_.spent() || b_.spent());
}

TEST_F(ProtectedPair, ForgedPhase_ChangesNothing) {
  for (std::uint32_t i = 0; i < 30; ++i) {
    Octets forged = sealedBy(a_, plainDatagram(i));
    const Octets sound = forged;
    forged[3] ^= std::byte{0x80};
    EXPECT_EQ(openedBy(b_, forged), Verdict::kForged);
    EXPECT_EQ(openedBy(b_, sound), Verdict::kOpened);
    EXPECT_EQ(openedBy(a_, sealedBy(b_, plainDatagram(i))), Verdict::kOpened);
  }
  EXPECT_GE(b_.receivePhase(), 2u);
}

TEST_F(ProtectedPair, ForgeriesUpToTheLimit_EndIt) {
  Octets forged = sealedBy(a_, plainDatagram(1));
  forged.back() ^= std::byte{1};
  for (std::uint64_t i = 0; i + 1 < limits_.mostForgeries; ++i) EXPECT_EQ(openedBy(b_, forged), Verdict::kForged);
  EXPECT_FALSE(b_.spent());
  EXPECT_EQ(openedBy(b_, sealedBy(a_, plainDatagram(2))), Verdict::kOpened);
  EXPECT_EQ(openedBy(b_, forged), Verdict::kForged);
  EXPECT_TRUE(b_.spent());
  EXPECT_NE(openedBy(b_, sealedBy(a_, plainDatagram(3))), Verdict::kOpened);
  EXPECT_TRUE(sealedBy(b_, plainDatagram(4)).empty());
}

// Ends with different libraries understand each other.
TEST_F(ProtectedPair, OtherLibraryAtThePeer_Opens) {
  PacketProtection a(secretOf(pattern(32, 1)), secretOf(pattern(32, 2)), KeyChanges::kBegins, makeOpenSslAead, limits_);
  for (std::uint32_t i = 0; i < 50; ++i) {
    ASSERT_EQ(openedBy(b_, sealedBy(a, plainDatagram(i))), Verdict::kOpened);
    ASSERT_EQ(openedBy(a, sealedBy(b_, plainDatagram(i))), Verdict::kOpened);
  }
  EXPECT_GT(a.sendPhase(), 0u);
}

}  // namespace
}  // namespace gloo_bypass::security::test
