#include "tools/device_factory.h"

#include <netdb.h>

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include "compatibility/gloo/own_transports.h"
#include "plugin/environment.h"
#include "plugin/gloo_address.h"
#include "tools/perf_error.h"
#ifdef GLOO_BYPASS_WITH_DPDK_DEVICE
#include "plugin/dpdk_device.h"
#endif
#ifdef GLOO_BYPASS_WITH_RDMA_DEVICE
#include "plugin/rdma_device.h"
#endif
#ifdef GLOO_BYPASS_WITH_GLOO_IBVERBS
#include <gloo/transport/ibverbs/device.h>

#include "transport/verbs/device_selection.h"
#endif

namespace gloo_bypass {
namespace {

using DevicePointer = std::shared_ptr<::gloo::transport::Device>;

// Gloo 2022 crashes on a host name that does not resolve.
void checkResolves(const std::string& hostname) {
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(hostname.c_str(), nullptr, nullptr, &found);
  if (code != 0)
    throw PerfError(fmt::format("host name '{}': {}; use --hostname or --interface", hostname, gai_strerror(code)));
  ::freeaddrinfo(found);
}

DevicePointer makeTcpDevice(const DeviceOptions& options) {
  if (!options.hostname.empty()) checkResolves(options.hostname);
  ::gloo::transport::tcp::attr attributes;
  attributes.iface = options.interface;
  attributes.hostname = options.hostname;
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

// The environment's configuration with the interface that the options name.
[[maybe_unused]] TransportConfig configurationWith(decltype(&withGlooAddress) addAddress,
                                                   const DeviceOptions& options) {
  const Result<TransportConfig> environment = configurationFromEnvironment();
  if (!environment) throw PerfError(environment.error().message);
  Result<TransportConfig> config = addAddress(environment.value(), options.interface, options.hostname);
  if (!config) throw PerfError(config.error().message);
  return std::move(config).value();
}

#ifdef GLOO_BYPASS_WITH_GLOO_IBVERBS
// The device, port and GID that the RDMA transport would take first.
DevicePointer makeGlooIbverbsDevice(const DeviceOptions& options) {
  const TransportConfig config = configurationWith(withGlooAddressForRdma, options);
  const Result<const VerbsApi*> verbs = systemVerbs();
  if (!verbs) throw PerfError(verbs.error().message);
  const Result<std::vector<Rail>> rails = selectRails(*verbs.value(), config.rdma, config.interface);
  if (!rails) throw PerfError(rails.error().message);
  const Rail& rail = rails.value().front();
  return ::gloo::transport::ibverbs::CreateDevice({rail.deviceName, rail.port, rail.gidIndex});
}
#endif

}  // namespace

std::string knownTransports() {
  std::string list;
  for (const std::string_view transport : kTransports) list.append(list.empty() ? "" : ", ").append(transport);
  return list;
}

std::string transportProblem(std::string_view transport) {
  if (transport == "TCP") return {};
  if (transport == "DPDK") {
#ifdef GLOO_BYPASS_WITH_DPDK_DEVICE
    return {};
#else
    return "DPDK was not built into this program; install libdpdk-dev and build with -Ddpdk=enabled";
#endif
  }
  if (transport == "RDMA") {
#ifdef GLOO_BYPASS_WITH_RDMA_DEVICE
    return {};
#else
    return "RDMA was not built into this program; install libibverbs-dev and build with -Dverbs=enabled";
#endif
  }
  if (transport == "GLOO_IBVERBS") {
#ifdef GLOO_BYPASS_WITH_GLOO_IBVERBS
    return {};
#else
    return "GLOO_IBVERBS is not in this program: its libgloo was built without ibverbs, or libibverbs-dev was missing";
#endif
  }
  return fmt::format("unknown transport '{}'; known are {}", transport, knownTransports());
}

bool hasBoundBuffersOnly(std::string_view transport) {
  return transport == "GLOO_IBVERBS" && !gloo_version::kIbverbsHasUnboundBuffers;
}

DevicePointer makeDevice(std::string_view transport, const DeviceOptions& options) {
  if (const std::string problem = transportProblem(transport); !problem.empty()) throw PerfError(problem);
#ifdef GLOO_BYPASS_WITH_DPDK_DEVICE
  if (transport == "DPDK") return makeDpdkDevice(configurationWith(withGlooAddress, options));
#endif
#ifdef GLOO_BYPASS_WITH_RDMA_DEVICE
  if (transport == "RDMA") return makeRdmaDevice(configurationWith(withGlooAddressForRdma, options));
#endif
#ifdef GLOO_BYPASS_WITH_GLOO_IBVERBS
  if (transport == "GLOO_IBVERBS") return makeGlooIbverbsDevice(options);
#endif
  return makeTcpDevice(options);
}

}  // namespace gloo_bypass
