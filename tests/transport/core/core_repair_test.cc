// The parts of repair: erasure code, symbols, the amount of repair, blocks at the sender and at the receiver; and
// attempts of a hostile peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "transport/base/sequence.h"
#include "transport/core/repair/erasure_code.h"
#include "transport/core/repair/frame_symbol.h"
#include "transport/core/repair/redundancy.h"
#include "transport/core/repair/repair_decoder.h"
#include "transport/core/repair/repair_encoder.h"
#include "transport/wire/crc32c.h"
#include "victim_session.h"

namespace gloo_bypass::test {
namespace {

// Symbols, their repairs, and a test of one pattern of losses.
struct CodedBlock {
  CodedBlock(std::size_t sources, std::size_t repairs, std::size_t length, std::uint64_t seed) : length(length) {
    for (std::size_t i = 0; i < sources; ++i) symbols.push_back(pattern(length, seed * 1000 + i));
    repaired.assign(repairs, Bytes(length));
    std::vector<std::byte*> outputs;
    for (Bytes& repair : repaired) outputs.push_back(repair.data());
    for (std::size_t i = 0; i < sources; ++i) addSourceToRepairs(i, symbols[i], outputs);
  }

  // Whether the repairs `by` recover the sources `lost`.
  ::testing::AssertionResult recovers(const std::vector<std::size_t>& lost, const std::vector<std::size_t>& by) {
    std::vector<const std::byte*> sources;
    for (const Bytes& symbol : symbols) sources.push_back(symbol.data());
    for (const std::size_t i : lost) sources[i] = nullptr;
    std::vector<RepairSymbol> repairs;
    for (const std::size_t i : by) repairs.push_back({i, repaired[i].data()});
    std::vector<Bytes> found(lost.size(), Bytes(length, std::byte{0x5a}));
    std::vector<std::byte*> outputs;
    for (Bytes& symbol : found) outputs.push_back(symbol.data());
    if (!recoverSources(length, sources, repairs, outputs)) return ::testing::AssertionFailure() << "refused";
    for (std::size_t i = 0; i < lost.size(); ++i) {
      if (found[i] != symbols[lost[i]])
        return ::testing::AssertionFailure() << "source " << lost[i] << " of " << symbols.size();
    }
    return ::testing::AssertionSuccess();
  }

