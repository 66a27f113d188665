#include "transport/base/doorbell.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>

#include "transport/base/time.h"
#include "transport/base/wake_event.h"

namespace gloo_bypass {
namespace {

bool isHeard(const Doorbell& doorbell) {
  pollfd heard{doorbell.heardAt(), POLLIN, 0};
  return ::poll(&heard, 1, 0) == 1;
}

TEST(Doorbell, RungManyTimes_OneQuietSilencesThemAll) {
  const Doorbell doorbell;
  ASSERT_TRUE(doorbell.made().ok()) << doorbell.made().error().message;
  EXPECT_FALSE(isHeard(doorbell));
  for (int i = 0; i < 100; ++i) doorbell.ring();
  EXPECT_TRUE(isHeard(doorbell));
  doorbell.quiet();
  EXPECT_FALSE(isHeard(doorbell));
  doorbell.ring();
  EXPECT_TRUE(isHeard(doorbell));
}

// Rings that come while the owner checks its rings between arm() and block().
TEST(WakeEvent, WokenManyTimesWhileArmed_OneSleepEndsAtOnceAndTheNextLasts) {
  WakeEvent event;
  event.arm();
  for (int i = 0; i < 10; ++i) event.wake();
  event.block({}, std::chrono::seconds(20));
  constexpr Duration kSleep = std::chrono::milliseconds(20);
  const auto before = std::chrono::steady_clock::now();
  event.block({}, kSleep);
  EXPECT_GE(std::chrono::steady_clock::now() - before, kSleep);
}

}  // namespace
}  // namespace gloo_bypass
