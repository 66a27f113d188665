#include "tools/fabric/switch/port_factory.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/fabric/switch/interface_port.h"
#include "tools/fabric/switch/memif_server_port.h"
#include "tools/fabric/switch/tap_port.h"
#include "transport/dpdk/eal.h"

namespace gloo_bypass::fabric {
namespace {

// DPDK's own needs, and the packet buffers of an interface (interface_port.cc): 2 x 128 of at most 64 KiB.
constexpr std::size_t kEalMiB = 32, kMiBAnInterface = 20;

Result<std::unique_ptr<FabricPort>> widened(auto made) {
  if (!made) return made.error();
  return std::unique_ptr<FabricPort>(std::move(made).value());
}

Result<std::unique_ptr<FabricPort>> makePort(const HostDescription& host, std::size_t longestFrame,
                                             std::size_t ringBytes, int epoll) {
  switch (host.port.kind) {
    case PortKind::kMemif:
      return widened(MemifServerPort::create(host.port.name, longestFrame, epoll));
    case PortKind::kInterface:
      return widened(InterfacePort::create(host.port.name, longestFrame, ringBytes, epoll));
    case PortKind::kTap:
      return widened(TapPort::create(host, longestFrame, epoll));
    case PortKind::kUnspecified:
      break;
  }
  return Error{
      ErrorScope::kDevice, ErrorCode::kConfiguration,
      fmt::format(
          "nothing says how it is attached: add --host name={},memif=/PATH, or interface=NAME or tap=NAME, or let "
          "scripts/fabric-run do it",
          host.name)};
}

Status startEal(std::size_t interfaces, const std::string& ealArguments) {
  TransportConfig config;
  config.link = LinkMode::kMemif;  // no PCI
  config.hugePages = HugePages::kOff;
  config.memoryMiB = kEalMiB + interfaces * kMiBAnInterface;
  config.ealArguments = ealArguments;
  return dpdk::Eal::start(config);
}

}  // namespace

Result<std::vector<std::unique_ptr<FabricPort>>> makePorts(const Description& description, std::size_t longestFrame,
                                                           const std::string& ealArguments, int epoll) {
  const auto interfaces =
      std::count_if(description.hosts.begin(), description.hosts.end(),
                    [](const HostDescription& host) { return host.port.kind == PortKind::kInterface; });
  if (interfaces > 0) {
    if (const Status started = startEal(static_cast<std::size_t>(interfaces), ealArguments); !started)
      return started.error();
  }
  const std::size_t ringBytes = InterfacePort::ringBytesFor(static_cast<std::size_t>(interfaces));
  std::vector<std::unique_ptr<FabricPort>> ports;
  for (const HostDescription& host : description.hosts) {
    auto port = makePort(host, longestFrame, ringBytes, epoll);
    if (!port) {
      Error error = port.error();
      error.message = fmt::format("host {}: {}", host.name, error.message);
      return error;
    }
    ports.push_back(std::move(port).value());
  }
  return ports;
}

}  // namespace gloo_bypass::fabric
