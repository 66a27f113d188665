// Lets the engine's thread observe the waiters that drive, without the mutex that a driver holds while it polls. Taking
// that mutex would make the driver hand over, and cost the rank's core four thread switches where one wake-up costs
// two.
//
// Looks are kFirstSleep apart at first. While waits follow one another, the interval grows to kBetweenWaits and no one
// notifies the watch at a wait's end: a wake-up at each would cost more than the looks. While one wait lasts, the
// interval grows to kWithinOneWait, and its end wakes the watch.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/base/mutex.h"
#include "transport/base/time.h"

namespace gloo_bypass {

class DriverWatch {
 public:
  static constexpr Duration kFirstSleep = std::chrono::milliseconds(1);
  // Also the longest time that an operation without a waiter stands still, once kTakeOverAfter is over.
  static constexpr Duration kBetweenWaits = std::chrono::milliseconds(4);
  static constexpr Duration kWithinOneWait = std::chrono::milliseconds(64);
  // A shorter gap between two waits does not count as idle.
  static constexpr Duration kTakeOverAfter = std::chrono::microseconds(500);

  // A waiter begins to drive, or takes over from another; the last of them has ended. With exclusive access.
  void began() noexcept;
  void ended(TimePoint now) noexcept;
  bool standsStill(TimePoint now) const noexcept;

  // Engine's thread: returns once standsStill(), or after stop().
  void awaitStandstill();
  // Any thread, once and for all.
  void stop();

  // The next sleep, after one of length `last`. `anotherWaitBegan`: during that sleep; `driving`: a waiter drove at its
  // end.
  static Duration nextSleep(Duration last, bool anotherWaitBegan, bool driving) noexcept;
  // How often awaitStandstill() has looked.
  std::uint64_t looks() const noexcept { return looks_.load(std::memory_order_relaxed); }

 private:
  bool sleep(Duration interval, std::uint64_t seen);

  std::atomic<bool> driving_{false};
  std::atomic<std::uint64_t> began_{0};
  std::atomic<Duration::rep> lastEnded_{0};  // since the clock's epoch
  std::atomic<bool> tellOfEnd_{false};       // the watch sleeps for longer than kBetweenWaits
  std::atomic<std::uint64_t> looks_{0};
  Mutex mutex_;  // never held while another one is taken
  Condition condition_;
  bool told_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
  bool stopped_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
};

}  // namespace gloo_bypass
