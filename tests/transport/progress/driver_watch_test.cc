#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "transport/progress/driver_watch.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::future<void> watching(DriverWatch& watch) {
  return std::async(std::launch::async, [&watch] { watch.awaitStandstill(); });
}

void untilLooks(const DriverWatch& watch, std::uint64_t looks) {
  while (watch.looks() < looks) std::this_thread::yield();
}

TEST(DriverWatch_NextSleep, WaitsFollowOneAnother_GrowsToTheShortBound) {
  Duration sleep = DriverWatch::kFirstSleep;
  for (const int ms : {2, 4, 4, 4}) {
    sleep = DriverWatch::nextSleep(sleep, /*anotherWaitBegan=*/true, /*driving=*/ms == 4);
    EXPECT_EQ(sleep, milliseconds(ms));
  }
}

TEST(DriverWatch_NextSleep, OneWaitLasts_GrowsToTheLongBoundAndComesBack) {
  Duration sleep = DriverWatch::kFirstSleep;
  for (const int ms : {2, 4, 8, 16, 32, 64, 64}) {
    sleep = DriverWatch::nextSleep(sleep, /*anotherWaitBegan=*/false, /*driving=*/true);
    EXPECT_EQ(sleep, milliseconds(ms));
  }
  EXPECT_EQ(DriverWatch::nextSleep(sleep, true, true), DriverWatch::kBetweenWaits);
  EXPECT_EQ(DriverWatch::nextSleep(sleep, false, false), DriverWatch::kFirstSleep);
}

TEST(DriverWatch_AwaitStandstill, NobodyEverDrove_ReturnsAtOnce) {
  DriverWatch watch;
  watch.awaitStandstill();
  EXPECT_EQ(watch.looks(), 0U);
}

TEST(DriverWatch_AwaitStandstill, AWaiterDrives_ReturnsOnlyWhenItHasEnded) {
  DriverWatch watch;
  watch.began();
  std::future<void> standstill = watching(watch);
  untilLooks(watch, 3);
  EXPECT_NE(standstill.wait_for(seconds(0)), std::future_status::ready);
  const TimePoint end = monotonicNow();
  watch.ended(end);
  ASSERT_EQ(standstill.wait_for(seconds(30)), std::future_status::ready);
  EXPECT_GE(monotonicNow() - end, DriverWatch::kTakeOverAfter);
}

TEST(DriverWatch_AwaitStandstill, ALongWaitEnds_IsToldWithinItsSleep) {
  // The end falls into a sleep of 64 ms each time. Without a notification all twenty would take 0.6 s on average; with
  // it the watch returns after kTakeOverAfter and a first sleep. The bound lies between, and the best of the twenty
  // counts: a busy machine may delay some, but without notifications none returns early.
  DriverWatch watch;
  Duration best = Duration::max();
  for (int i = 0; i < 20 && best > milliseconds(10); ++i) {
    watch.began();
    std::future<void> standstill = watching(watch);
    const std::uint64_t before = watch.looks();
    untilLooks(watch, before + 7);  // asleep for 64 ms from here, or about to be
    const TimePoint end = monotonicNow();
    watch.ended(end);
    standstill.get();
    best = std::min<Duration>(best, monotonicNow() - end);
  }
  EXPECT_LE(best, milliseconds(10));
}

TEST(DriverWatch_AwaitStandstill, OneWaitLasts_LooksGetRare) {
  DriverWatch watch;
  watch.began();
  const TimePoint begin = monotonicNow();
  std::future<void> standstill = watching(watch);
  untilLooks(watch, 9);
  EXPECT_GE(monotonicNow() - begin, milliseconds(1 + 2 + 4 + 8 + 16 + 32 + 64 + 64));
  watch.ended(monotonicNow());
  standstill.get();
}

TEST(DriverWatch_Stop, WhileAWaiterDrives_Returns) {
  DriverWatch watch;
  watch.began();
  std::future<void> standstill = watching(watch);
  untilLooks(watch, 1);
  watch.stop();
  EXPECT_EQ(standstill.wait_for(seconds(30)), std::future_status::ready);
}

}  // namespace
}  // namespace gloo_bypass
