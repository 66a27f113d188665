// c10d's registry of Gloo devices. PyTorch asks it for a device under the name in GLOO_DEVICE_TRANSPORT.
//
// Its header lies in a folder of its own since PyTorch 2.14, and creators take a third argument, lazyInit, since 2.8:
// the language itself can ask for both.
//
// Thread: registering belongs to the start of the program or of a library; c10d creates devices from any thread.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#if __has_include(<torch/csrc/distributed/c10d/gloo/GlooDeviceFactory.hpp>)
#include <torch/csrc/distributed/c10d/gloo/GlooDeviceFactory.hpp>
#else
#include <torch/csrc/distributed/c10d/GlooDeviceFactory.hpp>
#endif

namespace gloo_bypass::torch_version {

using DeviceRegistry = std::remove_reference_t<decltype(*c10d::GlooDeviceRegistry())>;

// `make` is called with (interface, hostName, lazy), of which interface or hostName is empty; lazy means that pairs
// connect when they are first used. Always false where PyTorch cannot ask for it. What `make` throws reaches PyTorch's
// caller.
template <typename Make, typename Creator = DeviceRegistry::Creator>
Creator deviceCreator(Make make) {
  if constexpr (std::is_invocable_v<Creator, const std::string&, const std::string&, bool>) {
    return [make](const std::string& interface, const std::string& hostName, bool lazy) {
      return make(interface, hostName, lazy);
    };
  } else {
    return
        [make](const std::string& interface, const std::string& hostName) { return make(interface, hostName, false); };
  }
}

}  // namespace gloo_bypass::torch_version
