// Packet port over the kernel's UDP sockets: no privilege, no DPDK, IPv4 or IPv6. One socket serves all peers, ranks of
// the same host included. With several interfaces there is one socket (rail, udp_rail.h) for each; rail n leads to the
// peers' rail n.
//
// transmit() puts datagrams into a batch, wakePeers() sends it: a session's burst is one segmented send (send_batch.h).
// What the socket does not accept stays in the batch, and a full batch is back-pressure. receive() hands up one call's
// datagrams one by one.
//
// The kernel drops what does not come from a peer (peer_filter.h).
//
// A link goes down in two cases: the network reports, quoting a session of ours, that the peer's port is closed, and
// the port's user believes it (PacketSink::onPortUnreachable); or sending has failed for kGiveUpAfter and the port's
// interface is deleted. Other obstacles may pass (an interface without carrier, a missing route or address): sessions
// wait for them as long as they wait for their peers, and their error names the obstacle. A datagram that is too large
// is lost, and the port informs the sessions.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"
#include "transport/udp/udp_socket.h"

namespace gloo_bypass::udp {

inline constexpr Duration kGiveUpAfter = std::chrono::seconds(3);

// Uses `interface` and `masterAddress` (transport/network/local_address.h), `udpPorts` and `mtu`. Errors are one line.
Result<std::unique_ptr<PacketPort>> makeUdpPort(const TransportConfig& config,
                                                Offload offload = Offload::kWhereThereIs);

}  // namespace gloo_bypass::udp
