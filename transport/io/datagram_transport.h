// The back-end over datagrams: sessions of transport/core on a PacketPort, as MessageChannels.
//
// One a process (and port). Owns the port, the progress engine and every session; a session outlives its closed
// channel until what was sent has been acknowledged.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/base/config.h"
#include "transport/io/message_channel.h"
#include "transport/io/packet_port.h"

namespace gloo_bypass {

// Destroying the transport closes what is left, lets it drain for at most kDrainTime, then closes the port. All
// channels must be gone by then.
std::shared_ptr<Transport> makeDatagramTransport(const TransportConfig& config, std::unique_ptr<PacketPort> port);

// What an in-memory port does to datagrams; all in [0, 1].
struct LoopbackImpairment {
  double loss = 0, duplication = 0, reordering = 0, corruption = 0;
  std::uint64_t seed = 1;
};

// A port whose only peer is itself: ranks as threads of one process, and the conformance suite.
std::unique_ptr<PacketPort> makeLoopbackPort(std::size_t maxDatagramBytes, std::size_t queueDatagrams,
                                             const LoopbackImpairment& impairment = {});

}  // namespace gloo_bypass
