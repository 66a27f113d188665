// Makes and drops one memory link of a process to itself, before others know its port. So it finds out what the system
// refuses (a sandbox a call, a limit the memory) while there is still a choice of links.
#pragma once

#include <string>

#include "transport/base/status.h"
#include "transport/dpdk/memif_link.h"

namespace gloo_bypass::dpdk {

// `listener` is a socket at `path` that no one else knows. Never blocks. Errors, one line that names the call:
// kExhausted; kUnavailable: memory cannot be shared here.
Status rehearseMemifLink(const MemifShared& shared, const std::string& path, int listener);

}  // namespace gloo_bypass::dpdk
