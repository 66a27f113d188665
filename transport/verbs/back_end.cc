#include "transport/verbs/back_end.h"

#include <fmt/format.h>

#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::verbs {
namespace {

// libibverbs is loaded here, so that a program that never asks for RDMA needs none.
Result<std::shared_ptr<Transport>> make(const TransportConfig& config) {
  const auto verbs = systemVerbs();
  if (!verbs) return verbs.error();
  return makeVerbsTransport(*verbs.value(), config);
}

std::vector<std::string> ignoredSettings(const TransportConfig& config) {
  std::vector<std::string> lines;
  if (config.telemetry) {
    lines.emplace_back(
        "GLOO_BYPASS_TELEMETRY='on' does nothing for RDMA, which runs without DPDK: use GLOO_BYPASS_METRICS");
  }
  if (!config.capture.empty()) {
    lines.push_back(
        fmt::format("GLOO_BYPASS_CAPTURE='{}' does nothing for RDMA, whose frames the adapter makes: use "
                    "tcpdump on its interface",
                    config.capture));
  }
  return lines;
}

}  // namespace

Result<std::unique_ptr<PolledTransport>> makePolled(const TransportConfig& config) {
  const auto verbs = systemVerbs();
  if (!verbs) return verbs.error();
  return makePolledVerbsTransport(*verbs.value(), config);
}

BackEnd backEnd() {
  return {
      .name = "RDMA",
      .package = "libibverbs-dev",
      .make = make,
      // Devices may be named, a route may lead to one, or there is one only.
      .interfaceRule = [](const TransportConfig&) { return InterfaceRule::kOptional; },
      .ignoredSettings = ignoredSettings};
}

}  // namespace gloo_bypass::verbs
