// The back-end over datagrams: sessions of transport/core on a PacketPort, as MessageChannels.
//
// One per process and port. Owns the port, the progress engine and every session; a session outlives its closed channel
// until the peer has acknowledged everything sent.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/base/config.h"
#include "transport/channel/message_channel.h"
#include "transport/datagram/packet_port.h"
#include "transport/sessions/polled_transport.h"

namespace gloo_bypass {

// `config.security` decides whether sessions seal their datagrams (transport/security); the error is about its key file
// or the cryptographic libraries. The destructor closes the remaining sessions, lets them drain for at most kDrainTime,
// then closes the port. All channels must be gone by then.
Result<std::shared_ptr<Transport>> makeDatagramTransport(const TransportConfig& config,
                                                         std::unique_ptr<PacketPort> port);
// The same without an engine, to share one with other transports.
Result<std::unique_ptr<PolledTransport>> makePolledDatagramTransport(const TransportConfig& config,
                                                                     std::unique_ptr<PacketPort> port);

}  // namespace gloo_bypass
