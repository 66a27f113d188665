#include "collectives/link.h"

#include <fmt/format.h>

#include "transport/base/printable.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"

namespace gloo_bypass::collectives {

Result<Link> Link::named(const std::string& transport) {
  Link link{.transport = transport.empty() ? "DPDK" : transport};
  const BackEnd* backEnd = findBackEnd(link.transport);
  if (backEnd == nullptr) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                 fmt::format("GLOO_DEVICE_TRANSPORT={} has no collectives of gloo-bypass: use DPDK, UDP or RDMA",
                             printable(link.transport))};
  }
  const auto config = configurationFromEnvironment();
  if (!config) return config.error();
  const LinkMode mode = config.value().link;
  link.hasMemory = link.transport == "DPDK" && (mode == LinkMode::kAuto || mode == LinkMode::kMemif);
  link.threads = config.value().threads;
  return link;
}

}  // namespace gloo_bypass::collectives
