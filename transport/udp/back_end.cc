#include "transport/udp/back_end.h"

#include "transport/channel/ignored_settings.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/udp/settings.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::udp {
namespace {

Result<std::shared_ptr<Transport>> make(const TransportConfig& config) {
  auto port = makeUdpPort(config);
  if (!port) return port.error();
  return makeDatagramTransport(config, std::move(port).value());
}

}  // namespace

BackEnd backEnd() {
  return {.name = "UDP",
          .package = "",
          .settings = settings,
          .checkSettings = checkSettings,
          .make = make,
          // Without a name the route to MASTER_ADDR decides; a host name may lead to the loopback (gloo#335).
          .interfaceRule = [](const TransportConfig&) { return InterfaceRule::kSeveral; },
          .ignoredSettings = [](const TransportConfig& c) { return ignoredWithoutDpdk(c, "UDP", "the kernel"); }};
}

}  // namespace gloo_bypass::udp