  std::size_t length;
  std::vector<Bytes> symbols, repaired;
};

std::vector<std::size_t> positions(unsigned bits) {
  std::vector<std::size_t> set;
  for (std::size_t i = 0; bits >> i != 0; ++i) {
    if ((bits >> i & 1) != 0) set.push_back(i);
  }
  return set;
}

TEST(ErasureCode, SmallBlocks_EveryPatternWithinTheRepairsIsRecovered) {
  for (std::size_t sources = 1; sources <= 6; ++sources) {
    constexpr std::size_t kRepairs = 3;
    CodedBlock block(sources, kRepairs, kMinSymbolBytes + sources, sources);
    for (unsigned lost = 1; lost < 1u << sources; ++lost) {
      for (unsigned by = 1; by < 1u << kRepairs; ++by) {
        if (std::popcount(lost) != std::popcount(by)) continue;
        ASSERT_TRUE(block.recovers(positions(lost), positions(by)))
            << sources << " sources, lost " << lost << ", repairs " << by;
      }
    }
  }
}

TEST(ErasureCode, LargeBlocks_RandomPatternsAreRecovered) {
  std::mt19937_64 random(20);
  for (int run = 0; run < 60; ++run) {
    const std::size_t sources = 1 + random() % kMaxBlockSources, repairs = 1 + random() % kMaxBlockRepairs;
    CodedBlock block(sources, repairs, kMinSymbolBytes + random() % 1500, static_cast<std::uint64_t>(run));
    std::vector<std::size_t> all(sources), by(repairs);
    for (std::size_t i = 0; i < sources; ++i) all[i] = i;
    for (std::size_t i = 0; i < repairs; ++i) by[i] = i;
    std::shuffle(all.begin(), all.end(), random);
    std::shuffle(by.begin(), by.end(), random);
    const std::size_t count = 1 + random() % std::min(sources, repairs);
    all.resize(count);
    by.resize(count);
    std::sort(all.begin(), all.end());
    ASSERT_TRUE(block.recovers(all, by)) << "run " << run << ": " << count << " of " << sources;
  }
}

TEST(ErasureCode, NumbersThatDoNotFit_AreRefused) {
  CodedBlock block(4, 2, kMinSymbolBytes, 1);
  std::vector<const std::byte*> sources(4, nullptr);
  const std::vector<RepairSymbol> repairs{{0, block.repaired[0].data()}, {kMaxBlockRepairs, block.repaired[1].data()}};
  Bytes a(kMinSymbolBytes), b(kMinSymbolBytes);
  const std::vector<std::byte*> outputs{a.data(), b.data()};
  EXPECT_FALSE(recoverSources(kMinSymbolBytes, sources, repairs, outputs));  // more missing than there are repairs
  sources[0] = block.symbols[0].data();
  sources[1] = block.symbols[1].data();
  EXPECT_FALSE(recoverSources(kMinSymbolBytes, sources, repairs, outputs));  // a repair that cannot be
  const std::vector<RepairSymbol> twice{repairs[0], repairs[0]};
  EXPECT_FALSE(recoverSources(kMinSymbolBytes, sources, twice, outputs));
  EXPECT_FALSE(recoverSources(kMinSymbolBytes - 1, sources, {}, {}));
}

TEST(FrameSymbol, Frame_IsReadAsWritten) {
  const Bytes body = pattern(wire::kMessageHeaderBytes, 1), payload = pattern(1300, 2);
  const FrameSymbol frame{wire::FrameType::kData, 0x12345678u, body, payload};
  Bytes symbol(frame.bytes() + 50, std::byte{0xff});
  frame.write(symbol);
  FrameSymbol read;
  ASSERT_TRUE(readSymbol(symbol, &read));
  EXPECT_EQ(read.type, wire::FrameType::kData);
  EXPECT_EQ(read.payloadCrc, 0x12345678u);
  EXPECT_TRUE(std::ranges::equal(read.body, body));
  EXPECT_TRUE(std::ranges::equal(read.payload, payload));
  EXPECT_EQ(symbol.back(), std::byte{0});
}

TEST(FrameSymbol, LengthsBeyondTheSymbolOrUnsequencedTypes_AreRefused) {
  Bytes symbol(80);
  const FrameSymbol frame{wire::FrameType::kGrant, 0, std::span(symbol).first(8), {}};
  Bytes good(80);
  frame.write(good);
  FrameSymbol read;
  ASSERT_TRUE(readSymbol(good, &read));
  Bytes bad = good;
  bad[0] = std::byte{73};  // one more than there is
  EXPECT_FALSE(readSymbol(bad, &read));
  bad = good;
  bad[3] = std::byte{9};  // a body longer than both
  EXPECT_FALSE(readSymbol(bad, &read));
  for (const wire::FrameType type :
       {wire::FrameType::kHello, wire::FrameType::kReset, wire::FrameType::kRepair, static_cast<wire::FrameType>(24)}) {
    bad = good;
    bad[2] = static_cast<std::byte>(type);
    EXPECT_FALSE(readSymbol(bad, &read)) << static_cast<int>(type);
  }
  EXPECT_FALSE(readSymbol(std::span(good).first(7), &read));
}

// The probability that a block cannot be recovered, by its definition, summed from the other end than in the code under
// test.
double failure(std::size_t sources, std::size_t repairs, double rate) {
  const auto n = static_cast<double>(sources + repairs);
  double sum = 0;
  for (std::size_t lost = repairs + 1; lost <= sources + repairs; ++lost) {
    const auto k = static_cast<double>(lost);
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(rate) +
                    (n - k) * std::log1p(-rate));
  }
  return sum;
}

TEST(Redundancy, RepairsNeeded_AreTheFewestThatHold) {
  for (const double rate : {1e-5, 1e-4, 1e-3, 1e-2, 0.05}) {
    for (const std::size_t sources :
         {std::size_t{1}, std::size_t{8}, std::size_t{16}, std::size_t{100}, kMaxBlockSources}) {
      const std::size_t repairs = repairsNeeded(sources, rate, kMaxBlockRepairs);
      EXPECT_LE(failure(sources, repairs, rate), kBlockFailure * 1.001) << sources << " at " << rate;
      if (repairs > 1) {
        EXPECT_GT(failure(sources, repairs - 1, rate), kBlockFailure) << sources << " at " << rate;
      }
    }
  }
  EXPECT_EQ(repairsNeeded(128, 0.5, 32), 32u);  // the limit holds
  EXPECT_EQ(repairsNeeded(128, 0.01, 0), 0u);
}

TEST(LossEstimate, LossThatStops_IsForgotten) {
  LossEstimate estimate;
  EXPECT_FALSE(estimate.lossy());
  std::uint64_t sent = 0;
  for (int i = 0; i < 200; ++i) {
    estimate.onSent(sent += 1000);
    estimate.onLost(10);
  }
  EXPECT_TRUE(estimate.lossy());
  EXPECT_GT(estimate.rate(sent), 0.01);
  EXPECT_LT(estimate.rate(sent), 0.013);
  for (int i = 0; i < 40; ++i) estimate.onSent(sent += 1000);
  EXPECT_FALSE(estimate.lossy());
}

TEST(LossEstimate, WhatOnlyCameLate_IsTakenBack) {
  LossEstimate estimate;
  estimate.onSent(1000);
  estimate.onLost(3);
  estimate.onArrivedAfterAll(2);
  EXPECT_TRUE(estimate.lossy());
  estimate.onArrivedAfterAll(1);
  EXPECT_FALSE(estimate.lossy());
}

TEST(LossMargin, FailedBlock_WidensAndGoodOnesNarrow) {
  LossMargin margin;
  EXPECT_EQ(margin.factor(), 1);
  for (int i = 0; i < 10; ++i) margin.onBlockFailed();
  EXPECT_EQ(margin.factor(), 16);
  for (int i = 0; i < 512 * 20; ++i) margin.onBlockSent();
  EXPECT_EQ(margin.factor(), 1);
}

TEST(RepairBudget, BlocksOfOneFrame_GetAQuarter) {
  RepairBudget budget;
  std::size_t spent = 0;
  for (int i = 0; i < 1000; ++i) {
    budget.onSource();
    const std::size_t repairs = std::min<std::size_t>(1, budget.available());
    budget.spend(repairs);
    spent += repairs;
  }
  EXPECT_GE(spent, 250u);
  EXPECT_LE(spent, 258u);  // and what it began with
}

// An encoder and a decoder with frames of different kinds and lengths between them.
class Blocks : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kFirst = 5'000'000'000;

