// Makes the DPDK port that a configuration asks for.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

// Starts the EAL when this process has none yet. Any thread. Errors name the setting and what to do.
Result<std::unique_ptr<PacketPort>> makeDpdkPort(const TransportConfig& config);

}  // namespace gloo_bypass::dpdk
