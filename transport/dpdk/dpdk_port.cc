#include "transport/dpdk/dpdk_port.h"

#include <utility>

#include "transport/dpdk/auto_port.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/ip_port.h"
#include "transport/dpdk/memif_port.h"
#include "transport/dpdk/no_memory_port.h"
#include "transport/dpdk/port_address.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::dpdk {
namespace {

Result<std::unique_ptr<PacketPort>> makeNetworkPort(const TransportConfig& config) {
  switch (chosenNetwork(config)) {
    case Network::kNetdev:
      return makeNetdevPort(config);
    case Network::kPci:
      return makePciPort(config);
    case Network::kRdma:
      return Error{ErrorScope::kDevice, ErrorCode::kInvalidArgument, "RDMA is a transport of its own, and no port"};
    default:
      return udp::makeUdpPort(config);
  }
}

Result<std::unique_ptr<PacketPort>> makeAutoPort(const TransportConfig& config) {
  auto network = makeNetworkPort(config);
  if (!network) return network.error();
  auto memory = makeMemoryPort(config, network.value()->traits().doorbell);
  if (!memory) return memory.error();
  // settings.cc refuses captures of a DPDK network port beside it.
  const bool captures = !config.capture.empty() && decodeMemifAddress(memory.value()->localAddress());
  const char* const note = !captures ? ""
                                     : "GLOO_BYPASS_CAPTURE has the frames within this host; those to other "
                                       "hosts are the kernel's: use tcpdump on the interface";
  return std::unique_ptr<PacketPort>(
      std::make_unique<AutoPort>(std::move(memory).value(), std::move(network).value(), note));
}

}  // namespace

bool needsEal(const TransportConfig& config) { return usesNetdev(config) || usesPci(config) || config.telemetry; }

Result<std::unique_ptr<PacketPort>> makeDpdkPort(const TransportConfig& config) {
  if (needsEal(config)) {
    const Status started = Eal::start(config);
    if (!started) return started.error();
  }
  switch (config.link) {
    case LinkMode::kAuto:
      return makeAutoPort(config);
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
