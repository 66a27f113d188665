#include "transport/dpdk/dpdk_transport.h"

#include <utility>

#include "transport/datagram/datagram_transport.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/no_memory_port.h"
#include "transport/pairs/pairs_transport.h"
#include "transport/verbs/back_end.h"

namespace gloo_bypass::dpdk {
namespace {

Result<std::shared_ptr<Transport>> makeMemoryBesideRdma(const TransportConfig& config) {
  auto network = verbs::makePolled(config);
  if (!network) {
    return Error{network.error().scope, network.error().code, "GLOO_BYPASS_NETWORK='rdma': " + network.error().message};
  }
  if (needsEal(config)) {  // for its telemetry
    const Status started = Eal::start(config);
    if (!started) return started.error();
  }
  return makeMemoryBeside(config, std::move(network).value());
}

}  // namespace

Result<std::shared_ptr<Transport>> makeMemoryBeside(const TransportConfig& config,
                                                    std::unique_ptr<PolledTransport> network) {
  auto port = makeMemoryPort(config, network->doorbell());
  if (!port) return port.error();
  auto memory = makePolledDatagramTransport(config, std::move(port).value());
  if (!memory) return memory.error();
  return pairs::makePairsTransport(config, std::move(memory).value(), std::move(network));
}

Result<std::shared_ptr<Transport>> makeDpdkTransport(const TransportConfig& config) {
  if (usesRdma(config)) return makeMemoryBesideRdma(config);
  auto port = makeDpdkPort(config);
  if (!port) return port.error();
  return makeDatagramTransport(config, std::move(port).value());
}

}  // namespace gloo_bypass::dpdk
