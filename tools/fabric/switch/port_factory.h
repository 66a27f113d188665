// Makes the ports that a description asks for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/fabric/switch/fabric_port.h"
#include "transport/base/status.h"

namespace gloo_bypass::fabric {

// One for each host, in their order. Starts DPDK where an interface asks for it. `epoll` outlives the ports. On an
// error nothing is left; the message names the host.
Result<std::vector<std::unique_ptr<FabricPort>>> makePorts(const Description& description, std::size_t longestFrame,
                                                           const std::string& ealArguments, int epoll);

}  // namespace gloo_bypass::fabric
