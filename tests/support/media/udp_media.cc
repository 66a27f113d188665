#include <chrono>

#include "tests/support/media/media.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::test {
namespace {

std::vector<Medium> udpMedia() {
  const auto makePort = [](const TransportConfig& c) { return udp::makeUdpPort(c); };
  TransportConfig one;
  one.interface = "127.0.0.1";
  one.session.longPathRtt = std::chrono::seconds(60);  // a short path, however busy the machine
  TransportConfig rails = one;
  rails.interface = "127.0.0.1,127.0.0.2,127.0.0.3";
  TransportConfig longRails = rails;
  longRails.session.longPathRtt = Duration{0};
  TransportConfig sealed = one;
  sealed.security = Security::kEncrypt;
  return {{.name = "Udp", .makeTransport = betweenPorts({one, one}, makePort)},
          {.name = "UdpRails", .makeTransport = betweenPorts({rails, rails}, makePort)},
          {.name = "UdpLongRails",
           .makeTransport = betweenPorts({longRails, longRails}, makePort),
           .largeSendWaits = false,
           .variant = true},
          {.name = "UdpSealed", .makeTransport = betweenPorts({sealed, sealed}, makePort), .variant = true}};
}

const MediaOf entry(udpMedia);

}  // namespace
}  // namespace gloo_bypass::test
