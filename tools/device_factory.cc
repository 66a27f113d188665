#include "tools/device_factory.h"

#include <netdb.h>

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include "tools/perf_error.h"
#ifdef GLOO_BYPASS_WITH_DPDK_DEVICE
#include "plugin/dpdk_device.h"
#include "plugin/environment.h"
#include "plugin/gloo_address.h"
#endif

namespace gloo_bypass {
namespace {

// Gloo 2022 crashes on a host name that does not resolve.
void checkResolves(const std::string& hostname) {
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(hostname.c_str(), nullptr, nullptr, &found);
  if (code != 0) throw PerfError(fmt::format("host name '{}': {}; use --hostname or --interface", hostname, gai_strerror(code)));
  ::freeaddrinfo(found);
}

std::shared_ptr<::gloo::transport::Device> makeTcpDevice(const DeviceOptions& options) {
  if (!options.hostname.empty()) checkResolves(options.hostname);
  ::gloo::transport::tcp::attr attributes;
  attributes.iface = options.interface;
  attributes.hostname = options.hostname;
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

#ifdef GLOO_BYPASS_WITH_DPDK_DEVICE
std::shared_ptr<::gloo::transport::Device> makeDpdk(const DeviceOptions& options) {
  const Result<TransportConfig> environment = configurationFromEnvironment();
  if (!environment) throw PerfError(environment.error().message);
  const Result<TransportConfig> config = withGlooAddress(environment.value(), options.interface, options.hostname);
  if (!config) throw PerfError(config.error().message);
  return makeDpdkDevice(config.value());
}
#endif

}  // namespace

std::string knownTransports() { return "TCP, DPDK"; }

std::string transportProblem(std::string_view transport) {
  if (transport == "TCP") return {};
  if (transport == "DPDK") {
#ifdef GLOO_BYPASS_WITH_DPDK_DEVICE
    return {};
#else
    return "DPDK was not built into this program; install libdpdk-dev and build with -Ddpdk=enabled";
#endif
  }
  return fmt::format("unknown transport '{}'; known are {}", transport, knownTransports());
}

std::shared_ptr<::gloo::transport::Device> makeDevice(std::string_view transport, const DeviceOptions& options) {
  if (const std::string problem = transportProblem(transport); !problem.empty()) throw PerfError(problem);
#ifdef GLOO_BYPASS_WITH_DPDK_DEVICE
  if (transport == "DPDK") return makeDpdk(options);
#endif
  return makeTcpDevice(options);
}

}  // namespace gloo_bypass
