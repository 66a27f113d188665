#include "transport/progress/spin_policy.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "transport/progress/core_use.h"

namespace gloo_bypass {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kLongest = microseconds(200);

// How many of `waits` waits of the length `idle` polling covers, and the total time spent polling.
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
    // A sleeper is woken late.
    policy.onEvent(policy.window() > Duration{0} ? microseconds(10) : microseconds(80));
    ASSERT_LT(waits, 1000);
  }
  EXPECT_LE(waits, SpinPolicy::kTryLast + 40);
}

// Two ranks answer each other at once over a device that cannot wake a sleeper: a sleeper polls after `first`, then at
// ever longer intervals, each late by the slack of the kernel's timers. Both begin asleep. Returns whether both come to
// poll.
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
  EXPECT_FALSE(comeToPoll(microseconds(100)))
      << "each is kept asleep by the other's sleep: ports need not be this careful";
}

TEST(SpinPolicy, PollingSwitchedOff_NeverPolls) {
  SpinPolicy policy(Duration{0});
  EXPECT_EQ(wait(policy, 100, microseconds(1)).through, 0);
}

constexpr TimePoint kStart{std::chrono::seconds(100)};
bool everyCoreWanted() { return false; }
bool oneCoreIdle() { return true; }

// Looks as soon as it is worth it, but `apart`, from kStart on; in each millisecond the thread waits for a core for the
// share that `waits` gives for the time. Returns the share of the time until `end` in which the core counted as shared.
template <typename Waits>
Duration timeShared(TimePoint end, Waits waits, const std::function<bool()>& coreIdle = everyCoreWanted,
                    Duration apart = CoreShare::kWindow) {
  CoreShare core;
  Duration shared{0}, ready{0}, readyAtLook{0};
  TimePoint lookedAt{};
  for (TimePoint now = kStart; now < end; now += milliseconds(1)) {
    ready += waits(now);
    if (core.shared(now)) shared += milliseconds(1);
    if (!core.worthALook(now) || now - lookedAt < apart) continue;
    core.onLook(now, now - lookedAt, ready - readyAtLook, coreIdle);
    lookedAt = now;
    readyAtLook = ready;
  }
  return shared;
}

Duration half(TimePoint) { return microseconds(500); }
// Half of the time up to `first`, and then none.
auto halfFor(Duration first) {
  return [first](TimePoint now) { return now < kStart + first ? half(now) : Duration{0}; };
}

TEST(CoreShare, HalfOfTheTimeWithoutACore_SharedWithinAFewTicks) {
  EXPECT_GT(timeShared(kStart + milliseconds(30), half), Duration{0});
}

