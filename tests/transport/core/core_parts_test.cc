// The protocol's parts, each alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/bit_ring.h"
#include "transport/base/buffer_pool.h"
#include "transport/base/copy_part.h"
#include "transport/base/flat_map.h"
#include "transport/base/ring_queue.h"
#include "transport/base/sequence.h"
#include "transport/base/slot_pool.h"
#include "transport/core/ack_tracker.h"
#include "transport/core/credit_window.h"
#include "transport/core/handshake.h"
#include "transport/core/loss_detector.h"
#include "transport/core/path_probe.h"
#include "transport/core/rto_estimator.h"
#include "transport/core/send_scoreboard.h"

namespace gloo_bypass {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{seconds(100)};

TEST(CopyPart, EveryLengthAndAlignment_NoByteMoreOrLess) {
  std::vector<std::byte> from(20000 + 63);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  for (std::size_t length : {0, 1, 63, 64, 65, 127, 128, 1452, 4096, 20000}) {
    for (std::size_t shift : {0, 1, 20, 63}) {
      SCOPED_TRACE(std::to_string(length) + " bytes from " + std::to_string(shift));
      const auto part = std::span<const std::byte>(from).subspan(shift, length);
      std::vector<std::byte> to(length + 2 + shift, std::byte{0xee}), expected = to;
      std::copy(part.begin(), part.end(), expected.begin() + 1 + static_cast<std::ptrdiff_t>(shift));
      auto other = to;
      copyPart<ColdEnd::kSource>(to.data() + 1 + shift, part);
      copyPart<ColdEnd::kDestination>(other.data() + 1 + shift, part);
      EXPECT_EQ(to, expected);
      EXPECT_EQ(other, expected);
    }
  }
  copyPart<ColdEnd::kDestination>(nullptr, {});
}

TEST(Sequence, Expand_FindsTheNearest) {
  EXPECT_EQ(expandSequence(5, 3), 5u);
  EXPECT_EQ(expandSequence(0xffffffffu, 1ull << 32), 0xffffffffull);
  EXPECT_EQ(expandSequence(2, 0xffffffffull), (1ull << 32) + 2);
  EXPECT_EQ(expandSequence(0xfffffffeu, 1), 0u);  // would be negative
}

TEST(FlatMap, RandomOperations_AgreeWithStandardMap) {
  std::mt19937_64 random(1);
  FlatMap<std::uint64_t, int> map;
  std::unordered_map<std::uint64_t, int> want;
  for (int i = 0; i < 200000; ++i) {
    // Grows to about 4,000 and shrinks again.
    const std::uint64_t key = (random() % 8000) << 48;
    if (random() % 100 < (i < 100000 ? 60u : 20u)) {
      map.at(key) = i;
      want[key] = i;
    } else {
      EXPECT_EQ(map.erase(key), want.erase(key) == 1);
    }
    const std::uint64_t probe = (random() % 8000) << 48;
    const int* found = map.find(probe);
    ASSERT_EQ(found != nullptr, want.contains(probe));
    if (found != nullptr) {
      ASSERT_EQ(*found, want[probe]);
    }
    ASSERT_EQ(map.size(), want.size());
  }
  for (std::uint64_t key = 0; key < 8000; ++key) map.erase(key << 48);
  EXPECT_TRUE(map.empty());
  EXPECT_LE(map.memoryBytes(), 16384u);
}

// mixBits' inverse: with it a peer can choose keys with any hash.
std::uint64_t unmixBits(std::uint64_t x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3ull;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089ull;
  return x ^ (x >> 30) ^ (x >> 60);
}

TEST(FlatMap, KeysChosenToMeet_DoNotWithASeed) {
  constexpr std::size_t kKeys = 20'000, kCells = 32'768;
  const auto places = [](const MixHash& hash) {
    std::set<std::uint64_t> all;
    for (std::uint64_t i = 0; i < kKeys; ++i) all.insert(hash(unmixBits(i << 32)) % kCells);
    return all.size();
  };
  ASSERT_EQ(places({}), 1U);
  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) EXPECT_GT(places({.seed = random()}), 14'000U) << "of keys at random there are 15,000";
}

TEST(BitRing, RandomOperations_AgreeWithSet) {
  std::mt19937_64 random(2);
  for (std::uint64_t base : {0ull, 63ull, 1000ull, (1ull << 32) - 5}) {
    BitRing bits(base);
    std::set<std::uint64_t> want;
    std::uint64_t low = base;
    for (int i = 0; i < 5000; ++i) {
      const std::uint64_t n = low + random() % (1 + static_cast<unsigned>(i));
      bits.set(n);
      want.insert(n);
      if (i % 10 == 0) {
        low += random() % 100;
        bits.advance(low);
        want.erase(want.begin(), want.lower_bound(low));
      }
      const std::uint64_t from = low + random() % 6000, limit = from + random() % 3000;
      ASSERT_EQ(bits.test(from), want.contains(from));
      std::uint64_t set = from, clear = from;
      while (set < limit && !want.contains(set)) ++set;
      while (clear < limit && want.contains(clear)) ++clear;
      ASSERT_EQ(bits.findNext(from, limit, true), set);
      ASSERT_EQ(bits.findNext(from, limit, false), clear);
      std::uint64_t setEnd = limit, clearEnd = limit;
      while (setEnd > from && !want.contains(setEnd - 1)) --setEnd;
      while (clearEnd > from && want.contains(clearEnd - 1)) --clearEnd;
      ASSERT_EQ(bits.findPreviousEnd(limit, from, true), setEnd);
      ASSERT_EQ(bits.findPreviousEnd(limit, from, false), clearEnd);
    }
  }
}

TEST(RingQueue, GrowsWrapped_KeepsOrder) {
  RingQueue<int> queue;
  int in = 0, out = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < round % 37; ++i) queue.pushBack(in++);
    for (int i = 0; i < round % 23 && !queue.empty(); ++i) ASSERT_EQ(queue.popFront(), out++);
  }
  while (!queue.empty()) ASSERT_EQ(queue.popFront(), out++);
  EXPECT_EQ(in, out);
}

