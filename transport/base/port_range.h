// UDP ports that a process may take. A firewall lets few ports pass, and each rank of a host needs its own.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gloo_bypass {

struct PortRange {
  std::uint16_t first = 0, last = 0;  // both inclusive; 0 and 0: any free port
};

// "0", "47777" or "47777-47800"; nullopt for other text.
std::optional<PortRange> parsePortRange(std::string_view text);
std::string toString(const PortRange& ports);

// Why no port of `ports` could be taken at `place` ("10.0.0.2 on eth0"), and what to do. One line.
std::string noPort(const PortRange& ports, const std::string& place, int error);

// Calls `bind` with one port after the other until one is free; `bind` returns 0 or an errno. Returns the last result.
template <typename Bind>
int bindFirstFree(const PortRange& ports, Bind bind) {
  for (std::uint32_t port = ports.first;; ++port) {
    const int error = bind(static_cast<std::uint16_t>(port));
    if (error != EADDRINUSE || port >= ports.last) return error;
  }
}

}  // namespace gloo_bypass
