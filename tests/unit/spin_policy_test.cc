#include "transport/progress/spin_policy.h"

#include <gtest/gtest.h>

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

TEST(SpinPolicy, PollingSwitchedOff_NeverPolls) {
  SpinPolicy policy(Duration{0});
  EXPECT_EQ(wait(policy, 100, microseconds(1)).through, 0);
}

constexpr TimePoint kStart{std::chrono::seconds(100)};
constexpr Duration kLook = microseconds(50);

// Looks for so long while nobody says that the core is shared; true: somebody did, at `*now`.
bool lookUntilShared(CoreShare& core, TimePoint* now, Duration limit, bool (*preempted)(TimePoint)) {
  for (const TimePoint end = *now + limit; *now < end; *now += kLook) {
    core.onLook(*now, preempted(*now));
    if (core.shared(*now)) return true;
  }
  return false;
}

bool eachMillisecond(TimePoint now) { return (now - kStart) % milliseconds(1) < kLook; }

TEST(CoreShare, TakenAgainAndAgain_SharedWithinAFewTicks) {
  CoreShare core;
  TimePoint now = kStart;
  EXPECT_TRUE(lookUntilShared(core, &now, milliseconds(20), eachMillisecond));
  EXPECT_FALSE(core.shared(now + CoreShare::kShortest)) << "it must try now and then";
}

TEST(CoreShare, TakenAsSoonAsItIsTried_TriedLessAndLess) {
  CoreShare core;
  Duration shared{0};
  for (TimePoint now = kStart; now < kStart + std::chrono::seconds(20); now += kLook) {
    core.onLook(now, eachMillisecond(now));
    if (core.shared(now)) shared += kLook;
  }
  EXPECT_GT(shared, milliseconds(20'000 * 95 / 100));
}

// The kernel parts two threads that it woke on one core.
TEST(CoreShare, TakenForTwoTicks_NotShared) {
  CoreShare core;
  TimePoint now = kStart;
  const auto atFirst = [](TimePoint at) { return at < kStart + milliseconds(7) && eachMillisecond(at); };
  EXPECT_FALSE(lookUntilShared(core, &now, std::chrono::seconds(1), atFirst));
}

TEST(CoreShare, TakenByADaemonNowAndThen_NotShared) {
  CoreShare core;
  TimePoint now = kStart;
  const auto daemon = [](TimePoint at) { return (at - kStart) % milliseconds(9) < kLook; };
  EXPECT_FALSE(lookUntilShared(core, &now, std::chrono::seconds(1), daemon));
}

TEST(CoreShare, LooksFarApart_CountAsOneWindowEach) {
  CoreShare core;
  for (int i = 0; i < 2; ++i) core.onLook(kStart + i * std::chrono::seconds(1), true);
  EXPECT_FALSE(core.shared(kStart + std::chrono::seconds(1)));
}

}  // namespace
}  // namespace gloo_bypass