  Blocks() : acks_(2, milliseconds(1)), decoder_(acks_) { acks_.start(kFirst); }

  void encode(std::size_t sources, std::size_t repairs) {
    first_ = kFirst + bodies_.size();
    encoder_.start(now_, first_, sources, repairs, RepairEncoder::symbolBytes(1472));
    for (std::size_t i = 0; i < sources; ++i) {
      const bool data = i % 5 != 4;
      bodies_.push_back(pattern(data ? wire::kMessageHeaderBytes : 8, 10 + bodies_.size()));
      payloads_.push_back(pattern(data ? (i * 397) % 1356 + 1 : 0, 20 + payloads_.size()));
      encoder_.add(now_, frame(bodies_.size() - 1));
    }
    encoder_.close(repairs);
  }
  FrameSymbol frame(std::size_t i) const {
    return {payloads_[i].empty() ? wire::FrameType::kGrant : wire::FrameType::kData, static_cast<std::uint32_t>(i),
            bodies_[i], payloads_[i]};
  }
  void arrive(std::uint64_t sequence) {
    acks_.onFrame(now_, sequence, false);
    ASSERT_TRUE(decoder_.onSource(sequence, frame(sequence - kFirst)));
  }
  // Takes the decoder's recovered frames, and checks them.
  std::size_t take() {
    std::size_t count = 0;
    RepairDecoder::Recovered found;
    while (decoder_.nextRecovered(&found) == RepairDecoder::Next::kFrame) {
      const FrameSymbol expected = frame(found.sequence - kFirst);
      EXPECT_EQ(found.frame.type, expected.type);
      EXPECT_EQ(found.frame.payloadCrc, expected.payloadCrc);
      EXPECT_TRUE(std::ranges::equal(found.frame.body, expected.body)) << found.sequence;
      EXPECT_TRUE(std::ranges::equal(found.frame.payload, expected.payload)) << found.sequence;
      EXPECT_EQ(acks_.onFrame(now_, found.sequence, true), AckTracker::Arrival::kNew);
      ++count;
    }
    return count;
  }
  bool giveRepair() {
    std::span<const std::byte> payload;
    const wire::RepairHeader header = encoder_.next(&payload);
    encoder_.onSent();
    return decoder_.onRepair(first_, header, payload);
  }

  TimePoint now_{seconds(1)};
  AckTracker acks_;
  RepairEncoder encoder_;
  RepairDecoder decoder_;
  std::uint64_t first_ = 0;
  std::vector<Bytes> bodies_, payloads_;
};

