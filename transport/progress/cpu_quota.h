// How much processor time control groups grant this process. A quota does not show in the affinity mask: a process with
// more busy threads than it grants is stopped for the rest of each period. Any thread; some tens of microseconds.
#pragma once

#include <limits>
#include <string>
#include <string_view>

namespace gloo_bypass {

inline constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// In cores: the least that the process's own group and the groups above it grant, as far as `mount` shows them;
// kNoQuota where none has a limit. `mount` is where the hierarchies are mounted, usually /sys/fs/cgroup: of version 2
// itself, of version 1 a folder `cpu` in it. `groups` is the text of /proc/self/cgroup. Sources: cgroups(7),
// Documentation/admin-guide/cgroup-v2.rst ("cpu.max"), Documentation/scheduler/sched-bwc.rst ("cpu.cfs_quota_us").
double cpuQuota(const std::string& mount, std::string_view groups);

// The same of this process.
double cpuQuota();

}  // namespace gloo_bypass
