// Ends the sleep of a thread that polls descriptors. Any thread wakes it; a wake costs nothing while no thread sleeps.
//
// Threads: the owner calls arm() and disarm(); one thread calls block(), even while the owner disarms; any calls
// wake().
#pragma once

#include <poll.h>

#include <atomic>
#include <span>

#include "transport/base/doorbell.h"
#include "transport/base/time.h"

namespace gloo_bypass {

class WakeEvent {
 public:
  // Whether the wake-up works.
  const Status& made() const { return doorbell_.made(); }
  // Another process that rings here also ends the sleep.
  int doorbell() const { return doorbell_.rungAt(); }

  void arm() { armed_.store(true, std::memory_order_seq_cst); }
  // Only block() clears the event: cleared here, it could be gone before the sleeping thread has seen it.
  void disarm() { armed_.store(false, std::memory_order_seq_cst); }
  void wake();
  // Sleeps until a wake(), until one of `others` (at most kOthers) is ready, as their revents then show, or for
  // `timeout`.
  void block(std::span<pollfd> others, Duration timeout);
  static constexpr std::size_t kOthers = 8;

 private:
  const Doorbell doorbell_;
  std::atomic<bool> armed_{false};
};

}  // namespace gloo_bypass
