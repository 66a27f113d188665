// In place of a port of memory links, where this process cannot share memory: reaches nobody, so that each peer gets a
// link over the network; tells peers why, through its address; and says on stderr why, when it meets a rank of its own
// host.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

// Memory links, or, where the system has none to give and nobody chose it, what stands in for them. `doorbell`: ends
// the sleep of the port or transport beside it. Errors: makeMemifPort's others.
Result<std::unique_ptr<PacketPort>> makeMemoryPort(const TransportConfig& config, int doorbell);

}  // namespace gloo_bypass::dpdk
