// Whether a waiter should go on polling for a while before it blocks: whether waits are short, and whether the core is
// free. Pure; one owner.
//
// Polling wins what a sleep and a wake-up cost, tens of microseconds in a virtual machine, if the next event is nearer
// than that; else it takes a core from whoever computes beside it and wins nothing. Over a slow link events are
// hundreds of microseconds apart, and a waiter that polled between them would never sleep. What the last waits showed
// decides, as in the kernel's halt polling (Documentation/virt/kvm/halt-polling.rst).
#pragma once

#include <algorithm>
#include <utility>

#include "transport/base/time.h"

namespace gloo_bypass {

class SpinPolicy {
 public:
  // A wait that is over sooner was worth polling for: about what is lost by sleeping.
  static constexpr Duration kWorth = std::chrono::microseconds(100);
  // Polling goes on while at least two of three waits are worth it. One long wait, for a peer that computes, does not
  // end it.
  static constexpr int kMost = 16, kEnough = 4;
  // While it does not pay, a wait tries again now and then; twice as seldom each time that it was in vain.
  static constexpr int kTryFirst = 2, kTryLast = 64;

  explicit SpinPolicy(Duration longest) : longest_(longest) {}

  // How long to poll from the last event on before blocking.
  Duration window() const {
    if (score_ >= kEnough) return longest_;
    return untilTry_ == 0 ? std::min(longest_, kWorth) : Duration{0};
  }
  // Something happened, `idle` after what had happened before it or after the wait began.
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
      --untilTry_;  // nobody knows how long it would have been: a sleep's wake-up comes late
    }
  }

 private:
  const Duration longest_;
  int score_ = kMost;
  int tryAfter_ = kTryFirst, untilTry_ = 0;
};

// Whether others need this core: with more ranks than cores each empty poll keeps a rank that has work from running.
//
// What shows it is the time that a thread was ready to run and had no core, and much of it: our own engine's thread
// takes some microseconds each millisecond or so. It must last, too. Where two ranks have met on one core and another
// one is idle, the kernel parts them if both go on polling, within some of its ticks (1 to 10 ms each), and never if
// they sleep in turn: so it must last longer while a core seems idle, but not for ever, as the kernel may not be free
// to part them. Then waiters sleep for a while, longer each time that the next try shows the same.
class CoreShare {
 public:
  static constexpr Duration kWindow = std::chrono::milliseconds(4);
  // A window counts where this share of it was spent ready, without a core.
  static constexpr int kMuch = 8;
  // So many in a row are enough while a core seems idle; while all are wanted each counts as kWanted, so 3 are.
  static constexpr int kEnough = 24, kWanted = 8;
  // In a row: no window in between in which the core was ours, nor a pause of this length.
  static constexpr Duration kPause = std::chrono::milliseconds(100);
  static constexpr Duration kShortest = std::chrono::milliseconds(32), kLongest = std::chrono::milliseconds(512);
  // A row that begins so soon after waiters slept shows the same again.
  static constexpr Duration kAgain = 9 * kWindow;

  bool shared(TimePoint now) const { return now < until_; }
  // Looking any sooner tells nothing.
  bool worthALook(TimePoint now) const { return now - lookedAt_ >= kWindow && !shared(now); }
  // Of the last `elapsed` this thread was ready for `ready` without running. Nothing is learnt from a time so long that
  // it was spent on other things. `coreIdle()`: whether one of the cores that it may use seems idle; asked if it
  // matters.
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
