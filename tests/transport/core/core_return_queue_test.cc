// How long answers waited on their way back.
#include <gtest/gtest.h>

#include "transport/core/return_queue.h"

namespace gloo_bypass {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kTicksAMillisecond = 1'000'000 / wire::kTickNanoseconds;
const TimePoint kStart{std::chrono::hours(1)};

TEST(ReturnQueue, IsWhatIsLongerThanTheQuickestWay_WhateverTheClocksSay) {
  for (const std::uint32_t offset : {0u, 0x7fffffffu, 0x80000000u, 0xfffffff0u}) {
    ReturnQueue queue;
    EXPECT_EQ(queue.of(kStart, offset + 500, 0), Duration{0});
    EXPECT_EQ(queue.of(kStart, offset + 500 + kTicksAMillisecond, 0), milliseconds(1)) << offset;
    EXPECT_EQ(queue.of(kStart, offset + 400 + kTicksAMillisecond, kTicksAMillisecond), Duration{0}) << offset;
    EXPECT_EQ(queue.of(kStart, offset + 500, 0), Duration(100 * wire::kTickNanoseconds)) << offset;
  }
}

TEST(ReturnQueue, QueueThatStays_IsForgottenAfterSeconds) {
  ReturnQueue queue;
  (void)queue.of(kStart, 100, 0);
  for (int second = 1; second <= 5; ++second) {
    EXPECT_EQ(queue.of(kStart + seconds(second), 100 + kTicksAMillisecond, 0), milliseconds(1)) << second;
  }
  EXPECT_EQ(queue.of(kStart + seconds(9), 100 + kTicksAMillisecond, 0), milliseconds(1));
  (void)queue.of(kStart + seconds(11), 100 + kTicksAMillisecond, 0);
  EXPECT_EQ(queue.of(kStart + seconds(17), 100 + kTicksAMillisecond, 0), Duration{0});
}

TEST(ReturnQueue, AfterASilence_NothingOfBeforeCounts) {
  ReturnQueue queue;
  (void)queue.of(kStart, 1000, 0);
  // Ten minutes, in which clocks drift apart by 6 ms.
  const std::uint32_t drifted = 1000 + 6 * kTicksAMillisecond;
  EXPECT_EQ(queue.of(kStart + seconds(600), drifted, 0), Duration{0});
  EXPECT_EQ(queue.of(kStart + seconds(601), drifted + kTicksAMillisecond, 0), milliseconds(1));
}

TEST(ReturnQueue, ClocksThatDriftApart_CountForMicrosecondsOnly) {
  ReturnQueue queue;
  Duration most{0};
  for (int second = 0; second < 600; ++second) {  // 10 in a million
    const auto drift = static_cast<std::uint32_t>(second * 10'000 / wire::kTickNanoseconds);
    most = std::max(most, queue.of(kStart + seconds(second), 1000 + drift, 0));
  }
  EXPECT_LT(most, microseconds(130));
}

}  // namespace
}  // namespace gloo_bypass
