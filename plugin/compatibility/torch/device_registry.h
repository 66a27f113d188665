// c10d's registry of Gloo devices. PyTorch looks up the name in GLOO_DEVICE_TRANSPORT there.
//
// Since PyTorch 2.14 the registry's header lies in a separate folder, and since 2.8 creators take a third argument,
// lazyInit: C++ itself can detect both.
//
// Thread: register at the start of the program or of a library; c10d creates devices from any thread.
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

// Calls `make` with (interface, hostName, lazy); interface or hostName is empty. lazy: pairs connect at first use;
// always false if PyTorch has no such option. Exceptions of `make` reach PyTorch's caller.
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
