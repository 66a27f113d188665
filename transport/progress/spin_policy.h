// Whether a waiter should go on polling for a while before it blocks. Pure; one owner.
//
// Polling wins what a sleep and a wake-up cost, tens of microseconds in a virtual machine, if the next event is nearer
// than that; else it takes a core from whoever computes beside it and wins nothing. Over a slow link events are hundreds
// of microseconds apart, and a waiter that polled between them would never sleep. What the last waits showed decides, as
// in the kernel's halt polling (Documentation/virt/kvm/halt-polling.rst).
#pragma once

#include <algorithm>

#include "transport/base/time.h"

namespace gloo_bypass {

class SpinPolicy {
 public:
  // A wait that is over sooner was worth polling for: about what is lost by sleeping.
  static constexpr Duration kWorth = std::chrono::microseconds(100);
  // Polling goes on while at least two of three waits are worth it. One long wait, for a peer that computes, does not end it.
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

}  // namespace gloo_bypass
