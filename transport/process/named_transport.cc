#include "transport/process/named_transport.h"

#include <utility>

#include <fmt/format.h>

#include "transport/base/printable.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"
#include "transport/process/gloo_address.h"
#include "transport/process/process_transport.h"

namespace gloo_bypass {
namespace {

Error noTransport(const std::string& name) {
  std::string names;
  for (const BackEnd& backEnd : backEnds()) names += (names.empty() ? "" : ", ") + backEnd.name;
  return {ErrorScope::kDevice, ErrorCode::kConfiguration,
          fmt::format("there is no transport '{}': use one of {}", printable(name), names)};
}

}  // namespace

Result<std::shared_ptr<Transport>> acquireTransport(const std::string& name, const std::string& interface) {
  const std::string wanted = name.empty() ? "DPDK" : name;
  const BackEnd* backEnd = findBackEnd(wanted);
  if (backEnd == nullptr) return noTransport(wanted);
  if (!backEnd->inThisBuild()) return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, whyMissing(*backEnd)};
  auto config = configurationFromEnvironment();
  if (!config) return config.error();
  // As Gloo's doors do: without an interface the host's name leads to one.
  const std::string hostName = interface.empty() ? ownHostName() : "";
  const InterfaceRule rule = backEnd->interfaceRule(config.value());
  const std::string chosen = interfacesFor(rule, interface, interface);
  auto whole = withGlooAddress(rule, std::move(config).value(), chosen, hostName);
  if (!whole) return whole.error();
  return ProcessTransport::instance().acquire(*backEnd, whole.value());
}

}  // namespace gloo_bypass
