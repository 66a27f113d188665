#include "tools/all_reduce_perf/gloo_ibverbs.h"

#include <vector>

#include <gloo/transport/ibverbs/device.h>

#include "tools/common/error.h"
#include "transport/process/environment.h"
#include "transport/process/gloo_address.h"
#include "transport/verbs/device_selection.h"

namespace gloo_bypass {

std::string glooIbverbsProblem() { return ""; }

std::shared_ptr<::gloo::transport::Device> makeGlooIbverbsDevice(const GlooPlace& place) {
  const Result<TransportConfig> environment = configurationFromEnvironment();
  if (!environment) throw ProgramError(environment.error().message);
  const Result<TransportConfig> config =
      withGlooAddress(InterfaceRule::kOptional, environment.value(), place.interface, place.hostName);
  if (!config) throw ProgramError(config.error().message);
  const Result<const verbs::VerbsApi*> api = verbs::systemVerbs();
  if (!api) throw ProgramError(api.error().message);
  const Result<std::vector<verbs::Rail>> rails = verbs::selectRails(*api.value(), config.value());
  if (!rails) throw ProgramError(rails.error().message);
  const verbs::Rail& rail = rails.value().front();
  return ::gloo::transport::ibverbs::CreateDevice({rail.deviceName, rail.port, rail.gidIndex});
}

}  // namespace gloo_bypass
