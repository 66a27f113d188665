// Packet port over the kernel's UDP sockets: no privilege, no DPDK, IPv4 or IPv6, one socket for all peers, ranks of
// one host included; of several interfaces one each (udp_rail.h), which lead to the peers' by number.
//
// transmit() puts datagrams into a batch, wakePeers() sends it: a session's burst is one segmented send
// (send_batch.h). What the socket does not take stays in the batch, and a full batch is back-pressure. receive() hands
// up what one call brought, datagram by datagram.
//
// A link goes down when the network says that the peer's port is closed, quoting a session of ours; or when nothing
// could be sent on it for kGiveUpAfter and the port's interface is deleted. Whatever else keeps datagrams from leaving
// may pass (an interface without carrier, a route or an address that is gone): sessions wait for it as long as they
// wait for their peers, and their error says what it was. A datagram that is too large is lost, and the sessions are
// told.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"
#include "transport/udp/udp_socket.h"

namespace gloo_bypass::udp {

inline constexpr Duration kGiveUpAfter = std::chrono::seconds(3);

// Looks at `interface` and `masterAddress` (network/local_address.h), `udpPorts` and `mtu`. The error is one line.
Result<std::unique_ptr<PacketPort>> makeUdpPort(const TransportConfig& config,
                                                Offload offload = Offload::kWhereThereIs);

}  // namespace gloo_bypass::udp
