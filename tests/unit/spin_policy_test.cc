#include "transport/progress/spin_policy.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace gloo_bypass {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kLongest = microseconds(200);

// How many of `waits` waits of the length `idle` are polled through, and the time polled in all of them.
struct Polled {
  int through = 0;
  Duration time{0};
};
Polled wait(SpinPolicy& policy, int waits, Duration idle) {
  Polled polled;
  for (int i = 0; i < waits; ++i) {
    const Duration window = policy.window();
    polled.through += window >= idle ? 1 : 0;
    polled.time += std::min(window, idle);
    policy.onEvent(idle);
  }
  return polled;
}

TEST(SpinPolicy, ShortWaits_AllPolledThrough) {
  SpinPolicy policy(kLongest);
  EXPECT_EQ(wait(policy, 1000, microseconds(20)).through, 1000);
}

TEST(SpinPolicy, WaitsOfASlowLink_PollsForLittleOfTheTime) {
  SpinPolicy policy(kLongest);
  const Polled polled = wait(policy, 1000, microseconds(120));
  EXPECT_LT(polled.time, microseconds(1000 * 120) / 50);
  EXPECT_GT(polled.time, Duration{0}) << "it must try now and then";
}

TEST(SpinPolicy, HalfOfTheWaitsShort_PollsForLessThanAQuarterOfTheTime) {
  SpinPolicy policy(kLongest);
  Duration polled{0};
  for (int i = 0; i < 500; ++i)
    polled += wait(policy, 1, microseconds(30)).time + wait(policy, 1, microseconds(200)).time;
  EXPECT_LT(polled, microseconds(500 * 230) / 4);
}

TEST(SpinPolicy, OneLongWaitAmongShortOnes_ShortOnesStayPolled) {
  SpinPolicy policy(kLongest);
  for (int step = 0; step < 100; ++step) {
    EXPECT_EQ(wait(policy, 10, microseconds(10)).through, 10);
    (void)wait(policy, 1, milliseconds(100));
  }
}

TEST(SpinPolicy, ShortWaitsAfterManyLongOnes_PolledThroughAgainSoon) {
  SpinPolicy policy(kLongest);
  (void)wait(policy, 100, milliseconds(1));
  (void)wait(policy, SpinPolicy::kEnough, microseconds(45));  // a sleep's wake-up may be that quick
  EXPECT_EQ(wait(policy, 100, microseconds(45)).through, 100);
}

TEST(SpinPolicy, SleepsHideThatWaitsAreShort_FoundOutByTrying) {
  SpinPolicy policy(kLongest);
  (void)wait(policy, 1000, milliseconds(1));
  int waits = 0;
  for (; policy.window() < kLongest; ++waits) {
    // Whoever sleeps is woken late.
    policy.onEvent(policy.window() > Duration{0} ? microseconds(10) : microseconds(80));
    ASSERT_LT(waits, 1000);
  }
  EXPECT_LE(waits, SpinPolicy::kTryLast + 40);
}

// Two ranks answer each other at once over a device that cannot wake a sleeper: who sleeps looks by itself, after `first`, then after
// ever longer steps, each late by the slack of the kernel's timers. Both begin asleep. Whether both come to poll.
bool comeToPoll(Duration first) {
  constexpr Duration kSlack = microseconds(50), kOnTheWay = microseconds(2);
  struct Rank {
    SpinPolicy policy{kLongest};
    Duration began{0};  // its wait
  };
  std::array<Rank, 2> ranks;
  for (Rank& rank : ranks) (void)wait(rank.policy, 1000, milliseconds(1));
  Duration now{0};
  for (std::size_t i = 0; i < 10'000; ++i) {
    Rank& rank = ranks[i % 2];
    Duration looks = rank.began + rank.policy.window();
    for (Duration step = first; looks < now; step += step / 4) looks += step + kSlack;
    if (rank.policy.window() < now - rank.began) now = looks;
    rank.policy.onEvent(now - rank.began);
    rank.began = now;
    now += kOnTheWay;
    if (ranks[0].policy.window() == kLongest && ranks[1].policy.window() == kLongest) return true;
  }
  return false;
}

TEST(SpinPolicy, PeersSleepInTurn_StepsShorterThanAWaitWorthPolling_BothComeToPoll) {
  EXPECT_TRUE(comeToPoll(microseconds(20)));
  EXPECT_FALSE(comeToPoll(microseconds(100))) << "each is kept asleep by the other's sleep: ports need not be this careful";
}

