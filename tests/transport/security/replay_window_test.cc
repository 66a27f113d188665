#include "transport/security/replay_window.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace gloo_bypass::security {
namespace {

TEST(ReplayWindow, NumbersInOrder_AreNewOnce) {
  ReplayWindow window;
  for (std::uint64_t number = 0; number < 3 * ReplayWindow::kNumbers; ++number) {
    ASSERT_TRUE(window.mayBeNew(number)) << number;
    window.accept(number);
    ASSERT_FALSE(window.mayBeNew(number)) << number;
  }
  EXPECT_EQ(window.next(), 3 * ReplayWindow::kNumbers);
}

TEST(ReplayWindow, OldestInTheWindow_IsNew_AndOneBelow_IsNot) {
  ReplayWindow window;
  window.accept(1'000'000);
  const std::uint64_t lowest = window.lowest();
  EXPECT_EQ(lowest, 1'000'001 - ReplayWindow::kNumbers);
  EXPECT_TRUE(window.mayBeNew(lowest));
  EXPECT_FALSE(window.mayBeNew(lowest - 1));
  window.accept(lowest);
  EXPECT_FALSE(window.mayBeNew(lowest));
  EXPECT_TRUE(window.mayBeNew(lowest + 1));
}

TEST(ReplayWindow, JumpFarAhead_ForgetsNoNumberThatItHasSeen) {
  ReplayWindow window;
  for (const std::uint64_t number : {0u, 63u, 64u, 100u}) window.accept(number);
  window.accept(100 + ReplayWindow::kNumbers - 1);
  EXPECT_FALSE(window.mayBeNew(100));
  EXPECT_TRUE(window.mayBeNew(101));
  window.accept(std::uint64_t{1} << 62);
  EXPECT_FALSE(window.mayBeNew(100 + ReplayWindow::kNumbers - 1));
  EXPECT_FALSE(window.mayBeNew(UINT64_MAX));
}

// Against a set of all numbers seen.
TEST(ReplayWindow, RandomOrder_AcceptsEachNumberOnceAndNothingBelowTheWindow) {
  constexpr unsigned kSeed = 34;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  ReplayWindow window;
  std::set<std::uint64_t> seen;
  std::uint64_t around = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t step = random() % 100 == 0 ? random() % (2 * ReplayWindow::kNumbers) : random() % 4;
    around += step;
    const std::uint64_t back = random() % (random() % 50 == 0 ? 2 * ReplayWindow::kNumbers : 80);
    const std::uint64_t number = around - std::min(around, back);
    const std::uint64_t highest = seen.empty() ? 0 : *seen.rbegin();
    const bool tooOld = !seen.empty() && number + ReplayWindow::kNumbers <= highest;
    ASSERT_EQ(window.mayBeNew(number), !tooOld && !seen.contains(number)) << number << " of " << highest;
    if (!window.mayBeNew(number)) continue;
    window.accept(number);
    seen.insert(number);
  }
}

}  // namespace
}  // namespace gloo_bypass::security
