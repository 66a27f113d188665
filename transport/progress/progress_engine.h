// Decides which thread drives progress. A waiting thread polls inline. The engine's thread covers the time when no
// thread waits: it spins briefly, then blocks. An idle rank uses no core.
//
// The states of a thread in waitUntil(), and of the engine's thread:
//
//      +--------------------------1--------------------------+
//      |                                                     v
//   OUTSIDE ---2---> PASSIVE ---6---> PROMOTED ---8---> DRIVING ---3---> BLOCKED
//                    |  ^  ^ | <--7-- |                   ^  ^ <---3---    |
//                    9  |  | +--------|---------5---------+                |
//                    |  |  +----------|-----------------4------------------+
//                    v                9
//                SATISFIED <----------+
//
//   1  no thread drives, or the engine's thread does, or the driver is blocked (a newcomer will spin for a while)
//   2  a waiter drives: asleep until notified, or until its deadline
//   3  polling had no result for the spin time: asleep in the port, until something arrives or a thread wakes it. After
//      something did arrive, and if the target has patience, it rests for that long first, driving, without the mutex.
//      Where nothing has happened for 10 ms and strangers' data keep waking it, it rests for 1 ms instead of sleeping
//   4  overtaken by a newcomer; on its way out of the port until it has the mutex
//   5  out of the port, it finds that no waiter drives
//   6  the driver has left; one at a time, the longest waiting first
//   7  another began to drive before it ran
//   8  it runs and takes the driver's place
//   9  the driver, or a thread with exclusive access, saw its predicate true
//   Every state but blocked ends in outside when the wait is over: predicate true, or deadline. The engine's thread is
//   never passive: when overtaken, driving or blocked, it is outside, and its watch (driver_watch.h) says when no
//   waiter is left.
//
// Exclusive access is a mutex: at most one thread is inside poll(), an observer call or exclusive().
#pragma once

#include <functional>
#include <memory>

#include "transport/base/time.h"

namespace gloo_bypass {

// Reads the monotonic clock; no other code in transport/ does.
TimePoint monotonicNow();

// What an engine drives. Methods run with exclusive access, except block() and wake().
class Pollable {
 public:
  virtual ~Pollable() = default;
  // One round: receive, timers, transmit, observer calls. True if anything happened.
  virtual bool poll(TimePoint now) noexcept = 0;
  // Whether data arrived in the last round, and none of it was meant for anybody here: nothing has happened, and more
  // may be waiting.
  virtual bool disturbed() const noexcept { return false; }
  // Sends what operations posted under exclusive access have made ready. Called when exclusive() ends.
  virtual void flush(TimePoint now) noexcept = 0;
  // Which thread polls from now on: one that waits for an operation and has nothing better to do, or the engine's,
  // beside a program that may be about to post more.
  virtual void drivenBy(bool /*waiter*/) noexcept {}
  // The latest time at which poll() must be called although nothing arrives; kNever for no timer.
  virtual TimePoint nextDeadline() const noexcept = 0;
  // How long the driver may let data wait and collect, to save wake-ups: over a slow path each datagram alone would
  // wake the driver.
  virtual Duration patience() const noexcept { return Duration{0}; }
  virtual void armWakeup() noexcept = 0;
  virtual void disarmWakeup() noexcept = 0;
  virtual void block(Duration timeout) noexcept = 0;
  virtual void wake() noexcept = 0;
};

struct ProgressOptions {
  Duration spin = std::chrono::microseconds(200);  // polling without result before blocking, at most (spin_policy.h)
  int engineCpu = -1;                              // pin the engine thread; -1: not pinned
};

class ProgressEngine {
 public:
  // `target` must outlive the engine. Starts the engine thread.
  ProgressEngine(Pollable& target, const ProgressOptions& options);
  ~ProgressEngine();
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  // Runs `f` with exclusive access, then flushes. Any thread; not from inside an observer call or another exclusive().
  // If `f` throws, access is released and the exception passes on. In a forked child (forked_child.h) `f` runs and
  // nothing is sent; waitUntil() evaluates `pred` once.
  void exclusive(const std::function<void()>& f);

  // Drives or waits until `pred` is true or `deadline` passes; `pred` runs with exclusive access. Returns whether pred
  // became true. Any thread. `busyPoll`: never blocks while waiting (Gloo's setSync(true, true)).
  bool waitUntil(const std::function<bool()>& pred, TimePoint deadline, bool busyPoll = false);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gloo_bypass
