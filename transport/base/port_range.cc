#include "transport/base/port_range.h"

#include <cstring>

#include "transport/base/whole_number.h"

namespace gloo_bypass {

std::optional<PortRange> parsePortRange(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = wholeNumber<std::uint16_t>(text.substr(0, dash));
  if (!first) return {};
  if (dash == std::string_view::npos) return PortRange{*first, *first};
  const auto last = wholeNumber<std::uint16_t>(text.substr(dash + 1));
  if (!last || *first == 0 || *last < *first) return {};
  return PortRange{*first, *last};
}

std::string toString(const PortRange& ports) {
  const std::string first = std::to_string(ports.first);
  return ports.first == ports.last ? first : first + "-" + std::to_string(ports.last);
}

std::string noPort(const PortRange& ports, const std::string& place, int error) {
  const std::string setting = "GLOO_BYPASS_UDP_PORT='" + toString(ports) + "'";
  if (error == EADDRINUSE) {
    return "no UDP port of " + setting + " is free at " + place +
           ": each rank of a host takes one: set a longer range, or 0 for any free port";
  }
  return setting + " at " + place + ": " + std::strerror(error) +
         (error == EACCES ? ": set ports from 1024 on, or 0 for any free one" : "");
}

}  // namespace gloo_bypass
