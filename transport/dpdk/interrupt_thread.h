// The EAL's interrupt thread. Descriptor handlers (also the drivers') and alarms run there, one after the other.
#pragma once

#include <functional>

#include "transport/base/time.h"

namespace gloo_bypass::dpdk {

// Its handlers take microseconds. The limit exceeds the time for which a machine with many ranks a core delays a
// thread.
inline constexpr Duration kInterruptThreadLimit = std::chrono::seconds(5);

// Runs `work` on that thread, so that no handler runs meanwhile, and waits for it. False: not done within `limit`. The
// thread then runs it later, so `work` must own everything it uses.
//
// Call from any other thread, once the EAL runs.
[[nodiscard]] bool betweenInterrupts(std::function<void()> work, Duration limit = kInterruptThreadLimit);

// Whether work that betweenInterrupts() no longer waits for is still to run.
bool interruptsOverdue();

}  // namespace gloo_bypass::dpdk
