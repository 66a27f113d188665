// How a thread that waits in a collective learns that its program wants it back, as after Ctrl-C.
//
// Thread: any.
#pragma once

#include <atomic>
#include <chrono>

#include "transport/base/time.h"

namespace gloo_bypass::collectives {

// Whether the calling thread is wanted back. May take locks that the caller of a collective does not hold.
using Interrupted = bool (*)();

inline std::atomic<Interrupted> interruptedHook{nullptr};  // of the process; nullptr: no thread ever is

// Of one wait after another, which may be several threads'.
class InterruptibleWait {
 public:
  // How long a thread waits before it asks, and from then on how often.
  static constexpr std::chrono::milliseconds kAskEvery{100};

  void begin() { next_.store(0, std::memory_order_relaxed); }

  // Called again and again while the wait lasts. True: the program wants this thread back, and the wait is to end.
  bool isInterrupted(TimePoint now) {
    const Interrupted asked = interruptedHook.load(std::memory_order_relaxed);
    if (asked == nullptr) return false;
    const auto ticks = now.time_since_epoch().count();
    const auto due = next_.load(std::memory_order_relaxed);
    if (due != 0 && ticks < due) return false;
    next_.store((now + kAskEvery).time_since_epoch().count(), std::memory_order_relaxed);
    return due != 0 && asked();
  }

 private:
  std::atomic<TimePoint::rep> next_{0};
};

}  // namespace gloo_bypass::collectives
