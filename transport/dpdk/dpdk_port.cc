#include "transport/dpdk/dpdk_port.h"

#include "transport/dpdk/eal.h"
#include "transport/dpdk/memif_port.h"

namespace gloo_bypass {

Result<std::unique_ptr<PacketPort>> makeDpdkPort(const TransportConfig& config) {
  const Status started = Eal::start(config);
  if (!started) return started.error();
  switch (config.link) {
    case LinkMode::kMemif:
      return makeMemifPort(config);
    case LinkMode::kNetdev:
    case LinkMode::kPci:
      break;
  }
  return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, "this link mode is not built in"};
}

}  // namespace gloo_bypass
