// EAL's interrupt thread: handlers of descriptors, the drivers' among them, and alarms run there, one after the other.
#pragma once

#include <functional>

#include "transport/base/time.h"

namespace gloo_bypass::dpdk {

// Its handlers take microseconds: longer than a machine with many ranks a core keeps a thread from running.
inline constexpr Duration kInterruptThreadLimit = std::chrono::seconds(5);

// Does `work` there, so that no handler runs meanwhile, and waits for it. False: not done within `limit`. Then it is
// done whenever that thread comes to it, so `work` must own all that it uses.
//
// Any thread but that one, once the EAL runs.
[[nodiscard]] bool betweenInterrupts(std::function<void()> work, Duration limit = kInterruptThreadLimit);

// Work that betweenInterrupts() no longer waits for is still to be done.
bool interruptsOverdue();

}  // namespace gloo_bypass::dpdk
