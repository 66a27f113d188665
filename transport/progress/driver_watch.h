// What the engine's thread knows of the waiters that drive, without the mutex that a driver holds while it polls: a
// look that asks for it makes the driver hand over, and costs the rank's core four switches of thread where one wake-up
// has two.
//
// Looks are kFirstSleep apart at first. Where waits follow one another they move apart to kBetweenWaits, and nobody is
// told of a wait's end: a wake-up at each would cost more than the looks. Where one wait lasts they move apart to
// kWithinOneWait, and its end wakes the watch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "transport/base/time.h"

namespace gloo_bypass {

class DriverWatch {
 public:
  static constexpr Duration kFirstSleep = std::chrono::milliseconds(1);
  // Also the longest that an operation nobody waits for stands still, once kTakeOverAfter is over.
  static constexpr Duration kBetweenWaits = std::chrono::milliseconds(4);
  static constexpr Duration kWithinOneWait = std::chrono::milliseconds(64);
  // A gap between two waits that is no idleness.
  static constexpr Duration kTakeOverAfter = std::chrono::microseconds(500);

  // A waiter begins to drive, or takes over from another; the last of them has ended. With the engine's exclusive
  // access.
  void began() noexcept;
  void ended(TimePoint now) noexcept;
  bool standsStill(TimePoint now) const noexcept;

  // Engine's thread: returns once standsStill(), or after stop().
  void awaitStandstill();
  // Any thread, once and for all.
  void stop();

  // The sleep after one of `last`, in which the same driver stayed or not, and at whose end somebody drove or not.
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
  std::mutex mutex_;  // guards the two below; never held while another one is taken
  std::condition_variable condition_;
  bool told_ = false;
  bool stopped_ = false;
};

}  // namespace gloo_bypass
