#include "transport/udp/back_end.h"

#include <fmt/format.h>

#include "transport/datagram/datagram_transport.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::udp {
namespace {

Result<std::shared_ptr<Transport>> make(const TransportConfig& config) {
  auto port = makeUdpPort(config);
  if (!port) return port.error();
  return makeDatagramTransport(config, std::move(port).value());
}

std::vector<std::string> ignoredSettings(const TransportConfig& config) {
  std::vector<std::string> lines;
  if (config.telemetry) {
    lines.emplace_back(
        "GLOO_BYPASS_TELEMETRY='on' does nothing for UDP, which runs without DPDK: use GLOO_BYPASS_METRICS");
  }
  if (!config.capture.empty()) {
    lines.push_back(fmt::format("GLOO_BYPASS_CAPTURE='{}' does nothing for UDP, whose packets the kernel makes: use "
                                "tcpdump on its interface",
                                config.capture));
  }
  return lines;
}

}  // namespace

BackEnd backEnd() {
  return {.name = "UDP",
          .package = "",
          .make = make,
          // Without a name the route to MASTER_ADDR tells; a host name may lead to the loopback (gloo#335).
          .interfaceRule = [](const TransportConfig&) { return InterfaceRule::kSeveral; },
          .ignoredSettings = ignoredSettings};
}

}  // namespace gloo_bypass::udp
