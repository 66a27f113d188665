// Registers our transports with PyTorch when libgloo_bypass.so is loaded, by LD_PRELOAD, `import gloo_bypass`, or
// torch.ops.load_library. GLOO_DEVICE_TRANSPORT then chooses among them and PyTorch's own.
//
// A key that cannot work (not in this build, or unknown) gets a creator that throws one clear line: PyTorch's own line names
// neither the key nor what is known, and nothing may ever fall back to TCP silently.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "compatibility/torch/device_registry.h"
#include "process/back_ends.h"
#include "process/environment.h"
#include "process/gloo_device.h"

namespace c10d {
namespace {

using gloo_bypass::torch_version::deviceCreator;
using DevicePointer = std::shared_ptr<::gloo::transport::Device>;

[[noreturn]] void fail(const std::string& message) { throw ::gloo::InvalidOperationException(message); }

// PyTorch gives an interface (GLOO_SOCKET_IFNAME) and "", or "" and a host name.
DevicePointer make(const gloo_bypass::BackEnd& backEnd, const std::string& interface, const std::string& hostName,
                   bool lazy) {
  if (!backEnd.inThisBuild()) {
    fail(fmt::format("GLOO_DEVICE_TRANSPORT='{0}': the {0} transport is {1}", backEnd.name, whyMissing(backEnd)));
  }
  const auto config = gloo_bypass::configurationFromEnvironment();
  if (!config) fail(fmt::format("{} transport: {}", backEnd.name, config.error().message));
  return makeGlooDevice(backEnd, config.value(), {interface, hostName},
                        lazy ? gloo_bypass::ConnectMode::kOnDemand : gloo_bypass::ConnectMode::kAtOnce);
}

void registerRefusal(const std::string& key, const std::string& reason) {
  if (key.empty() || GlooDeviceRegistry()->Has(key)) return;
  // Fallback: a plug-in that brings this key after us takes the place.
  GlooDeviceRegistry()->Register(
      key,
      deviceCreator([message = fmt::format("GLOO_DEVICE_TRANSPORT='{}': {}", key, reason)](
                    const std::string&, const std::string&, bool) -> DevicePointer { fail(message); }),
      c10::REGISTRY_FALLBACK);
}

void registerTransports() {
  for (const gloo_bypass::BackEnd& backEnd : gloo_bypass::backEnds()) {
    if (GlooDeviceRegistry()->Has(backEnd.name)) continue;  // loaded before, perhaps from another path
    GlooDeviceRegistry()->Register(
        backEnd.name, deviceCreator([&backEnd](const std::string& interface, const std::string& hostName, bool lazy) {
          return make(backEnd, interface, hostName, lazy);
        }));
  }
  std::vector<std::string> known = GlooDeviceRegistry()->Keys();
  std::sort(known.begin(), known.end());
  std::string names;
  for (const std::string& key : known) names += (names.empty() ? "" : ", ") + key;
  const std::string unknown = "no such transport; known are " + names + " (capitals matter)";
  // As people write them in a hurry.
  for (const std::string& key : known) {
    std::string lower(key.size(), ' ');
    std::transform(key.begin(), key.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string capitalised = lower;
    capitalised.front() = key.front();
    for (const std::string& misspelt : {lower, capitalised}) registerRefusal(misspelt, unknown);
  }
  registerRefusal(gloo_bypass::requestedDeviceTransport(), unknown);
}

// Runs when the library is loaded.
[[maybe_unused]] const bool registered = (registerTransports(), true);

}  // namespace
}  // namespace c10d
