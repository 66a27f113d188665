// Bytes that a rank really sent and received, as the kernel or the plug-in counts them; never computed from a formula.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace gloo_bypass::trainer {

struct ByteCounts {
  uint64_t sent = 0;
  uint64_t received = 0;
};

class ByteCounter {
 public:
  virtual ~ByteCounter() = default;
  // Since the connections were made; nothing if they cannot be read.
  virtual std::optional<ByteCounts> read() = 0;
  // Where the numbers come from, as metrics name it.
  virtual const char* source() const = 0;
};

// The process's TCP sockets now open; taken before the process group connects, so that the store's are left out.
std::set<int> openTcpSockets();

// Payload bytes by the kernel's TCP_INFO, over the established sockets that are not in `before`; retransmitted
// bytes count as sent. Source "tcp_info".
std::unique_ptr<ByteCounter> makeTcpCounter(const std::set<int>& before);

// What the transport plug-in counts, through its exported gloo_bypass_stats_json(); source
// "gloo_bypass_stats_json", or "none" when no loaded library exports it.
std::unique_ptr<ByteCounter> makePluginCounter();

// The counters of all its transports, as the plug-in writes them; nothing when no loaded library exports them.
std::optional<std::string> pluginCounters();

}  // namespace gloo_bypass::trainer
