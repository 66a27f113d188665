// What this process's groups have moved through the memory of their hosts, as one more transport of the process: so its
// counters stand in statistics, metrics and gloo_bypass.stats() beside the others', under the name MEMORY. It opens no
// channels.
//
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/base/status.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::collectives {

// Of all groups of the process. Messages are operations; bytes are those of the vectors, not of the copies.
struct MemoryTraffic {
  std::atomic<std::uint64_t> operations{0}, bytesSent{0}, bytesReceived{0};
};
MemoryTraffic& memoryTraffic();

// Makes the process's one, with the settings of the environment. A group holds it while it lives.
Result<std::shared_ptr<Transport>> acquireMemoryTransport();

}  // namespace gloo_bypass::collectives
