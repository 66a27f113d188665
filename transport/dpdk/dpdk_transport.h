// Makes the transport for a configuration: sessions on a DPDK port, or memory links beside RDMA.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/channel/message_channel.h"
#include "transport/sessions/polled_transport.h"

namespace gloo_bypass::dpdk {

// Starts the EAL if it is needed and this process has none yet. Any thread. Errors name the setting and what to do.
Result<std::shared_ptr<Transport>> makeDpdkTransport(const TransportConfig& config);

// Memory links within a host, `network` between hosts. The memory links are a transport without an engine, with a
// doorbell().
Result<std::shared_ptr<Transport>> makeMemoryBeside(const TransportConfig& config,
                                                    std::unique_ptr<PolledTransport> network);

}  // namespace gloo_bypass::dpdk
