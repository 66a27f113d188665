#include "transport/channel/ignored_settings.h"

#include <fmt/format.h>

namespace gloo_bypass {

std::vector<std::string> ignoredWithoutDpdk(const TransportConfig& config, const char* name, const char* maker) {
  std::vector<std::string> lines;
  if (config.telemetry) {
    lines.push_back(fmt::format(
        "GLOO_BYPASS_TELEMETRY='on' does nothing for {}, which runs without DPDK: use GLOO_BYPASS_METRICS", name));
  }
  if (!config.capture.empty()) {
    lines.push_back(
        fmt::format("GLOO_BYPASS_CAPTURE='{}' does nothing for {}, whose frames {} makes: use tcpdump on its interface",
                    config.capture, name, maker));
  }
  return lines;
}

}  // namespace gloo_bypass
