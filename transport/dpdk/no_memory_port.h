// Replaces the port of memory links if this process cannot share memory. It reaches no one, so that each peer gets a
// link over the network. Its address tells peers why, and when it meets a rank of its own host it prints the reason to
// stderr.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

// Memory links; or a NoMemoryPort if the system refuses them and the user did not ask for them. `doorbell`: ends the
// sleep of the port or transport beside it. Errors: makeMemifPort's others.
Result<std::unique_ptr<PacketPort>> makeMemoryPort(const TransportConfig& config, int doorbell);

}  // namespace gloo_bypass::dpdk
