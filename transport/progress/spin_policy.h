// Whether a waiter should go on polling for a while before it blocks. Two things decide: whether waits are short, and
// whether the core is free. Pure; one owner.
//
// Polling saves a sleep and a wake-up, tens of microseconds in a virtual machine, if the next event is nearer than
// that; otherwise it only takes the core from threads that compute. Over a slow link events are hundreds of
// microseconds apart, and a waiter that polled between them would never sleep. The last waits decide, as in the
// kernel's halt polling (Documentation/virt/kvm/halt-polling.rst).
#pragma once

#include <algorithm>
#include <utility>

#include "transport/base/time.h"

namespace gloo_bypass {

class SpinPolicy {
 public:
  // A shorter wait was worth polling for: a sleep costs about this much.
  static constexpr Duration kWorth = std::chrono::microseconds(100);
  // Polling continues while at least two of three waits are worth it. One long wait, for a peer that computes, does not
  // end it.
  // end it.
  static constexpr int kMost = 16, kEnough = 4;
  // While polling does not pay, a wait tries it again now and then; after each failure, half as often.
  static constexpr int kTryFirst = 2, kTryLast = 64;

  explicit SpinPolicy(Duration longest) : longest_(longest) {}

  // How long to poll after the last event before blocking.
  Duration window() const {
    if (score_ >= kEnough) return longest_;
    return untilTry_ == 0 ? std::min(longest_, kWorth) : Duration{0};
  }
  // Something happened, `idle` after the previous event or the start of the wait.
  void onEvent(Duration idle) {
    if (idle <= kWorth) {
      score_ = std::min(score_ + 1, kMost);
      if (score_ > 1) untilTry_ = 0;
      if (score_ >= kEnough) tryAfter_ = kTryFirst;
    } else if (window() > Duration{0}) {
      score_ = std::max(score_ - 2, 0);
      untilTry_ = tryAfter_;
      tryAfter_ = std::min(2 * tryAfter_, kTryLast);
    } else if (untilTry_ > 0) {
      --untilTry_;  // how long it would have been is unknown: a sleep's wake-up comes late
    }
  }

 private:
  const Duration longest_;
  int score_ = kMost;
  int tryAfter_ = kTryFirst, untilTry_ = 0;
};

// Whether other threads need this core: with more ranks than cores each empty poll keeps a rank that has work from
// running.
//
// The sign is the time that a thread was ready to run and had no core, if it is long: our own engine's thread takes
// some microseconds each millisecond or so. It must also last. If two ranks meet on one core and another core is idle,
// the kernel separates them if both go on polling, within some of its ticks (1 to 10 ms each), and never if they sleep
// in turn. So it must last longer while a core seems idle, but not for ever, as the kernel may not be free to separate
// them. Then waiters sleep for a while, longer each time that the next try shows the same.
class CoreShare {
 public:
  static constexpr Duration kWindow = std::chrono::milliseconds(4);
  // A window counts if this thread spent at least this share of it ready, without a core.
  static constexpr int kMuch = 8;
  // This many in a row suffice while a core seems idle; while all are in use each counts as kWanted, so 3 suffice.
  static constexpr int kEnough = 24, kWanted = 8;
  // A row ends at a window in which the core was ours, or at a pause of this length.
  static constexpr Duration kPause = std::chrono::milliseconds(100);
  static constexpr Duration kShortest = std::chrono::milliseconds(32), kLongest = std::chrono::milliseconds(512);
  // A row that begins this soon after waiters slept shows the same again.
  static constexpr Duration kAgain = 9 * kWindow;

  bool shared(TimePoint now) const { return now < until_; }
  // An earlier look shows nothing.
  bool worthALook(TimePoint now) const { return now - lookedAt_ >= kWindow && !shared(now); }
  // In the last `elapsed` this thread was ready for `ready` without running. A time so long that it was spent on other
  // things teaches nothing. `coreIdle()`: whether one of this thread's cores seems idle; called only if it matters.
  template <typename CoreIdle>
  void onLook(TimePoint now, Duration elapsed, Duration ready, CoreIdle coreIdle) {
    const Duration pause = now - std::exchange(lookedAt_, now);
    if (pause >= kPause) counted_ = 0;
    if (elapsed >= 2 * kWindow) return;
    if (ready * kMuch < elapsed) {
      counted_ = 0;
      return;
    }
    if (counted_ == 0) began_ = now;
    counted_ += coreIdle() ? 1 : kWanted;
    if (counted_ < kEnough) return;
    span_ = began_ - until_ < kAgain ? std::min(2 * span_, Duration(kLongest)) : Duration(kShortest);
    until_ = now + span_;
    counted_ = 0;
  }

 private:
  TimePoint lookedAt_{};
  TimePoint began_{};  // the row
  int counted_ = 0;    // of it
  Duration span_ = kShortest;
  TimePoint until_{};
};

}  // namespace gloo_bypass
