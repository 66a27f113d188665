// What the kernel tells of this thread's cores: how long it has been kept waiting for one, and whether one is idle.
// Any thread, of itself. Each call takes some microseconds; coreSeemsIdle() tens of them on hundreds of cores.
#pragma once

#include "transport/base/time.h"

namespace gloo_bypass {

// For how long this thread has been ready to run without a core, in all (Documentation/scheduler/sched-stats.rst); 0
// where the kernel does not count.
Duration readyTime();

// How many threads of the machine are running or ready, in the text of /proc/loadavg (proc_loadavg(5)); 0 where nobody
// counts them, as in gVisor.
int runnableThreads(const char* loadavg);

// Whether no more of them are than this thread may use cores: then one of these is idle, if this thread shares another.
// False where it cannot be told.
bool coreSeemsIdle();

}  // namespace gloo_bypass
