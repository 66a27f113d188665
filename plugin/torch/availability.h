// Which transports would work for this process, here and with this environment.
//
// Each is really made, with the settings and the address that PyTorch's process group would use: in a forked child, so
// that this process starts no DPDK and opens no RDMA device, and stays free to fork. One that this process (or the one
// it was forked from) uses already is asked for in the process itself, since it alone knows; and so is DPDK after a
// device that failed, since it may run since then. No process and no file stays behind, and no folder but DPDK's own
// empty one: dpdk/gloo-bypass in $XDG_RUNTIME_DIR or /tmp, for root in /var/run. It is left, since a rank that starts
// at that moment has found it there.
//
// Thread: any. Time: usually a fraction of a second, at most kAvailabilityBound for each transport.
#pragma once

#include <chrono>
#include <string>

namespace gloo_bypass {

inline constexpr std::chrono::seconds kAvailabilityBound{60};  // an emulated machine needs a third of it

// {"TCP": {"available": true, "device": "what it would use", "reason": ""}, "DPDK": ..., "RDMA": ...}; not available:
// `device` is empty, and `reason` one line that says what is missing and what to do.
std::string availabilityJson();

}  // namespace gloo_bypass