TEST_F(Blocks, RandomLosses_AreFoundAgainUpToTheRepairs) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 300; ++run) {
    const std::size_t sources = 1 + random() % kMaxBlockSources, repairs = 1 + random() % 8;
    encode(sources, repairs);
    const std::size_t lost = random() % (std::min(sources, repairs + 2) + 1);
    std::vector<bool> gone(sources);
    for (std::size_t i = 0; i < lost; ++i) gone[random() % sources] = true;
    const auto missing = static_cast<std::size_t>(std::count(gone.begin(), gone.end(), true));
    std::size_t found = 0, given = 0;
    const bool late = random() % 4 == 0;  // repair frames overtake the second half
    for (std::size_t i = 0; i < (late ? sources / 2 : sources); ++i) {
      if (!gone[i]) arrive(first_ + i);
    }
    while (encoder_.state() == RepairEncoder::State::kSending) {
      ASSERT_TRUE(giveRepair());
      ++given;
      found += take();
    }
    for (std::size_t i = late ? sources / 2 : sources; i < sources; ++i) {
      if (gone[i] || acks_.hasArrived(first_ + i)) continue;
      arrive(first_ + i);
      found += take();
    }
    ASSERT_EQ(given, repairs);
    if (missing <= repairs) {
      if (!late) {
        ASSERT_EQ(found, missing) << "run " << run;
      }
      for (std::size_t i = 0; i < sources; ++i)
        ASSERT_TRUE(acks_.hasArrived(first_ + i)) << "run " << run << " source " << i;
    }
    for (std::size_t i = 0; i < sources; ++i) {  // what is still missing comes as a repetition
      if (!acks_.hasArrived(first_ + i)) acks_.onFrame(now_, first_ + i, false);
    }
  }
  EXPECT_LT(decoder_.memoryBytes(), RepairDecoder::kMaxKeptBytes + RepairDecoder::kMaxRepairBytes);
}

TEST_F(Blocks, RefusedRepairFrame_IsGivenAgain) {
  encode(4, 2);
  std::span<const std::byte> payload;
  EXPECT_EQ(encoder_.next(&payload).index, 0);
  encoder_.onSent();
  EXPECT_EQ(encoder_.next(&payload).index, 1);
  encoder_.onSent();
  EXPECT_EQ(encoder_.state(), RepairEncoder::State::kIdle);
  encoder_.undo();
  EXPECT_EQ(encoder_.next(&payload).index, 1);
}

TEST_F(Blocks, FrameThatComesLate_IsKnownAsFoundAgainOnce) {
  encode(4, 1);
  for (const std::size_t i : {0u, 1u, 3u}) arrive(first_ + i);
  ASSERT_TRUE(giveRepair());
  ASSERT_EQ(take(), 1u);
  EXPECT_FALSE(decoder_.wasRecovered(first_ + 1));
  EXPECT_TRUE(decoder_.wasRecovered(first_ + 2));
  EXPECT_FALSE(decoder_.wasRecovered(first_ + 2));
}

TEST_F(Blocks, ImpossibleRepairFrames_AreRefused) {
  encode(8, 2);
  arrive(first_);
  std::span<const std::byte> payload;
  const wire::RepairHeader good = encoder_.next(&payload);
  const auto refused = [&](auto change, std::uint64_t first, std::size_t bytes) {
    wire::RepairHeader header = good;
    change(header);
    return !decoder_.onRepair(first, header, payload.first(bytes));
  };
  const auto nothing = [](wire::RepairHeader&) {};
  EXPECT_TRUE(refused([](wire::RepairHeader& h) { h.sources = 0; }, first_, payload.size()));
  EXPECT_TRUE(refused([](wire::RepairHeader& h) { h.sources = 129; }, first_, payload.size()));
  EXPECT_TRUE(refused([](wire::RepairHeader& h) { h.index = 2; }, first_, payload.size()));
  EXPECT_TRUE(refused([](wire::RepairHeader& h) { h.repairs = 33; }, first_, payload.size()));
  EXPECT_TRUE(refused(nothing, first_, kMinSymbolBytes - 1));
  EXPECT_TRUE(refused(nothing, acks_.next() + kMaxFrameWindow, payload.size()));
  EXPECT_TRUE(decoder_.onRepair(first_, good, payload));
  EXPECT_TRUE(refused([](wire::RepairHeader& h) { h.sources = 7; }, first_, payload.size()));  // another block's length
  EXPECT_TRUE(refused(nothing, first_, payload.size() - 1));
}

TEST_F(Blocks, FrameLongerThanItsRepairFrames_IsRefused) {
  encode(3, 1);
  arrive(first_ + 1);  // a payload of 398 bytes
  const wire::RepairHeader header{truncateSequence(first_), 3, 0, 1};
  EXPECT_FALSE(decoder_.onRepair(first_, header, Bytes(kMinSymbolBytes)));
}

