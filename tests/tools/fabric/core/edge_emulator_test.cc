// One edge in virtual time: rate, delay, loss and the rest against the requested values. Every seed is fixed.
#include "tools/fabric/core/edge_emulator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace gloo_bypass::fabric {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr TimePoint kStart = TimePoint{} + std::chrono::hours(1);
constexpr std::size_t kFrameBytes = 1514;
constexpr std::uint64_t kMegabit = 1'000'000;
constexpr int kSeeds = 50;
// Deviations allowed from a binomial's mean. Seeds are fixed; the bound suits any seed: chance exceeds 6 once in 5e8.
constexpr double kSigmas = 6;

void expectShare(double probability, std::uint64_t hits, std::uint64_t trials, const std::string& what) {
  const double mean = probability * static_cast<double>(trials);
  const double sigma = std::sqrt(mean * (1 - probability));
  EXPECT_NEAR(static_cast<double>(hits), mean, kSigmas * sigma) << what << ": " << hits << " of " << trials;
}

// Frames at equal distances.
std::vector<Verdict> offerAll(EdgeEmulator& edge, int frames, Duration apart, std::size_t bytes = kFrameBytes) {
  std::vector<Verdict> verdicts;
  for (int i = 0; i < frames; ++i) verdicts.push_back(edge.offer(kStart + apart * i, bytes));
  return verdicts;
}

