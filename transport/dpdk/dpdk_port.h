// Makes the DPDK port that a configuration asks for.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

// Whether a device of DPDK's, or its telemetry, is used: memory links and UDP sockets need neither, and starting the
// EAL takes longer than all else.
bool needsEal(const TransportConfig& config);

// Starts the EAL where it is needed, and this process has none yet. Any thread. Errors name the setting and what to do.
Result<std::unique_ptr<PacketPort>> makeDpdkPort(const TransportConfig& config);

}  // namespace gloo_bypass::dpdk
