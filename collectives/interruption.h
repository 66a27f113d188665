// How a thread that waits in a collective learns that its program wants it back, as after Ctrl-C.
//
// Thread: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {

// Whether the calling thread is wanted back. May take locks that the caller of a collective does not hold.
using Interrupted = bool (*)();

inline std::atomic<Interrupted> interruptedHook{nullptr};  // of the process; nullptr: no thread ever is

// For a group that is not made.
inline Error interrupted() {
  return {ErrorScope::kSession, ErrorCode::kCancelled, "the program has ended its wait for the other ranks"};
}

// Of one wait after another. Of several threads that wait for the same only the one that began asks: it is the
// program's.
class InterruptibleWait {
 public:
  // How long a thread waits before it asks, and from then on how often.
  static constexpr std::chrono::milliseconds kAskEvery{100};

  InterruptibleWait() { begin(); }
  // Before the other threads wait.
  void begin() {
    waited_ = false;
    owner_ = std::this_thread::get_id();
  }

  // Called again and again while the wait lasts. True: the program wants this thread back, and the wait is to end.
  bool isInterrupted(TimePoint now) {
    const Interrupted asked = interruptedHook.load(std::memory_order_relaxed);
    if (asked == nullptr || owner_ != std::this_thread::get_id()) return false;
    if (waited_ && now < next_) return false;
    next_ = now + kAskEvery;
    return std::exchange(waited_, true) && asked();
  }

 private:
  bool waited_ = false;
  TimePoint next_{};
  std::thread::id owner_;
};

// Drives until `ended` is true; false: the deadline has passed. If the program wants this thread back, it calls
// `onInterrupted`, which sees to it that `ended` becomes true.
inline bool waitInterruptibly(ProgressEngine& progress, const std::function<bool()>& ended, TimePoint deadline,
                              const std::function<void()>& onInterrupted) {
  InterruptibleWait wait;
  for (TimePoint now = monotonicNow();; now = monotonicNow()) {
    if (wait.isInterrupted(now)) onInterrupted();
    const TimePoint until = std::min<TimePoint>(deadline, now + InterruptibleWait::kAskEvery);
    if (progress.waitUntil(ended, until)) return true;
    if (until == deadline) return false;
  }
}

}  // namespace gloo_bypass::collectives