double secondsOf(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// --- rate, queue, delay ---

class EdgeRate : public testing::TestWithParam<std::uint64_t> {};

TEST_P(EdgeRate, Saturated_TakesWhatBitsNeedToTheNanosecond) {
  const std::uint64_t rate = GetParam();
  EdgeModel model;
  model.rateBitsPerSecond = rate;
  EdgeEmulator edge(model, 1);
  constexpr int kFrames = 100'000;
  TimePoint last{};
  for (int i = 0; i < kFrames; ++i) last = edge.offer(kStart, kFrameBytes).departure;
  const long double exact = 8.0L * kFrameBytes * kFrames * 1e9L / static_cast<long double>(rate);
  EXPECT_NEAR(static_cast<double>((last - kStart).count()), static_cast<double>(exact),
              1.0 + static_cast<double>(exact) * 1e-15);
}

INSTANTIATE_TEST_SUITE_P(Rates, EdgeRate,
                         testing::Values(1'000, 50 * kMegabit, 333'333'333, 1'000 * kMegabit, 10'000 * kMegabit,
                                         97'000'000'007, 400'000 * kMegabit, EdgeEmulator::kMaxRateBitsPerSecond),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(EdgeEmulator, OfferedMoreThanItsRate_DeliversItsRate) {
  EdgeModel model;
  model.rateBitsPerSecond = 50 * kMegabit;
  model.queueBytes = 100'000;
  model.delay = milliseconds(5);
  EdgeEmulator edge(model, 3);
  // 60.56 Mbit/s for 10 s
  TimePoint last{};
  std::uint64_t bytes = 0;
  for (const Verdict& verdict : offerAll(edge, 50'000, microseconds(200))) {
    if (verdict.deliveryCount == 0) continue;
    last = verdict.deliveries[0].arrival;
    bytes += kFrameBytes;
  }
  const double rate = static_cast<double>(bytes) * 8 / secondsOf(last - kStart - model.delay);
  EXPECT_NEAR(rate, 50e6, 50e6 * 0.001);
  EXPECT_GT(edge.counters().lostInQueue, 0u);
  EXPECT_LE(edge.counters().maxQueueBytes, model.queueBytes);
  EXPECT_GT(edge.counters().maxQueueBytes, model.queueBytes - kFrameBytes);
}

TEST(EdgeEmulator, Overhead_CountsForRateAndQueueNotForBytes) {
  EdgeModel model;
  model.rateBitsPerSecond = 1'000 * kMegabit;
  model.overheadBytes = 24;
  model.queueBytes = 1'000;
  EdgeEmulator edge(model, 1);
  EXPECT_EQ(edge.offer(kStart, 101).departure - kStart, nanoseconds(1'000));
  EXPECT_EQ(edge.queuedBytes(kStart), 125u);
  EXPECT_EQ(edge.counters().deliveredBytes, 101u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(edge.offer(kStart, 101).fate, FrameFate::kDelivered);
  EXPECT_EQ(edge.offer(kStart, 101).fate, FrameFate::kQueueFull);
  EXPECT_EQ(edge.counters().maxQueueBytes, 1'000u);
}

TEST(EdgeEmulator, Idle_StartsAnewWithoutCreditForTheTimeUnused) {
  EdgeModel model;
  model.rateBitsPerSecond = 8 * kMegabit;  // a byte a microsecond
  EdgeEmulator edge(model, 1);
  EXPECT_EQ(edge.offer(kStart, 100).departure, kStart + microseconds(100));
  const TimePoint later = kStart + seconds(1);
  EXPECT_EQ(edge.offer(later, 100).departure, later + microseconds(100));
  EXPECT_EQ(edge.offer(later, 100).departure, later + microseconds(200));
}

TEST(EdgeEmulator, QueueFull_DropsTheTailAndSaysWhenThereIsRoom) {
  EdgeModel model;
  model.rateBitsPerSecond = 8 * kMegabit;
  model.queueBytes = 3'000;
  EdgeEmulator edge(model, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(edge.offer(kStart, 1'000).fate, FrameFate::kDelivered);
  EXPECT_EQ(edge.offer(kStart, 1).fate, FrameFate::kQueueFull);
  EXPECT_EQ(edge.roomAt(kStart, 1), kStart + microseconds(1'000));
  EXPECT_EQ(edge.roomAt(kStart, 2'000), kStart + microseconds(2'000));
  EXPECT_EQ(edge.roomAt(kStart, 9'000), kStart + microseconds(3'000))
      << "more than the limit: an empty queue takes any";
  const TimePoint room = kStart + microseconds(1'000);
  EXPECT_EQ(edge.queuedBytes(room - nanoseconds(1)), 3'000u);
  EXPECT_EQ(edge.offer(room - nanoseconds(1), 1).fate, FrameFate::kQueueFull);
  EXPECT_EQ(edge.queuedBytes(room), 2'000u);
  EXPECT_EQ(edge.roomAt(room, 1'000), room);
  EXPECT_EQ(edge.offer(room, 1'000).fate, FrameFate::kDelivered);
  EXPECT_EQ(edge.counters().lostInQueue, 2u);
  EXPECT_EQ(edge.counters().maxQueueBytes, 3'000u);
}

TEST(EdgeEmulator, RateChanged_QueueKeepsItsBytesAndItsTimes) {
  EdgeModel model;
  model.rateBitsPerSecond = 8 * kMegabit;
  EdgeEmulator edge(model, 1);
  for (int i = 0; i < 3; ++i) edge.offer(kStart, 1'000);
  model.rateBitsPerSecond = 80 * kMegabit;
  edge.setModel(model);
  EXPECT_EQ(edge.queuedBytes(kStart), 3'000u);
  EXPECT_EQ(edge.offer(kStart, 1'000).departure, kStart + microseconds(3'100));
  model.rateBitsPerSecond = 0;
  edge.setModel(model);
  EXPECT_EQ(edge.offer(kStart, 1'000).departure, kStart + microseconds(3'100)) << "order is kept";
}

TEST(EdgeEmulator, NoRate_HasNoQueue) {
  EdgeModel model;
  model.queueBytes = 1;
  EdgeEmulator edge(model, 1);
  for (const Verdict& verdict : offerAll(edge, 100, Duration{0})) EXPECT_EQ(verdict.departure, kStart);
  EXPECT_EQ(edge.counters().maxQueueBytes, 0u);
}

TEST(EdgeEmulator, Delay_IsExactBesideWhatTheQueueTakes) {
  EdgeModel model;
  model.rateBitsPerSecond = 100 * kMegabit;
  model.delay = milliseconds(300);
  EdgeEmulator edge(model, 1);
  for (const Verdict& verdict : offerAll(edge, 1'000, microseconds(50))) {
    ASSERT_EQ(verdict.deliveryCount, 1);
    EXPECT_EQ(verdict.deliveries[0].arrival - verdict.departure, model.delay);
  }
  const EdgeCounters& counters = edge.counters();
  EXPECT_EQ(counters.totalDelay - counters.totalQueueing,
            Duration(1'000 * (model.delay.count() + kFrameBytes * 8 * 10)));
}

TEST(EdgeEmulator, Jitter_IsUniformAndKeepsOrder) {
  EdgeModel model;
  model.delay = milliseconds(10);
  model.jitter = milliseconds(4);
  EdgeEmulator edge(model, 9);
  constexpr int kFrames = 20'000;
  // Further apart than the jitter, so that order costs nothing: the mean of a uniform distribution and its spread.
  double sum = 0, squares = 0;
  for (int i = 0; i < kFrames; ++i) {
    const TimePoint now = kStart + milliseconds(5) * i;
    const double each = secondsOf(edge.offer(now, kFrameBytes).deliveries[0].arrival - now - model.delay);
    EXPECT_GE(each, 0);
    EXPECT_LT(each, 0.004);
    sum += each;
    squares += each * each;
  }
  const double mean = sum / kFrames;
  EXPECT_NEAR(mean, 0.002, kSigmas * 0.004 / std::sqrt(12.0 * kFrames));
  EXPECT_NEAR(squares / kFrames - mean * mean, 0.004 * 0.004 / 12, 0.004 * 0.004 / 12 * 0.05);
  // Close together: never overtaken.
  TimePoint last{};
  for (int i = 0; i < kFrames; ++i) {
    const TimePoint arrival =
        edge.offer(kStart + seconds(200) + microseconds(10) * i, kFrameBytes).deliveries[0].arrival;
    EXPECT_GE(arrival, last);
    last = arrival;
  }
}

TEST(EdgeEmulator, DelayShortened_LaterFramesDoNotOvertake) {
  EdgeModel model;
  model.delay = milliseconds(300);
  EdgeEmulator edge(model, 1);
  const TimePoint first = edge.offer(kStart, 100).deliveries[0].arrival;
  model.delay = milliseconds(1);
  edge.setModel(model);
  EXPECT_EQ(edge.offer(kStart + milliseconds(10), 100).deliveries[0].arrival, first);
  EXPECT_EQ(edge.offer(kStart + milliseconds(299), 100).deliveries[0].arrival, first);
  EXPECT_EQ(edge.offer(kStart + milliseconds(400), 100).deliveries[0].arrival, kStart + milliseconds(401));
}

// --- loss ---

TEST(EdgeEmulator, RandomLoss_IsBinomialForManySeeds) {
  for (const double loss : {0.001, 0.01, 0.1, 0.5}) {
    EdgeModel model;
    model.loss = loss;
    std::uint64_t lost = 0;
    constexpr int kFrames = 20'000;
    for (int seed = 0; seed < kSeeds; ++seed) {
      EdgeEmulator edge(model, static_cast<std::uint64_t>(seed));
      const std::vector<Verdict> verdicts = offerAll(edge, kFrames, microseconds(1));
      const auto gone = std::count_if(verdicts.begin(), verdicts.end(),
                                      [](const Verdict& each) { return each.fate == FrameFate::kLostRandomly; });
      expectShare(loss, static_cast<std::uint64_t>(gone), kFrames, "one seed");
      EXPECT_EQ(edge.counters().lostRandomly, static_cast<std::uint64_t>(gone));
      lost += static_cast<std::uint64_t>(gone);
    }
    expectShare(loss, lost, std::uint64_t{kFrames} * kSeeds, "all seeds");
  }
}

TEST(EdgeEmulator, LossOfOne_LosesAll) {
  EdgeModel model;
  model.loss = 1;
  EdgeEmulator edge(model, 5);
  for (const Verdict& verdict : offerAll(edge, 1'000, microseconds(1)))
    EXPECT_EQ(verdict.fate, FrameFate::kLostRandomly);
  EXPECT_EQ(edge.counters().delivered, 0u);
}

TEST(EdgeEmulator, LossWithOthers_IsIndependentOfThem) {
  // Losses come in runs of random length: the mean length is 1 / (1 - loss).
  EdgeModel model;
  model.loss = 0.3;
  EdgeEmulator edge(model, 11);
  std::uint64_t lost = 0, runs = 0;
  bool before = false;
  for (const Verdict& verdict : offerAll(edge, 200'000, microseconds(1))) {
    const bool now = verdict.fate != FrameFate::kDelivered;
    lost += now ? 1 : 0;
    runs += now && !before ? 1 : 0;
    before = now;
  }
  EXPECT_NEAR(static_cast<double>(lost) / static_cast<double>(runs), 1 / 0.7, 0.02);
}

TEST(EdgeEmulator, Bursts_HaveTheShareAndTheLengthOfTheModel) {
  EdgeModel model;
  model.burstEnter = 0.005;
  model.burstLeave = 0.1;
  model.burstLoss = 1;  // a burst is then a run of losses
  std::uint64_t lost = 0, runs = 0, frames = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    EdgeEmulator edge(model, seed);
    bool before = false;
    for (const Verdict& verdict : offerAll(edge, 20'000, microseconds(1))) {
      const bool now = verdict.fate == FrameFate::kLostInBurst;
      lost += now ? 1 : 0;
      runs += now && !before ? 1 : 0;
      ++frames;
      before = now;
    }
    EXPECT_EQ(edge.counters().lostRandomly, 0u);
  }
  // 4,500 bursts with a geometric length of mean 10: the length's deviation is 9.5, the mean's 0.14.
  EXPECT_NEAR(static_cast<double>(lost) / static_cast<double>(runs), 10, kSigmas * 0.15);
  const double share = model.burstEnter / (model.burstEnter + model.burstLeave);
  EXPECT_NEAR(static_cast<double>(lost) / static_cast<double>(frames), share, share * 0.1);
}

TEST(EdgeEmulator, BurstsThatLoseSome_LoseThatShareOfTheirTime) {
  EdgeModel model;
  model.burstEnter = 0.05;
  model.burstLeave = 0.2;
  model.burstLoss = 0.5;
  EdgeEmulator edge(model, 4);
  offerAll(edge, 500'000, microseconds(1));
  const double share = 0.05 / 0.25 * 0.5;
  EXPECT_NEAR(static_cast<double>(edge.counters().lostInBurst) / 500'000, share, share * 0.03);
}

TEST(EdgeEmulator, LinkDown_LosesAllOfferedAndKeepsWhatIsUnderWay) {
  EdgeModel model;
  model.delay = milliseconds(300);
  EdgeEmulator edge(model, 1);
  EXPECT_EQ(edge.offer(kStart, 100).deliveryCount, 1);
  model.up = false;
  edge.setModel(model);
  const Verdict verdict = edge.offer(kStart + milliseconds(1), 100);
  EXPECT_EQ(verdict.fate, FrameFate::kLinkDown);
  EXPECT_EQ(verdict.deliveryCount, 0);
  model.up = true;
  edge.setModel(model);
  EXPECT_EQ(edge.offer(kStart + milliseconds(2), 100).deliveries[0].arrival, kStart + milliseconds(302));
  EXPECT_EQ(edge.counters().lostWhileDown, 1u);
  EXPECT_EQ(edge.counters().delivered, 2u);
}

// --- duplication, reordering, corruption ---

TEST(EdgeEmulator, Duplication_DeliversSomeTwice) {
  EdgeModel model;
  model.duplication = 0.05;
  model.reorderDelay = microseconds(100);
  EdgeEmulator edge(model, 7);
  std::uint64_t twice = 0;
  for (const Verdict& verdict : offerAll(edge, 100'000, microseconds(1))) {
    ASSERT_GE(verdict.deliveryCount, 1);
    if (verdict.deliveryCount != 2) continue;
    ++twice;
    EXPECT_EQ(verdict.deliveries[1].arrival - verdict.deliveries[0].arrival, microseconds(50));
  }
  expectShare(0.05, twice, 100'000, "duplicated");
  EXPECT_EQ(edge.counters().duplicated, twice);
  EXPECT_EQ(edge.counters().delivered, 100'000 + twice);
}

TEST(EdgeEmulator, Reordering_MakesSomeLateAndOvertaken) {
  EdgeModel model;
  model.delay = milliseconds(1);
  model.reordering = 0.02;
  model.reorderDelay = microseconds(500);
  EdgeEmulator edge(model, 8);
  std::uint64_t late = 0, overtaken = 0;
  TimePoint latest{};
  for (int i = 0; i < 100'000; ++i) {
    const TimePoint now = kStart + microseconds(10) * i;
    const TimePoint arrival = edge.offer(now, kFrameBytes).deliveries[0].arrival;
    const Duration extra = arrival - now - model.delay;
    EXPECT_GE(extra, Duration{0});
    EXPECT_LT(extra, model.reorderDelay);
    late += extra > Duration{0} ? 1 : 0;
    // The next frame, 10 us behind, overtakes a late one unless it is later still: nearly all are overtaken.
    overtaken += arrival < latest ? 1 : 0;
    latest = std::max(latest, arrival);
  }
  expectShare(0.02, late, 100'000, "late");
  EXPECT_EQ(edge.counters().reordered, late);
  EXPECT_GT(overtaken, late);
}

TEST(EdgeEmulator, WithoutReordering_NothingIsOvertaken) {
  EdgeModel model;
  model.rateBitsPerSecond = 100 * kMegabit;
  model.delay = milliseconds(1);
  model.loss = 0.1;
  model.corruption = 0.1;
  model.jitter = milliseconds(1);
  EdgeEmulator edge(model, 8);
  TimePoint latest{};
  for (const Verdict& verdict : offerAll(edge, 50'000, microseconds(10))) {
    if (verdict.deliveryCount == 0) continue;
    EXPECT_GE(verdict.deliveries[0].arrival, latest);
    latest = verdict.deliveries[0].arrival;
  }
}

TEST(EdgeEmulator, Corruption_MarksItsShareOfDeliveries) {
  EdgeModel model;
  model.corruption = 0.03;
  EdgeEmulator edge(model, 12);
  std::uint64_t corrupt = 0;
  for (const Verdict& verdict : offerAll(edge, 100'000, microseconds(1)))
    corrupt += verdict.deliveries[0].corrupt ? 1 : 0;
  expectShare(0.03, corrupt, 100'000, "corrupt");
  EXPECT_EQ(edge.counters().corrupted, corrupt);
}

TEST(CorruptFrame, AnySeed_DamagesTheFrameBehindWhatIsUntouched) {
  constexpr std::size_t kUntouched = 14;
  std::uint64_t cut = 0, flipped = 0;
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    const std::vector<std::byte> whole(60, std::byte{0xa5});
    std::vector<std::byte> frame = whole;
    const std::size_t left = corruptFrame(frame, seed, kUntouched);
    ASSERT_GE(left, kUntouched);
    ASSERT_LE(left, whole.size());
    EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + kUntouched, frame.begin()));
    int bits = 0;
    for (std::size_t i = 0; i < left; ++i) {
      for (auto difference = std::to_integer<unsigned>(frame[i] ^ whole[i]); difference != 0;
           difference &= difference - 1)
        ++bits;
    }
    if (left < whole.size()) {
      ++cut;
      EXPECT_EQ(bits, 0);
    } else {
      ++flipped;
      EXPECT_GE(bits, 1);
      EXPECT_LE(bits, 3);
    }
  }
  expectShare(0.2, cut, cut + flipped, "cut");
}

TEST(CorruptFrame, NothingToDamage_IsLeftAlone) {
  std::vector<std::byte> frame(14, std::byte{1});
  EXPECT_EQ(corruptFrame(frame, 3, 14), 14u);
  EXPECT_EQ(frame, std::vector<std::byte>(14, std::byte{1}));
  EXPECT_EQ(corruptFrame({}, 3), 0u);
  std::vector<std::byte> one(1, std::byte{0});
  for (std::uint64_t seed = 0; seed < 100; ++seed) EXPECT_LE(corruptFrame(one, seed), 1u);
}

// --- all together ---

EdgeModel everything() {
  EdgeModel model;
  model.rateBitsPerSecond = 100 * kMegabit;
  model.delay = milliseconds(5);
  model.jitter = milliseconds(1);
  model.loss = 0.02;
  model.burstEnter = 0.01;
  model.duplication = 0.02;
  model.reordering = 0.02;
  model.reorderDelay = milliseconds(2);
  model.corruption = 0.02;
  model.queueBytes = 50'000;
  return model;
}

std::vector<std::string> outcome(std::uint64_t seed) {
  EdgeEmulator edge(everything(), seed);
  Random sizes(77);
  std::vector<std::string> lines;
  for (int i = 0; i < 20'000; ++i) {
    const Verdict verdict = edge.offer(kStart + microseconds(70) * i, 60 + sizes.below(1'455));
    std::string line = std::to_string(static_cast<int>(verdict.fate));
    for (const Delivery& each : verdict.delivered()) {
      line += fmt::format(" {}{}{}", (each.arrival - kStart).count(), each.corrupt ? "!" : "", each.corruptionSeed);
    }
    lines.push_back(line);
  }
  return lines;
}

TEST(EdgeEmulator, SameSeedAndOffers_GiveTheSameVerdicts) {
  EXPECT_EQ(outcome(1), outcome(1));
  EXPECT_NE(outcome(1), outcome(2));
}

TEST(EdgeEmulator, OtherTimesAndSizes_LoseTheSameFrames) {
  const auto lost = [](Duration apart, std::size_t bytes) {
    EdgeEmulator edge(everything(), 6);
    std::string text;
    for (const Verdict& verdict : offerAll(edge, 20'000, apart, bytes)) {
      text += verdict.fate == FrameFate::kLostRandomly || verdict.fate == FrameFate::kLostInBurst ? '0' : '1';
    }
    EXPECT_EQ(edge.counters().lostInQueue > 0, apart < microseconds(50));
    return text;
  };
  EXPECT_EQ(lost(microseconds(20), 1'514), lost(microseconds(200), 60)) << "one with a full queue, the other without";
}

TEST(EdgeEmulator, WhatIsLostAndWhatIsDuplicated_AreUnrelated) {
  EdgeModel losing, doubling;
  losing.loss = doubling.duplication = 0.5;
  EdgeEmulator loses(losing, 3), doubles(doubling, 3);
  std::uint64_t alike = 0;
  for (int i = 0; i < 10'000; ++i) {
    const bool lost = loses.offer(kStart, 100).deliveryCount == 0;
    const bool doubled = doubles.offer(kStart, 100).deliveryCount == 2;
    alike += lost == doubled ? 1 : 0;
  }
  expectShare(0.5, alike, 10'000, "lost in one and doubled in the other");
}

TEST(EdgeEmulator, Counters_AddUp) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    EdgeEmulator edge(everything(), seed);
    std::uint64_t deliveries = 0, bytes = 0;
    Duration delay{0};
    for (int i = 0; i < 20'000; ++i) {
      const TimePoint now = kStart + microseconds(70) * i;
      const Verdict verdict = edge.offer(now, kFrameBytes);
      EXPECT_EQ(verdict.deliveryCount > 0, verdict.fate == FrameFate::kDelivered);
      deliveries += verdict.deliveryCount;
      bytes += verdict.deliveryCount * kFrameBytes;
      if (verdict.deliveryCount > 0) delay += verdict.deliveries[0].arrival - now;
    }
    const EdgeCounters& counters = edge.counters();
    EXPECT_EQ(counters.offered, 20'000u);
    EXPECT_EQ(counters.offeredBytes, 20'000u * kFrameBytes);
    EXPECT_EQ(counters.offered, counters.accepted + counters.lost());
    EXPECT_EQ(counters.acceptedBytes, counters.accepted * kFrameBytes);
    EXPECT_EQ(counters.delivered, counters.accepted + counters.duplicated);
    EXPECT_EQ(counters.delivered, deliveries);
    EXPECT_EQ(counters.deliveredBytes, bytes);
    EXPECT_EQ(counters.totalDelay, delay);
    for (const std::uint64_t each : {counters.lostRandomly, counters.lostInBurst, counters.lostInQueue,
                                     counters.duplicated, counters.reordered, counters.corrupted}) {
      EXPECT_GT(each, 0u);
    }
  }
}

TEST(SeedOf, SeedsAndNames_GiveUnrelatedStreams) {
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (int from = 0; from < 16; ++from) {
      for (int to = 0; to < 16; ++to) seeds.push_back(seedOf(seed, fmt::format("r{}->r{}", from, to)));
    }
  }
  std::sort(seeds.begin(), seeds.end());
  EXPECT_EQ(std::adjacent_find(seeds.begin(), seeds.end()), seeds.end());
  EXPECT_EQ(seedOf(1, "r0->r1"), seedOf(1, "r0->r1"));
}

TEST(Describe, Model_SaysWhatItDoes) {
  EXPECT_EQ(describe(EdgeModel{}), "nothing");
  EXPECT_EQ(describe(everything()),
            "rate 100 Mbit/s, queue 50 kB, delay 5 ms, jitter 1 ms, loss 2 %, bursts entered by 1 %, left by 20 %, "
            "that lose 80 %, "
            "duplication 2 %, reordering 2 % by 2 ms, corruption 2 %");
  EdgeModel down;
  down.up = false;
  EXPECT_EQ(describe(down), "down");
}

}  // namespace
}  // namespace gloo_bypass::fabric