TEST(BufferPool, GivenBack_IsTakenAgain) {
  BufferPool pool;
  PooledBuffer buffer = pool.take(100);
  EXPECT_EQ(buffer.capacity, 128u);
  const std::byte* address = buffer.data.get();
  pool.give(std::move(buffer));
  EXPECT_EQ(pool.cachedBytes(), 128u);
  EXPECT_EQ(pool.take(128).data.get(), address);
  pool.give(pool.take(1 << 20));
  EXPECT_EQ(pool.cachedBytes(), 0u);
}

TEST(RtoEstimator, SteadyRtt_ConvergesToFloorOrRtt) {
  RtoEstimator rto(milliseconds(5), seconds(2));
  for (int i = 0; i < 100; ++i) rto.addSample(kStart + milliseconds(i), microseconds(100));
  EXPECT_EQ(rto.rto(Duration(0)), milliseconds(5));
  for (int i = 0; i < 200; ++i) rto.addSample(kStart + seconds(30) + milliseconds(i * 200), milliseconds(200));
  EXPECT_GE(rto.rto(Duration(0)), milliseconds(199));
  EXPECT_LE(rto.rto(Duration(0)), milliseconds(260));
  EXPECT_EQ(rto.minimum(), milliseconds(200));  // the old minimum has aged
}

