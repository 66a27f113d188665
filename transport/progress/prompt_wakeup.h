// Asks the scheduler to run this thread promptly after a wake-up, beside threads that compute.
//
// On Linux 6.12 and later (EEVDF) a woken thread waits until the running one has used up its slice, 3 ms or so, unless
// its own slice is shorter. A waiter that sleeps in the port therefore requests the shortest slice, and restores its
// old one when the wait is over. This changes no share of the core and needs no privilege; older kernels ignore it.
// Source: sched_setattr(2); kernel/sched/fair.c, PREEMPT_SHORT.
#pragma once

namespace gloo_bypass {

class PromptWakeup {
 public:
  // Before a sleep; a system call the first time within a Scope. The calling thread only.
  static void request() noexcept;
  // Restores what request() has changed.
  class Scope {
   public:
    Scope() = default;
    ~Scope() { restore(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  static void restore() noexcept;
};

}  // namespace gloo_bypass