// Repair frames for blocks that never get their frames, and frames as long as they may be: memory stays within its
// bounds.
TEST_F(Blocks, HostilePeer_IsHeldWithinTheBounds) {
  std::mt19937_64 random(4);
  const Bytes body(wire::kMessageHeaderBytes), longPayload(64000), repair(65000);
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t sequence = acks_.next() + 1 + random() % (kMaxFrameWindow - 200);
    if (random() % 2 == 0) {
      if (acks_.onFrame(now_, sequence, false) != AckTracker::Arrival::kNew) continue;
      (void)decoder_.onSource(sequence, {wire::FrameType::kData, 0, body, longPayload});
    } else {
      const wire::RepairHeader header{0, static_cast<std::uint8_t>(1 + random() % 128),
                                      static_cast<std::uint8_t>(random() % 32), 32};
      (void)decoder_.onRepair(sequence, header, repair);
    }
    ASSERT_LT(decoder_.memoryBytes(), RepairDecoder::kMaxKeptBytes + RepairDecoder::kMaxRepairBytes + (4u << 20));
  }
  decoder_.clear();
  EXPECT_LT(decoder_.memoryBytes(), 4u << 20);
}

wire::Hello repairingPeer() {
  wire::Hello hello;
  hello.payloadChecksum = 1;
  hello.capabilities = wire::kCapabilityRepair;
  return hello;
}

class RepairVictim : public VictimSession {
 protected:
  RepairVictim() : VictimSession(SessionConfig{}, 1472, repairingPeer()) {}
  void repair(const wire::RepairHeader& repair, const Bytes& payload) {
    wire::PacketHeader header = headerOf(wire::FrameType::kRepair, 0);
    header.flags = wire::kFlagPayloadChecksum;
    header.payloadCrc = wire::crc32c(payload);
    writer_.begin(header);
    writer_.repairHeader(repair);
    deliver(payload);
  }
  void covered(wire::FrameType type, std::uint32_t ahead, std::size_t bodyBytes) {
    wire::PacketHeader header = headerOf(type, ahead);
    header.flags = wire::kFlagCovered;
    writer_.begin(header);
    for (std::size_t i = 0; i < bodyBytes / 8; ++i) writer_.number(0);
    deliver();
  }
};

TEST_F(RepairVictim, LostFrame_IsFoundAgainAndReported) {
  FrameSymbol credit;
  Bytes first(kMinSymbolBytes), second(kMinSymbolBytes), repaired(kMinSymbolBytes);
  credit.write(first);
  credit.write(second);
  std::byte* const output = repaired.data();
  addSourceToRepairs(0, first, {&output, 1});
  addSourceToRepairs(1, second, {&output, 1});
  covered(wire::FrameType::kCredit, 1, 0);
  repair({kFirst, 2, 0, 1}, repaired);
  EXPECT_EQ(session_.state(), SessionState::kEstablished) << session_.error().message;
  EXPECT_EQ(session_.counters().framesRecovered, 1u);
  SessionDatagram datagram;
  ASSERT_TRUE(session_.pollTransmit(now_, &datagram));
  wire::ParsedPacket packet;
  ASSERT_EQ(wire::parsePacket(datagram.header, &packet), wire::ParseResult::kOk);
  EXPECT_EQ(packet.header.acknowledged, kFirst + 2);
  std::uint32_t recovered = 0;
  ASSERT_TRUE(wire::decodeRecovered(packet.body, &recovered));
  EXPECT_EQ(recovered, 1u);
}

TEST_F(RepairVictim, CoveredFrameWithALongBody_EndsTheSession) {
  covered(wire::FrameType::kCredit, 0, 320);
  expectViolation();
}

TEST_F(RepairVictim, RepairFrameOfNoFrames_EndsTheSession) {
  repair({kFirst, 0, 0, 1}, Bytes(kMinSymbolBytes));
  expectViolation();
}

TEST_F(RepairVictim, RepairFrameThatGivesNoFrame_EndsTheSession) {
  repair({kFirst, 1, 0, 1}, Bytes(kMinSymbolBytes, std::byte{0xff}));
  expectViolation();
}

TEST_F(RepairVictim, MalformedRepairFrame_EndsTheSession) {
  writer_.begin(headerOf(wire::FrameType::kRepair, 0));
  writer_.size(1);
  deliver();
  expectViolation();
}

TEST_F(RepairVictim, MoreFoundAgainThanWasSent_EndsTheSession) {
  wire::PacketHeader header = headerOf(wire::FrameType::kAck, 0);
  writer_.begin(header);
  writer_.addSackRange({acknowledged_, acknowledged_});
  writer_.recovered(1000);
  deliver();
  expectViolation();
}

}  // namespace
}  // namespace gloo_bypass::test