// With an acknowledgement every 100 us, the variation of a steady path vanishes within a round trip; a host that
// computes for 50 ms has lost nothing.
TEST(RtoEstimator, SteadyLongPathSampledOften_OutlastsAStall) {
  RtoEstimator rto(milliseconds(5), seconds(2));
  for (int i = 0; i < 10'000; ++i) rto.addSample(kStart + microseconds(100) * i, milliseconds(300));
  EXPECT_GE(rto.rto(Duration(0)), milliseconds(350));
  EXPECT_LE(rto.rto(Duration(0)), milliseconds(400));
}

TEST(RtoEstimator, BackOff_DoublesToTheCeiling) {
  RtoEstimator rto(milliseconds(5), milliseconds(100));
  rto.addSample(kStart, microseconds(10));
  for (const int want : {5, 10, 20, 40, 80, 100, 100}) {
    EXPECT_EQ(rto.rto(Duration(0)), milliseconds(want));
    rto.backOff();
  }
  rto.resetBackOff();
  EXPECT_EQ(rto.rto(Duration(0)), milliseconds(5));
}

TEST(RtoEstimator, ProbeTimeout_HasItsFloorFromTheSecondOn) {
  RtoEstimator rto(milliseconds(5), milliseconds(100));
  for (int i = 0; i < 100; ++i) rto.addSample(kStart + milliseconds(i), microseconds(100));
  EXPECT_LE(rto.probeTimeout(milliseconds(1)), microseconds(1201));
  for (const int want : {5, 10, 20, 40, 80, 100, 100}) {
    rto.backOff();
    EXPECT_EQ(rto.probeTimeout(milliseconds(1)), milliseconds(want));
  }
  // A cap below the path's own time must not make the probes overtake their answers.
  RtoEstimator longPath(milliseconds(5), milliseconds(100));
  longPath.addSample(kStart, milliseconds(300));
  longPath.backOff();
  EXPECT_GE(longPath.probeTimeout(milliseconds(1)), milliseconds(600));
}

std::vector<wire::SackRange> rangesOf(const AckTracker& acks) {
  wire::PacketWriter writer;
  writer.begin({});
  acks.writeRanges(&writer);
  wire::ParsedPacket packet;
  EXPECT_EQ(wire::parsePacket(writer.finish(), &packet), wire::ParseResult::kOk);
  std::vector<wire::SackRange> ranges;
  for (std::size_t i = 0; i < packet.sackCount(); ++i) ranges.push_back(packet.sackRange(i));
  return ranges;
}

TEST(AckTracker, InOrder_AcknowledgesEverySecondOrLate) {
  AckTracker acks(2, milliseconds(1));
  acks.start(1000);
  EXPECT_EQ(acks.onFrame(kStart, 1000, false), AckTracker::Arrival::kNew);
  EXPECT_FALSE(acks.ackDue(kStart));
  EXPECT_EQ(acks.ackDeadline(), kStart + milliseconds(1));
  acks.onFrame(kStart, 1001, false);
  EXPECT_TRUE(acks.ackDue(kStart));
  acks.onAckSent();
  EXPECT_FALSE(acks.ackDue(kStart + seconds(1)));
  acks.onFrame(kStart, 1002, true);
  EXPECT_TRUE(acks.ackDue(kStart));
  EXPECT_EQ(acks.next(), 1003u);
}

TEST(AckTracker, Gaps_AreReportedNewestFirst) {
  AckTracker acks(2, milliseconds(1));
  acks.start(0x1fffffff0ull);
  for (std::uint64_t n : {0, 2, 3, 30, 6, 50, 51}) acks.onFrame(kStart, 0x1fffffff0ull + n, false);
  EXPECT_EQ(acks.next(), 0x1fffffff1ull);
  EXPECT_TRUE(acks.hasGaps());
  const auto ranges = rangesOf(acks);
  ASSERT_GE(ranges.size(), 4u);
  EXPECT_EQ(ranges[0].begin, 0xfffffff0u + 50);  // wrapped
  EXPECT_EQ(ranges[0].end, 0xfffffff0u + 52);
  std::set<std::pair<std::uint32_t, std::uint32_t>> all;
  for (const wire::SackRange& range : ranges) all.insert({range.begin - 0xfffffff0u, range.end - 0xfffffff0u});
  EXPECT_EQ(all, (std::set<std::pair<std::uint32_t, std::uint32_t>>{{2, 4}, {6, 7}, {30, 31}, {50, 52}}));
  EXPECT_EQ(acks.onFrame(kStart, 0x1fffffff0ull + 30, false), AckTracker::Arrival::kDuplicate);
  EXPECT_EQ(acks.onFrame(kStart, 0x1fffffff0ull + kMaxFrameWindow + 1, false), AckTracker::Arrival::kOutsideWindow);
}

TEST(AckTracker, RandomOrder_EndsWithoutGaps) {
  std::mt19937_64 random(3);
  AckTracker acks(2, milliseconds(1));
  acks.start(7);
  std::vector<std::uint64_t> order(20000);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = 7 + i;
  std::shuffle(order.begin(), order.end(), random);
  for (std::size_t i = 0; i < order.size(); ++i) {
    ASSERT_EQ(acks.onFrame(kStart, order[i], false), AckTracker::Arrival::kNew);
    if (i % 100 == 0) {
      ASSERT_LE(rangesOf(acks).size(), wire::kMaxSackRanges);
    }
  }
  EXPECT_EQ(acks.next(), 7 + order.size());
  EXPECT_FALSE(acks.hasGaps());
}

std::uint64_t sendOne(SendScoreboard& board, TimePoint now) {
  const std::uint64_t sequence = board.open();
  board.frame(sequence).wireBytes = 100;
  board.onSent(now, sequence);
  return sequence;
}

TEST(LossDetector, ThreeOvertook_IsLostAndRepeated) {
  SendScoreboard board(50);
  LossDetector losses;
  RtoEstimator rtt(milliseconds(5), seconds(1));
  rtt.addSample(kStart, milliseconds(10));
  for (int i = 0; i < 5; ++i) sendOne(board, kStart);
  board.beginSample();
  board.acknowledge(kStart, 52);
  board.noteAckedOrder(board.frame(52).order);
  EXPECT_EQ(losses.detect(kStart, rtt, &board), 0u);
  EXPECT_EQ(losses.deadline(), kStart + microseconds(11250));  // time will tell
  board.acknowledge(kStart, 53);
  board.noteAckedOrder(board.frame(53).order);
  EXPECT_EQ(losses.detect(kStart, rtt, &board), 100u);
  std::uint64_t lost = 0;
  ASSERT_TRUE(board.nextLost(&lost));
  EXPECT_EQ(lost, 50u);
  EXPECT_EQ(board.inFlightBytes(), 200u);
  board.onSent(kStart, lost);
  EXPECT_TRUE(board.frame(lost).retransmitted);
  EXPECT_FALSE(board.nextLost(&lost));
  // The retransmission was sent last: older acknowledgements do not make it lost again.
  EXPECT_EQ(losses.detect(kStart + milliseconds(12), rtt, &board), 100u);  // 51, by time
  ASSERT_TRUE(board.nextLost(&lost));
  EXPECT_EQ(lost, 51u);
}

TEST(LossDetector, LaterDatagramArrived_WhatWasSentBeforeIsLostInTime) {
  SendScoreboard board(50);
  LossDetector losses;
  RtoEstimator rtt(milliseconds(5), seconds(1));
  rtt.addSample(kStart, milliseconds(10));
  for (int i = 0; i < 3; ++i) sendOne(board, kStart);
  sendOne(board, kStart + milliseconds(1));
  EXPECT_EQ(losses.detect(kStart + seconds(1), rtt, &board), 0u);  // nothing arrived, so nothing counts as lost
  EXPECT_TRUE(losses.onArrivalOf(kStart + milliseconds(1)));
  EXPECT_FALSE(losses.onArrivalOf(kStart));  // an older answer shows nothing new
  EXPECT_EQ(losses.detect(kStart + milliseconds(11), rtt, &board), 0u);
  EXPECT_EQ(losses.deadline(), kStart + microseconds(11250));
  EXPECT_EQ(losses.detect(losses.deadline(), rtt, &board), 300u);  // the last may have been sent after what arrived
  EXPECT_EQ(board.inFlightBytes(), 100u);
}

TEST(LossDetector, SpuriousLoss_WidensThreshold) {
  LossDetector losses;
  RtoEstimator rtt(milliseconds(5), seconds(1));
  rtt.addSample(kStart, milliseconds(10));
  losses.onSpuriousLoss(kStart, rtt);
  losses.onSpuriousLoss(kStart, rtt);  // the same round trip
  EXPECT_EQ(losses.orderThreshold(), 6u);
}

// A route that reordered once does not make losses slow for the rest of the session.
TEST(LossDetector, LossesThatAreNotSpurious_NarrowThresholdAgain) {
  LossDetector losses;
  RtoEstimator rtt(milliseconds(5), seconds(1));
  rtt.addSample(kStart, milliseconds(10));
  TimePoint now = kStart + seconds(1);
  for (int i = 0; i < 5; ++i) losses.onSpuriousLoss(now += seconds(1), rtt);
  EXPECT_EQ(losses.orderThreshold(), 96u);
  SendScoreboard board(1);
  const auto loseOne = [&] {
    for (int i = 0; i < 200; ++i) sendOne(board, now);
    std::uint64_t first = 0;
    ASSERT_TRUE(board.oldestInFlight(&first));
    for (std::uint64_t sequence = first + 1; sequence < first + 200; ++sequence) {
      board.noteAckedOrder(board.frame(sequence).order);
      board.acknowledge(now, sequence);
    }
    now += seconds(1);
    ASSERT_GT(losses.detect(now, rtt, &board), 0u);
    board.acknowledge(now, first);
    board.slide();
  };
  for (int i = 0; i < 16; ++i) loseOne();
  EXPECT_EQ(losses.orderThreshold(), 48u);
  losses.onSpuriousLoss(now += seconds(1), rtt);
  EXPECT_EQ(losses.orderThreshold(), 96u);
  for (int i = 0; i < 100; ++i) loseOne();
  EXPECT_EQ(losses.orderThreshold(), 3u);
}

TEST(SendScoreboard, WindowOfTenThousand_SlidesAndCounts) {
  SendScoreboard board(1);
  std::mt19937_64 random(4);
  for (int i = 0; i < 20000; ++i) sendOne(board, kStart);
  std::vector<std::uint64_t> order(20000);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = 1 + i;
  std::shuffle(order.begin(), order.end(), random);
  for (const std::uint64_t sequence : order) {
    ASSERT_TRUE(board.acknowledge(kStart, sequence));
    ASSERT_FALSE(board.acknowledge(kStart, sequence));
    board.slide();
  }
  EXPECT_TRUE(board.empty());
  EXPECT_EQ(board.inFlightBytes(), 0u);
}

TEST(SendScoreboard, Undone_IsNotInFlight) {
  SendScoreboard board(1);
  const std::uint64_t sequence = sendOne(board, kStart);
  board.undo(sequence);
  EXPECT_EQ(board.inFlightBytes(), 0u);
  EXPECT_FALSE(board.anyInFlight());
  EXPECT_FALSE(board.acknowledge(kStart, sequence));  // never sent
  board.onSent(kStart, sequence);
  EXPECT_FALSE(board.frame(sequence).retransmitted);
}

// As a full ring does while its peer stands still.
TEST(SendScoreboard, RefusedAgainAndAgain_RemembersNoAttempt) {
  SendScoreboard board(1);
  const std::uint64_t sequence = sendOne(board, kStart);
  for (int i = 0; i < 1'000'000; ++i) {
    board.undo(sequence);
    board.onSent(kStart, sequence);
  }
  EXPECT_FALSE(board.full());
}

TEST(SendScoreboard, SteadySending_MeasuresTheRate) {
  SendScoreboard board(1);
  AckSample sample;
  // 100 bytes a millisecond, acknowledged 10 ms later.
  for (int i = 0; i < 100; ++i) {
    const TimePoint now = kStart + milliseconds(i);
    if (i >= 10) {
      board.beginSample();
      board.acknowledge(now, static_cast<std::uint64_t>(i - 9));
      board.slide();
      sample = {};
      board.finishSample(now, milliseconds(10), &sample);
    }
    sendOne(board, now);
  }
  EXPECT_NEAR(sample.deliveryRateBytesPerSecond, 1e5, 1e4);
}

TEST(CreditWindow, MoreThanLimit_IsRefused) {
  CreditWindow credit(1000, 4000);
  EXPECT_TRUE(credit.onReceived(1000));
  EXPECT_FALSE(credit.onReceived(1));
  credit.onConsumed(100);
  EXPECT_FALSE(credit.updateDue());
  EXPECT_TRUE(credit.onReceived(100));
  EXPECT_FALSE(credit.onReceived(1));
  credit.onConsumed(200);
  EXPECT_TRUE(credit.updateDue());
  credit.onTold();
  EXPECT_FALSE(credit.updateDue());
}

TEST(CreditWindow, ConsumedQuickly_GrowsToTheCap) {
  CreditWindow credit(1000, 4000);
  TimePoint now = kStart;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(credit.onReceived(500));
    credit.onConsumed(500);
    credit.autotune(now, milliseconds(10));
    now += milliseconds(5);
  }
  EXPECT_EQ(credit.windowBytes(), 4000u);
  CreditWindow slow(1000, 4000);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(slow.onReceived(100));
    slow.onConsumed(100);
    slow.autotune(now, milliseconds(10));
    now += milliseconds(10);
  }
  EXPECT_EQ(slow.windowBytes(), 1000u);
}

