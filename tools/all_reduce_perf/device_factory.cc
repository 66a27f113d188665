#include "tools/all_reduce_perf/device_factory.h"

#include <netdb.h>

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include "tools/all_reduce_perf/gloo_ibverbs.h"
#include "tools/common/error.h"
#include "transport/base/joined.h"
#include "transport/compatibility/gloo/own_transports.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"
#include "transport/process/gloo_address.h"

namespace gloo_bypass {
namespace {

using DevicePointer = std::shared_ptr<::gloo::transport::Device>;

constexpr std::string_view kGlooTcp = "TCP";
constexpr std::string_view kGlooIbverbs = "GLOO_IBVERBS";

// Gloo 2022 crashes on a host name that does not resolve.
void checkResolves(const std::string& hostname) {
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(hostname.c_str(), nullptr, nullptr, &found);
  if (code != 0)
    throw ProgramError(fmt::format("host name '{}': {}; use --hostname or --interface", hostname, gai_strerror(code)));
  ::freeaddrinfo(found);
}

DevicePointer makeTcpDevice(const GlooPlace& place) {
  if (!place.hostName.empty()) checkResolves(place.hostName);
  ::gloo::transport::tcp::attr attributes;
  attributes.iface = place.interface;
  attributes.hostname = place.hostName;
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

}  // namespace

std::vector<std::string> transportNames() {
  std::vector<std::string> names{std::string(kGlooTcp)};
  for (const BackEnd& backEnd : backEnds()) names.push_back(backEnd.name);
  names.emplace_back(kGlooIbverbs);
  return names;
}

std::string knownTransports() { return joined(transportNames()); }

std::string transportProblem(std::string_view transport) {
  if (transport == kGlooTcp) return {};
  if (transport == kGlooIbverbs) return glooIbverbsProblem();
  if (const BackEnd* backEnd = findBackEnd(transport)) {
    return backEnd->inThisBuild() ? "" : fmt::format("{} is {}", backEnd->name, whyMissing(*backEnd));
  }
  return fmt::format("unknown transport '{}'; known are {}", transport, knownTransports());
}

bool hasBoundBuffersOnly(std::string_view transport) {
  return transport == kGlooIbverbs && !gloo_version::kIbverbsHasUnboundBuffers;
}

bool hasOwnCollectives(std::string_view transport) { return findBackEnd(transport) != nullptr; }

DevicePointer makeDevice(std::string_view transport, const GlooPlace& place) {
  if (const std::string problem = transportProblem(transport); !problem.empty()) throw ProgramError(problem);
  const std::string& list = place.interface;
  const GlooPlace first{list.substr(0, list.find(',')), place.hostName};  // Gloo's own devices have one interface
  if (transport == kGlooTcp) return makeTcpDevice(first);
  if (transport == kGlooIbverbs) return makeGlooIbverbsDevice(first);
  const BackEnd& backEnd = *findBackEnd(transport);
  const TransportConfig config = valueOrThrow(configurationFromEnvironment());
  return makeGlooDevice(backEnd, config, {interfacesFor(backEnd.interfaceRule(config), list, list), place.hostName});
}

}  // namespace gloo_bypass
