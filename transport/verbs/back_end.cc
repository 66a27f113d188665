#include "transport/verbs/back_end.h"

#include "transport/channel/ignored_settings.h"
#include "transport/verbs/settings.h"
#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::verbs {
namespace {

// Loads libibverbs here, so that a program without RDMA does not need it.
Result<std::shared_ptr<Transport>> make(const TransportConfig& config) {
  const auto verbs = systemVerbs();
  if (!verbs) return verbs.error();
  return makeVerbsTransport(*verbs.value(), config);
}

}  // namespace

Result<std::unique_ptr<PolledTransport>> makePolled(const TransportConfig& config) {
  const auto verbs = systemVerbs();
  if (!verbs) return verbs.error();
  return makePolledVerbsTransport(*verbs.value(), config);
}

BackEnd backEnd() {
  return {.name = "RDMA",
          .package = "libibverbs-dev",
          .settings = settings,
          .make = make,
          // The user may name devices, a route may lead to one, or there may be only one.
          .interfaceRule = [](const TransportConfig&) { return InterfaceRule::kOptional; },
          .ignoredSettings = [](const TransportConfig& c) { return ignoredWithoutDpdk(c, "RDMA", "the adapter"); }};
}

}  // namespace gloo_bypass::verbs
