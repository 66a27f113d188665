// A faulty plug-in: the device made under the name in GLOO_DEVICE_TRANSPORT is one of PLANTED_TRANSPORT. It first loads
// the real plug-in, which DDP_TRAIN_PLUGIN names.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "plugin/compatibility/torch/device_registry.h"

namespace c10d {
namespace {

template <typename Registry>
std::shared_ptr<::gloo::transport::Device> create(Registry& registry, const std::string& transport,
                                                  const std::string& interface, const std::string& hostName) {
  if constexpr (requires { registry.Create(transport, interface, hostName, false); }) {
    return registry.Create(transport, interface, hostName, false);
  } else {
    return registry.Create(transport, interface, hostName);
  }
}

struct Planted {
  Planted() {
    const char *named = std::getenv("GLOO_DEVICE_TRANSPORT"), *used = std::getenv("PLANTED_TRANSPORT");
    const char* plugin = std::getenv("DDP_TRAIN_PLUGIN");
    if (named == nullptr || used == nullptr || plugin == nullptr ||
        ::dlopen(plugin, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      std::fputs("mislabelled_plugin: a variable is missing, or the plug-in\n", stderr);
      return;
    }
    const auto make = [transport = std::string(used)](const std::string& interface, const std::string& hostName, bool) {
      return create(*GlooDeviceRegistry(), transport, interface, hostName);
    };
    GlooDeviceRegistry()->Register(named, gloo_bypass::torch_version::deviceCreator(make), c10::REGISTRY_PREFERRED);
  }
} planted;

}  // namespace
}  // namespace c10d
