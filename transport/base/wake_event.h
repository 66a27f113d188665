// Ends the sleep of a thread that waits for descriptors: any thread wakes it, at no cost while nobody sleeps.
//
// arm() and disarm() by the owner; block() by one thread, also while the owner disarms; wake() by any.
#pragma once

#include <poll.h>

#include <atomic>
#include <span>

#include "transport/base/doorbell.h"
#include "transport/base/time.h"

namespace gloo_bypass {

class WakeEvent {
 public:
  // Whether it can wake.
  const Status& made() const { return doorbell_.made(); }
  // Another process that rings here wakes too.
  int doorbell() const { return doorbell_.rungAt(); }

  void arm() { armed_.store(true, std::memory_order_seq_cst); }
  // The event is left to block(): taken here, it could be gone before the thread that sleeps has seen it.
  void disarm() { armed_.store(false, std::memory_order_seq_cst); }
  void wake();
  // Sleeps until a wake(), until one of `others` is ready, which their revents then say, or for `timeout`. At most
  // kOthers.
  void block(std::span<pollfd> others, Duration timeout);
  static constexpr std::size_t kOthers = 8;

 private:
  const Doorbell doorbell_;
  std::atomic<bool> armed_{false};
};

}  // namespace gloo_bypass
