// Which transports would work for this process, on this machine and with this environment.
//
// It really makes each transport, with the settings and the address that PyTorch's process group would use. It does so
// in a forked child, so that this process starts no DPDK, opens no RDMA device, and stays free to fork. A transport
// that this process (or an ancestor by fork) already uses can only be asked for in the process itself; so can DPDK
// after a device that failed, since the EAL may run since then. No process and no file stays behind, and no folder but
// DPDK's own empty one: dpdk/gloo-bypass in $XDG_RUNTIME_DIR or /tmp, for root in /var/run. It stays, since a rank that
// starts at that moment may have found it there.
//
// Thread: any. Time: usually a fraction of a second, at most kAvailabilityBound for each transport.
#pragma once

#include <chrono>
#include <string>

namespace gloo_bypass {

inline constexpr std::chrono::seconds kAvailabilityBound{60};  // an emulated machine needs a third of it

// {"TCP": {"available": true, "device": "what it would use", "reason": ""}, "DPDK": ..., "RDMA": ...}; if not
// available, `device` is empty, and `reason` is one line: what is missing and what to do.
std::string availabilityJson();

}  // namespace gloo_bypass
