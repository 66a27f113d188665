#include "tests/support/media/verbs_media.h"

#include <stdexcept>
#include <utility>

#include "tests/support/media/media.h"
#include "tests/support/software_rnic.h"
#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass::test {
namespace {

// Simulates one process a rank.
Medium softwareOrReal(const std::string& name, const verbs::VerbsApi& api, const RdmaConfig& rdma, bool variant,
                      Security security = Security::kOff) {
  TransportConfig config;
  config.rdma = rdma;
  config.security = security;
  const auto make = [&api, config]() -> std::shared_ptr<Transport> {
    auto transport = verbs::makeVerbsTransport(api, config);
    if (!transport.ok()) throw std::runtime_error(transport.error().message);
    return std::move(transport).value();
  };
  return {.name = name, .makeTransport = make, .variant = variant};
}

std::vector<Medium> verbsMedia() {
  RdmaConfig one, two;
  one.devices = "soft0";
  // Everything small: credits run out, windows fill, messages are cut.
  two.devices = "soft0,soft1";
  two.credits = 4;
  // Gloo's ReduceScatterHalvingDoubling overwrites what it sends without a wait: its messages stay eager.
  two.eagerBytes = 4096;
  two.chunkBytes = 64 * 1024;
  RdmaConfig keyed = two;
  keyed.trustedNetwork = true;
  std::vector<Medium> all = {softwareOrReal("VerbsSoftware", softwareVerbs(), one, false),
                             softwareOrReal("VerbsSoftwareRails", softwareVerbs(), two, true),
                             softwareOrReal("VerbsSoftwareKeyed", softwareVerbs(), keyed, true, Security::kEncrypt)};
  // The machine's own devices: SoftRoCE in the guest, or a real adapter. Left out if there are none.
  if (const auto system = verbs::systemVerbs(); system.ok() && verbs::makeVerbsTransport(*system.value(), {}).ok()) {
    all.push_back(softwareOrReal("Rdma", *system.value(), {}, true));
    all.push_back(softwareOrReal("RdmaKeyed", *system.value(), {.trustedNetwork = true}, true, Security::kEncrypt));
  }
  return all;
}

const MediaOf entry(verbsMedia);

}  // namespace

Result<std::unique_ptr<PolledTransport>> makePolledSoftwareRdma(const TransportConfig& config) {
  return verbs::makePolledVerbsTransport(softwareVerbs(), config);
}

}  // namespace gloo_bypass::test