// Before each probe that verifies the size in use: its companion, which comes through.
void sendCompanion(PathProbe& probe, TimePoint now) {
  if (!probe.verifying()) return;
  EXPECT_EQ(probe.candidate(), PathProbe::kSmallest);
  probe.onSent(now, milliseconds(20));
  probe.onReply(now, PathProbe::kSmallest);
}

// Simulates a path of `carries` bytes until `end`; returns the probed sizes.
std::vector<std::size_t> probePath(PathProbe& probe, std::size_t carries, TimePoint end) {
  std::vector<std::size_t> tried;
  while (probe.deadline() < end) {
    const TimePoint now = probe.deadline();
    probe.onTimeout(now);
    if (probe.candidate() == 0 || !probe.due(now)) continue;
    sendCompanion(probe, now);
    tried.push_back(probe.candidate());
    probe.onSent(now, milliseconds(20));
    if (tried.back() <= carries) probe.onReply(now, tried.back());
  }
  return tried;
}

TEST(PathProbe, NoReply_TriesSmallerSizesThenRests) {
  PathProbe probe;
  probe.start(kStart, 1472, 16000);
  EXPECT_EQ(probePath(probe, 4068, kStart + seconds(1)),
            (std::vector<std::size_t>{16000, 16000, 16000, 16000, 8972, 8972, 8972, 8972, 4068}));
  EXPECT_EQ(probe.confirmed(), 4068u);
  probe.onReply(kStart, 60000);  // no probe was sent
  EXPECT_EQ(probe.confirmed(), 4068u);
}

