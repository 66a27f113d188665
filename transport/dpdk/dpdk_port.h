// Makes the DPDK port for a configuration.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

// Whether the configuration uses a DPDK device or DPDK's telemetry. Memory links and UDP sockets need neither, and the
// EAL's start takes longer than all else.
bool needsEal(const TransportConfig& config);

// Starts the EAL if it is needed and this process has none yet. Any thread. Errors name the setting and what to do.
Result<std::unique_ptr<PacketPort>> makeDpdkPort(const TransportConfig& config);

}  // namespace gloo_bypass::dpdk
