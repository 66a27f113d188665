// Media: the transports of tests that run over every back-end. Each back-end has one file that makes its media; if the
// build lacks the back-end, Meson leaves that file out and the list is shorter.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/channel/message_channel.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::test {

struct Medium {
  std::string name;
  // The transport of the next rank; all transports of one medium reach each other. Two calls may return the same one.
  // Any thread; throws on failure.
  std::function<std::shared_ptr<Transport>()> makeTransport;
  // A large send completes once the peer has posted its receive, not before.
  bool largeSendWaits = true;
  // The same back-end with other settings: for suites that run all variants.
  bool variant = false;
};

using MakeMedia = std::vector<Medium> (*)();

// A variable of this type at namespace scope registers its file's media: `const MediaOf entry(dpdkMedia);`
struct MediaOf {
  explicit MediaOf(MakeMedia make);
};

// The media of all back-ends in this build; call it in main() or later.
std::vector<Medium> backEndMedia();

// Ranks take turns between as many transports as there are configurations, as if each were a separate process. A
// transport lives while it has an owner.
std::function<std::shared_ptr<Transport>()> inTurn(
    const std::vector<TransportConfig>& configs,
    const std::function<Result<std::shared_ptr<Transport>>(const TransportConfig&)>& make);
// The same over ports: two ranks connect over the link between their ports, or over a port's link to itself.
std::function<std::shared_ptr<Transport>()> betweenPorts(
    const std::vector<TransportConfig>& configs,
    const std::function<Result<std::unique_ptr<PacketPort>>(const TransportConfig&)>& makePort);

}  // namespace gloo_bypass::test