TEST(PathProbe, WantedSizeDoesNotPass_IsTriedEverMoreRarely) {
  PathProbe probe;
  probe.start(kStart, 1472, 1500);
  std::vector<std::size_t> searches;
  TimePoint now = kStart;
  for (const int secondsEach : {1, 6, 11, 21, 601, 601, 601}) {
    now += seconds(secondsEach);
    searches.push_back(probePath(probe, 1472, now).size() / 4);
  }
  EXPECT_EQ(searches, (std::vector<std::size_t>{1, 1, 1, 1, 4, 1, 1}));  // after 5, 10, 20, 40... s, at last 600
  EXPECT_EQ(probePath(probe, 1500, now + seconds(601)).back(), 1500u);
  EXPECT_EQ(probe.confirmed(), 1500u);
  EXPECT_EQ(probe.deadline(), kNever);
}

TEST(PathProbe, SuspectedSizeDoesNotPass_SearchBeginsAtTheSmallest) {
  PathProbe probe;
  probe.start(kStart, 8972, 8972);
  EXPECT_EQ(probe.deadline(), kNever);
  probe.suspect(kStart, 5000);
  EXPECT_EQ(probePath(probe, 1452, kStart + seconds(1)),
            (std::vector<std::size_t>{8972, 8972, 8972, 8972, 4068, 4068, 4068, 4068, 2048, 2048, 2048, 2048, 1472,
                                      1472, 1472, 1472, 1452}));
  EXPECT_EQ(probe.confirmed(), 1452u);
}