TEST(SpinPolicy, PollingSwitchedOff_NeverPolls) {
  SpinPolicy policy(Duration{0});
  EXPECT_EQ(wait(policy, 100, microseconds(1)).through, 0);
}

constexpr TimePoint kStart{std::chrono::seconds(100)};
bool everyCoreWanted() { return false; }
bool oneCoreIdle() { return true; }

// Looks as soon as it is worth it, from kStart on; of each millisecond the thread is ready without a core for as long as
// `waits` says of the time. How much of the time until `end` the core was called shared.
template <typename Waits>
Duration timeShared(CoreShare& core, TimePoint end, Waits waits, const std::function<bool()>& coreIdle = everyCoreWanted) {
  Duration shared{0}, ready{0}, readyAtLook{0};
  TimePoint lookedAt{};
  for (TimePoint now = kStart; now < end; now += milliseconds(1)) {
    ready += waits(now);
    if (core.shared(now)) shared += milliseconds(1);
    if (!core.worthALook(now)) continue;
    core.onLook(now, now - lookedAt, ready - readyAtLook, coreIdle);
    lookedAt = now;
    readyAtLook = ready;
  }
  return shared;
}

Duration half(TimePoint) { return microseconds(500); }

TEST(CoreShare, HalfOfTheTimeWithoutACore_SharedWithinAFewTicks) {
  CoreShare core;
  EXPECT_GT(timeShared(core, kStart + milliseconds(30), half), Duration{0});
}

TEST(CoreShare, NeverBetter_TriedLessAndLess) {
  CoreShare core;
  EXPECT_GT(timeShared(core, kStart + std::chrono::seconds(20), half), milliseconds(20'000 * 95 / 100));
}

TEST(CoreShare, BetterAfterAWhile_IsSeenWithinTheLongestSpan) {
  CoreShare core;
  const TimePoint end = kStart + std::chrono::seconds(10), better = end - std::chrono::seconds(1);
  (void)timeShared(core, end, [&](TimePoint now) { return now < better ? half(now) : Duration{0}; });
  EXPECT_FALSE(core.shared(end));
}

// The kernel parts two threads that it woke on one core.
TEST(CoreShare, WithoutACoreForTwoTicks_NotShared) {
  CoreShare core;
  const auto atFirst = [](TimePoint now) { return now < kStart + milliseconds(8) ? half(now) : Duration{0}; };
  EXPECT_EQ(timeShared(core, kStart + std::chrono::seconds(1), atFirst), Duration{0});
}

// It may take the kernel more ticks than that.
TEST(CoreShare, WithoutACoreBesideAnIdleOne_PatientForTicks) {
  CoreShare core;
  const auto atFirst = [](TimePoint now) { return now < kStart + milliseconds(80) ? half(now) : Duration{0}; };
  EXPECT_EQ(timeShared(core, kStart + std::chrono::seconds(1), atFirst, oneCoreIdle), Duration{0});
}

// As a rank that is held to half of a core.
TEST(CoreShare, WithoutACoreBesideAnIdleOneForGood_SharedMostOfTheTime) {
  CoreShare core;
  EXPECT_GT(timeShared(core, kStart + milliseconds(120), half, oneCoreIdle), Duration{0});
  EXPECT_GT(timeShared(core, kStart + std::chrono::seconds(20), half, oneCoreIdle), milliseconds(20'000 * 3 / 4));
}

// Where ranks sleep in turn, a core is idle at times.
TEST(CoreShare, CoreIdleAtSomeLooks_SharedWithinTwentyTicks) {
  CoreShare core;
  int looks = 0;
  EXPECT_GT(timeShared(core, kStart + milliseconds(60), half, [&] { return ++looks % 2 == 0; }), Duration{0});
}

TEST(CoreShare, EngineLooksInEachMillisecond_NotShared) {
  CoreShare core;
  const auto engine = [](TimePoint) { return microseconds(30); };
  EXPECT_EQ(timeShared(core, kStart + std::chrono::seconds(1), engine), Duration{0});
}

// As after a computation of seconds, in which others ran too.
TEST(CoreShare, LooksFarApart_TeachNothing) {
  CoreShare core;
  for (int i = 1; i < 10; ++i) core.onLook(kStart + i * milliseconds(100), milliseconds(100), milliseconds(50), everyCoreWanted);
  EXPECT_FALSE(core.shared(kStart + milliseconds(901)));
}

}  // namespace
}  // namespace gloo_bypass
