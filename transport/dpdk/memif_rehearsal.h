// One memory link of a process to itself, made and dropped before anybody knows of its port: what the system refuses (a
// sandbox a call, a limit the memory) is found out while there is still a choice of links.
#pragma once

#include <string>

#include "transport/base/status.h"
#include "transport/dpdk/memif_link.h"

namespace gloo_bypass::dpdk {

// `listener` is a socket at `path` that nobody else knows. Never waits. Errors, one line that names the call:
// kExhausted; kUnavailable: memory cannot be shared here.
Status rehearseMemifLink(const MemifShared& shared, const std::string& path, int listener);

}  // namespace gloo_bypass::dpdk
