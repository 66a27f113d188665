#include "tools/all_reduce_perf/gloo_ibverbs.h"

#include <gloo/transport/ibverbs/device.h>

#include "tools/common/error.h"
#include "transport/process/environment.h"
#include "transport/process/gloo_address.h"
#include "transport/verbs/device_selection.h"

namespace gloo_bypass {

std::string glooIbverbsProblem() { return ""; }

std::shared_ptr<::gloo::transport::Device> makeGlooIbverbsDevice(const GlooPlace& place) {
  const TransportConfig config = valueOrThrow(withGlooAddress(
      InterfaceRule::kOptional, valueOrThrow(configurationFromEnvironment()), place.interface, place.hostName));
  const auto rails = valueOrThrow(verbs::selectRails(*valueOrThrow(verbs::systemVerbs()), config));
  const verbs::Rail& rail = rails.front();
  return ::gloo::transport::ibverbs::CreateDevice({rail.deviceName, rail.port, rail.gidIndex});
}

}  // namespace gloo_bypass
