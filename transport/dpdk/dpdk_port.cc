#include "transport/dpdk/dpdk_port.h"

#include "transport/dpdk/eal.h"
#include "transport/dpdk/ip_port.h"
#include "transport/dpdk/memif_port.h"

namespace gloo_bypass::dpdk {

Result<std::unique_ptr<PacketPort>> makeDpdkPort(const TransportConfig& config) {
  const Status started = Eal::start(config);
  if (!started) return started.error();
  switch (config.link) {
    case LinkMode::kMemif:
      return makeMemifPort(config);
    case LinkMode::kNetdev:
      return makeNetdevPort(config);
    case LinkMode::kPci:
      return makePciPort(config);
  }
  return Error{ErrorScope::kDevice, ErrorCode::kInvalidArgument, "no such link mode"};
}

}  // namespace gloo_bypass::dpdk
