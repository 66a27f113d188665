// What the kernel reports about this thread's cores: how long it has waited for one, and whether one is idle. Any
// thread, about itself. Each call takes some microseconds; coreSeemsIdle() tens of them on hundreds of cores.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/time.h"

namespace gloo_bypass {

// How long in total this thread has been ready to run without a core (Documentation/scheduler/sched-stats.rst); 0 where
// the kernel does not count.
Duration readyTime();

// How many threads of the machine run or are ready, from the text of /proc/loadavg (proc_loadavg(5)); 0 where no one
// counts them, as in gVisor.
int runnableThreads(const char* loadavg);

// Whether at most as many threads are runnable as this thread may use cores: if this thread shares a core, another is
// idle then. False if unknown.
bool coreSeemsIdle();

// The cores that this process may use by its affinity mask: bit c % 64 of number c / 64; empty where it is not known.
std::vector<std::uint64_t> coreSet();

// How many cores this process may use, at least 1: by its affinity mask, and by the quota of its control
// groups, rounded up.
int usableCores();

}  // namespace gloo_bypass
