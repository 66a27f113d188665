// Packet port over the kernel's UDP sockets: no privilege, no DPDK, IPv4 or IPv6, one socket for all peers, ranks of
// one host included.
//
// transmit() copies datagrams into a batch, wakePeers() sends it: a session's burst is one segmented send
// (send_batch.h). What the socket does not take stays in the batch, and a full batch is back-pressure. receive() hands
// up what one call brought, datagram by datagram.
//
// A link goes down when the network says that the peer's port is closed, quoting a session of ours; when nothing could
// be sent on it for kGiveUpAfter (interface deleted, route gone, address changed); or when the MTU of the way no longer
// carries what it carried before.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"
#include "transport/udp/udp_socket.h"

namespace gloo_bypass::udp {

inline constexpr Duration kGiveUpAfter = std::chrono::seconds(3);

// Looks at `interface` and `masterAddress` (local_address.h), `udpPorts` and `mtu`. The error is one line.
Result<std::unique_ptr<PacketPort>> makeUdpPort(const TransportConfig& config,
                                                Offload offload = Offload::kWhereThereIs);

}  // namespace gloo_bypass::udp
