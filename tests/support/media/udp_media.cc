#include <chrono>

#include "tests/support/media/media.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::test {
namespace {

std::vector<Medium> udpMedia() {
  TransportConfig config;
  config.interface = "127.0.0.1";
  config.session.longPathRtt = std::chrono::seconds(60);  // a short path, however busy the machine
  return {{.name = "Udp", .makeTransport = betweenPorts({config, config}, [](const TransportConfig& c) {
                            return udp::makeUdpPort(c);
                          })}};
}

const MediaOf entry(udpMedia);

}  // namespace
}  // namespace gloo_bypass::test
