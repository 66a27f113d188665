// Which transports would work for this process, here and with this environment.
//
// Each is really made, with the settings and the address that PyTorch's process group would use: in a forked child, so that this
// process starts no DPDK and opens no RDMA device, and stays free to fork. One that this process (or the one it was forked
// from) has already begun to use is asked for in the process itself, since it alone knows.
// Nothing stays behind: no process, no file, no folder.
//
// Thread: any. Time: usually a fraction of a second, at most kAvailabilityBound for each transport.
#pragma once

#include <chrono>
#include <string>

namespace gloo_bypass {

inline constexpr std::chrono::seconds kAvailabilityBound{60};  // an emulated machine needs a third of it

// {"TCP": {"available": true, "device": "what it would use", "reason": ""}, "DPDK": ..., "RDMA": ...}; not available: `device` is
// empty, and `reason` one line that says what is missing and what to do.
std::string availabilityJson();

}  // namespace gloo_bypass
