#include "plugin/torch/registration.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "plugin/compatibility/torch/device_registry.h"
#include "transport/base/joined.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"
#include "transport/process/gloo_address.h"
#include "transport/process/gloo_device.h"

namespace c10d {
namespace {

using gloo_bypass::torch_version::deviceCreator;
using DevicePointer = std::shared_ptr<::gloo::transport::Device>;

[[noreturn]] void fail(const std::string& message) { throw ::gloo::InvalidOperationException(message); }

// PyTorch passes an interface (GLOO_SOCKET_IFNAME) and "", or "" and a host name.
DevicePointer make(const gloo_bypass::BackEnd& backEnd, const std::string& interface, const std::string& hostName,
                   bool lazy) {
  if (!backEnd.inThisBuild()) {
    fail(fmt::format("GLOO_DEVICE_TRANSPORT='{0}': the {0} transport is {1}", backEnd.name, whyMissing(backEnd)));
  }
  const auto config = gloo_bypass::configurationFromEnvironment();
  if (!config) fail(fmt::format("{} transport: {}", backEnd.name, config.error().message));
  const auto rule = backEnd.interfaceRule(config.value());
  return makeGlooDevice(backEnd, config.value(),
                        {interfacesFor(rule, gloo_bypass::requestedInterfaces(), interface), hostName},
                        lazy ? gloo_bypass::ConnectMode::kOnDemand : gloo_bypass::ConnectMode::kAtOnce);
}

auto refusal(const std::string& message) {
  return deviceCreator([message](const std::string&, const std::string&, bool) -> DevicePointer { fail(message); });
}

void registerRefusal(const std::string& key, const std::string& reason) {
  if (key.empty() || GlooDeviceRegistry()->Has(key)) return;
  // Fallback priority: a plug-in that registers this key after us replaces ours.
  GlooDeviceRegistry()->Register(key, refusal(fmt::format("GLOO_DEVICE_TRANSPORT='{}': {}", key, reason)),
                                 c10::REGISTRY_FALLBACK);
}

// PyTorch has them under these names. Its TCP_TLS does not encrypt either, since 2.9 (docs/security.md).
void refuseGloosTransports() {
  const std::string reason = gloo_bypass::whyNotGloosTransports();
  if (reason.empty()) return;
  for (const char* key : {"LINUX", "TCP", "TCP_TLS", "UV"}) {
    if (!GlooDeviceRegistry()->Has(key)) continue;
    GlooDeviceRegistry()->Register(key, refusal(reason), c10::REGISTRY_PREFERRED);
  }
}

void registerAll() {
  refuseGloosTransports();
  for (const gloo_bypass::BackEnd& backEnd : gloo_bypass::backEnds()) {
    GlooDeviceRegistry()->Register(
        backEnd.name, deviceCreator([&backEnd](const std::string& interface, const std::string& hostName, bool lazy) {
          return make(backEnd, interface, hostName, lazy);
        }));
  }
  std::vector<std::string> known = GlooDeviceRegistry()->Keys();
  std::sort(known.begin(), known.end());
  const std::string unknown =
      fmt::format("no such transport; known are {} (capitals matter)", gloo_bypass::joined(known));
  // Common spellings.
  for (const std::string& key : known) {
    std::string lower(key.size(), ' ');
    std::transform(key.begin(), key.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string capitalised = lower;
    capitalised.front() = key.front();
    for (const std::string& misspelt : {lower, capitalised}) registerRefusal(misspelt, unknown);
  }
  registerRefusal(gloo_bypass::requestedDeviceTransport(), unknown);
}

}  // namespace
}  // namespace c10d

namespace gloo_bypass {

std::string registerTransports() {
  // Once for this copy of the library.
  static const std::string answer = [] {
    for (const BackEnd& backEnd : backEnds()) {
      if (!c10d::GlooDeviceRegistry()->Has(backEnd.name)) continue;
      return fmt::format(
          "another copy of the plug-in has registered {} already, from another place: load one of them only",
          backEnd.name);
    }
    c10d::registerAll();
    return std::string();
  }();
  return answer;
}

}  // namespace gloo_bypass