TEST(CoreShare, NeverBetter_TriedLessAndLess) {
  EXPECT_GT(timeShared(kStart + std::chrono::seconds(20), half), milliseconds(20'000 * 95 / 100));
}

TEST(CoreShare, BetterAfterAWhile_IsSeenWithinTheLongestSpan) {
  EXPECT_EQ(timeShared(kStart + std::chrono::seconds(20), halfFor(std::chrono::seconds(9))),
            timeShared(kStart + std::chrono::seconds(10), halfFor(std::chrono::seconds(9))));
}

// The kernel separates two threads that it woke on one core.
TEST(CoreShare, WithoutACoreForTwoTicks_NotShared) {
  EXPECT_EQ(timeShared(kStart + std::chrono::seconds(1), halfFor(milliseconds(8))), Duration{0});
}

// It may need more ticks than that.
TEST(CoreShare, WithoutACoreBesideAnIdleOne_PatientForTicks) {
  EXPECT_EQ(timeShared(kStart + std::chrono::seconds(1), halfFor(milliseconds(80)), oneCoreIdle), Duration{0});
}

// If it is not free to separate them.
TEST(CoreShare, WithoutACoreBesideAnIdleOneForGood_SharedMostOfTheTime) {
  EXPECT_GT(timeShared(kStart + milliseconds(120), half, oneCoreIdle), Duration{0});
  const TimePoint end = kStart + std::chrono::seconds(20);
  EXPECT_GT(timeShared(end, half, oneCoreIdle), milliseconds(20'000 * 3 / 4));
  EXPECT_GT(timeShared(end, half, oneCoreIdle, milliseconds(6)), milliseconds(20'000 * 3 / 4))
      << "looks come later than they may";
}

// If ranks sleep in turn, a core is idle at times.
TEST(CoreShare, CoreIdleAtEverySecondLook_SharedWithinTenTicks) {
  int looks = 0;
  EXPECT_GT(timeShared(kStart + milliseconds(40), half, [&] { return ++looks % 2 == 0; }), Duration{0});
}

// Other threads compute for a moment in each step: the last spell predicts nothing about the next.
TEST(CoreShare, SpellsFarApart_EachForTheShortestSpan) {
  const auto spells = [](TimePoint now) {
    return (now - kStart) % milliseconds(120) < milliseconds(16) ? half(now) : Duration{0};
  };
  const Duration shared = timeShared(kStart + milliseconds(100 * 120), spells);
  EXPECT_GT(shared, Duration{0});
  EXPECT_LE(shared, 100 * CoreShare::kShortest);
}

TEST(CoreShare, EngineLooksInEachMillisecond_NotShared) {
  EXPECT_EQ(timeShared(kStart + std::chrono::seconds(1), [](TimePoint) { return microseconds(30); }), Duration{0});
}

// As after a computation of seconds, in which others ran too.
TEST(CoreShare, LooksFarApart_TeachNothing) {
  CoreShare core;
  for (int i = 1; i < 10; ++i) {
    core.onLook(kStart + i * milliseconds(100), milliseconds(100), milliseconds(50), everyCoreWanted);
  }
  EXPECT_FALSE(core.shared(kStart + milliseconds(901)));
}

// A look after another thread has driven shows nothing, and cancels nothing.
TEST(CoreShare, LooksThatTeachNothingInBetween_StillInARow) {
  CoreShare core;
  TimePoint now = kStart;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(core.shared(now));
    core.onLook(now += milliseconds(10), milliseconds(10), milliseconds(5), everyCoreWanted);
    core.onLook(now += milliseconds(4), milliseconds(4), milliseconds(2), everyCoreWanted);
  }
  EXPECT_TRUE(core.shared(now));
}

TEST(CoreShare, WindowWithTheCoreOrAPauseInBetween_NotInARow) {
  for (const Duration pause : {Duration(milliseconds(4)), Duration(CoreShare::kPause)}) {
    CoreShare core;
    TimePoint now = kStart;
    for (int i = 0; i < 9; ++i) {
      core.onLook(now += milliseconds(4), milliseconds(4), milliseconds(2), everyCoreWanted);
      if (i % 2 == 1) core.onLook(now += pause, pause, Duration{0}, everyCoreWanted);
    }
    EXPECT_FALSE(core.shared(now));
  }
}

TEST(CoreUse, LoadAverage_RunnableThreadsInAnyLocalesNumbers) {
  EXPECT_EQ(runnableThreads("0.52 0.58 0.59 3/467 12345\n"), 3);
  EXPECT_EQ(runnableThreads("0,52 0,58 0,59 12/467 12345\n"), 12);
}

TEST(CoreUse, NobodyCounts_None) {
  for (const char* text : {"", "0.52", "0.52 0.58 0.59", "0.52 0.58 0.59 many", "0.00 0.00 0.00 0/0 0\n"}) {
    EXPECT_EQ(runnableThreads(text), 0) << text;
  }
}

// Two threads on the only core that they may use.
TEST(CoreUse, TwoThreadsOnOneCore_KeptWaitingAndNoneIdle) {
  cpu_set_t before, only;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&only);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &only);
  ASSERT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
  const Duration readyBefore = readyTime();
  std::atomic<bool> stop{false};
  std::thread rival([&] {  // on the same core
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  // Until the two have taken turns; a kernel that does not count would keep us waiting.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (readyTime() - readyBefore < milliseconds(20) && std::chrono::steady_clock::now() < limit) {
  }
  const Duration waited = readyTime() - readyBefore;
  const bool idle = coreSeemsIdle();
  stop.store(true);
  rival.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(waited, milliseconds(20));
  EXPECT_FALSE(idle);
}

}  // namespace
}  // namespace gloo_bypass
