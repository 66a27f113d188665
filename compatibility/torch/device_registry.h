// c10d's registry of Gloo devices. PyTorch asks it for a device under the name in GLOO_DEVICE_TRANSPORT.
//
//   GLOO_BYPASS_TORCH_GLOO_FOLDER  c10d's Gloo headers lie in a folder of their own (PyTorch 2.14 has them there, 2.6 not)
//   GLOO_BYPASS_TORCH_LAZY_INIT    creators take a third argument, lazyInit (from PyTorch 2.8)
//
// Thread: registering belongs to the start of the program or of a library; c10d creates devices from any thread.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#if GLOO_BYPASS_TORCH_GLOO_FOLDER
#include <torch/csrc/distributed/c10d/gloo/GlooDeviceFactory.hpp>
#else
#include <torch/csrc/distributed/c10d/GlooDeviceFactory.hpp>
#endif

namespace gloo_bypass::torch_version {

using DeviceRegistry = std::remove_reference_t<decltype(*c10d::GlooDeviceRegistry())>;

// `make` is called with (interface, hostName, lazy), of which interface or hostName is empty; lazy means that pairs connect when they
// are first used. Always false where PyTorch cannot ask for it. What `make` throws reaches PyTorch's caller.
template <typename Make>
DeviceRegistry::Creator deviceCreator(Make make) {
#if GLOO_BYPASS_TORCH_LAZY_INIT
  return [make](const std::string& interface, const std::string& hostName, bool lazy) {
    return make(interface, hostName, lazy);
  };
#else
  return [make](const std::string& interface, const std::string& hostName) { return make(interface, hostName, false); };
#endif
}

}  // namespace gloo_bypass::torch_version