TEST(PathProbe, SuspicionsThatProveNothing_LeaveTheSize) {
  PathProbe probe;
  probe.start(kStart, 8972, 8972);
  probe.suspect(kStart, PathProbe::kSmallest);  // losses below it show nothing
  probe.suspect(kStart, 9000);                  // went in pieces
  EXPECT_FALSE(probe.verifying());
  probe.suspect(kStart, 5000);
  EXPECT_TRUE(probe.verifying());
  probe.onArrival(kStart + seconds(1), kStart + milliseconds(1), 4999);
  probe.onArrival(kStart + seconds(1), kStart, 8000);                    // sent before
  probe.onArrival(kStart + seconds(1), kStart + milliseconds(1), 9000);  // went in pieces
  EXPECT_TRUE(probe.verifying());
  probe.onArrival(kStart + seconds(1), kStart + milliseconds(1), 5000);
  EXPECT_FALSE(probe.verifying());
  probe.suspect(kStart, 5000);
  EXPECT_EQ(probePath(probe, 8972, kStart + seconds(1)), std::vector<std::size_t>{8972});
  EXPECT_EQ(probe.confirmed(), 8972u);
}

// First 1,200 bytes, which nearly every path carries; if those are lost as well, the size that every path carries.
TEST(PathProbe, VerifiedSizeDoesNotPass_FallsInTwoSteps) {
  PathProbe probe;
  probe.start(kStart, 1472, 1472);
  TimePoint now = kStart;
  const auto loseProbesOf = [&](std::size_t size) {
    while (probe.candidate() == size || (probe.verifying() && probe.confirmed() == size)) {
      EXPECT_TRUE(probe.due(now));
      sendCompanion(probe, now);
      probe.onSent(now, milliseconds(20));
      now += milliseconds(20);
      if (probe.onTimeout(now)) return true;
    }
    return false;
  };
  probe.suspect(now, 700);  // whatever was lost twice
  EXPECT_TRUE(loseProbesOf(1472));
  EXPECT_EQ(probe.confirmed(), 1200u);
  EXPECT_EQ(probe.candidate(), 1452u);
  probe.suspect(now, 1200);  // a frame of this size, or one in pieces
  EXPECT_TRUE(loseProbesOf(1200));
  EXPECT_EQ(probe.confirmed(), 548u);
  for (const std::size_t size : {1172u, 972u}) {
    EXPECT_EQ(probe.candidate(), size);
    EXPECT_FALSE(loseProbesOf(size));
  }
  EXPECT_EQ(probe.candidate(), 772u);
  probe.onSent(now, milliseconds(20));
  probe.onReply(now, 772);
  EXPECT_EQ(probe.confirmed(), 772u);
  probe.suspect(now, 548);
  EXPECT_FALSE(probe.verifying()) << "every path carries so much";
}

TEST(PathProbe, SearchIsInterruptedByADoubt_GoesOnWhereItWas) {
  PathProbe probe;
  probe.start(kStart, 1472, 8972);
  probe.onSent(kStart, milliseconds(20));
  EXPECT_EQ(probe.candidate(), 8972u);
  probe.suspect(kStart, 1400);
  EXPECT_TRUE(probe.verifying());
  sendCompanion(probe, kStart);
  probe.onSent(kStart, milliseconds(20));
  probe.onReply(kStart, 1472);
  EXPECT_EQ(probe.candidate(), 8972u);
  probe.onReply(kStart, 8972);  // to the probe before the doubt
  EXPECT_EQ(probe.confirmed(), 8972u);
}

TEST(Handshake, LinkKindsDiffer_BothAreNamed) {
  wire::Hello a, b;
  a.maxDatagramBytes = b.maxDatagramBytes = 1472;
  EXPECT_FALSE(compareSettings(a, b).has_value());
  b.lossless = 1;
  const auto error = compareSettings(a, b);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kConfiguration);
  EXPECT_NE(error->message.find("a network here and lossless (memory) on the peer"), std::string::npos);
}

}  // namespace
}  // namespace gloo_bypass
