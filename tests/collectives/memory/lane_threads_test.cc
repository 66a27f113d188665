#include "collectives/memory/lane_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>

namespace gloo_bypass::collectives {
namespace {

constexpr int kLanes = 3;

void lookAtNothing() {}

TEST(LaneThreads, EachLane_RunsOnce) {
  LaneThreads threads(kLanes);
  std::atomic<int> lanes{0};
  const auto work = [&](int lane) {
    lanes += 1 << (8 * lane);
    return Status();
  };
  for (int operation = 1; operation <= 100; ++operation) {
    ASSERT_TRUE(threads.run(work, lookAtNothing));
    ASSERT_EQ(lanes, 0x10101 * operation);
  }
}

TEST(LaneThreads, ErrorsOfLanes_TheLowestLanesIsReturned) {
  LaneThreads threads(kLanes);
  const auto work = [](int lane) {
    return lane == 0 ? Status() : Status(Error{ErrorScope::kSession, ErrorCode::kExhausted, std::to_string(lane)});
  };
  const Status status = threads.run(work, lookAtNothing);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "1");
  EXPECT_TRUE(threads.run([](int) { return Status(); }, lookAtNothing)) << "an error of an earlier operation";
}

// The others still use what the caller owns.
TEST(LaneThreads, ALaneThrows_TheCallerHearsOfItOnceAllHaveEnded) {
  for (int thrower = 0; thrower < kLanes; ++thrower) {
    LaneThreads threads(kLanes);
    std::atomic<int> ended{0};
    const auto work = [&](int lane) {
      if (lane == thrower) throw std::bad_alloc();
      ++ended;
      return Status();
    };
    EXPECT_THROW((void)threads.run(work, lookAtNothing), std::bad_alloc) << thrower;
    EXPECT_EQ(ended, kLanes - 1);
    EXPECT_TRUE(threads.run([](int) { return Status(); }, lookAtNothing)) << "an exception of an earlier operation";
  }
}

}  // namespace
}  // namespace gloo_bypass::collectives
