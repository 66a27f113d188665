// Registers our transports with PyTorch when libgloo_bypass.so is loaded, by LD_PRELOAD, `import gloo_bypass`, or
// torch.ops.load_library. GLOO_DEVICE_TRANSPORT then chooses among them and PyTorch's own.
//
// A key that cannot work (not in this build, or unknown) gets a creator that throws one clear line: PyTorch's own line names
// neither the key nor what is known, and nothing may ever fall back to TCP silently.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "compatibility/torch/device_registry.h"
#include "plugin/environment.h"
#include "plugin/gloo_address.h"
#include "transport/gloo/connect_mode.h"
#ifdef GLOO_BYPASS_HAVE_DPDK
#include "plugin/dpdk_device.h"
#endif
#ifdef GLOO_BYPASS_HAVE_RDMA
#include "plugin/rdma_device.h"
#endif

namespace c10d {
namespace {

using gloo_bypass::torch_version::deviceCreator;
using DevicePointer = std::shared_ptr<::gloo::transport::Device>;

constexpr const char* kDpdkKey = "DPDK";
constexpr const char* kRdmaKey = "RDMA";

[[noreturn]] void fail(const std::string& message) { throw ::gloo::InvalidOperationException(message); }

[[maybe_unused]] gloo_bypass::ConnectMode connectMode(bool lazy) {
  return lazy ? gloo_bypass::ConnectMode::kOnDemand : gloo_bypass::ConnectMode::kAtOnce;
}

// PyTorch gives an interface (GLOO_SOCKET_IFNAME) and "", or "" and a host name.
DevicePointer makeDpdk(const std::string& interface, const std::string& hostName, [[maybe_unused]] bool lazy) {
#ifdef GLOO_BYPASS_HAVE_DPDK
  const auto environment = gloo_bypass::configurationFromEnvironment();
  if (!environment) fail("DPDK transport: " + environment.error().message);
  const auto config = gloo_bypass::withGlooAddress(environment.value(), interface, hostName);
  if (!config) fail("DPDK transport: " + config.error().message);
  return gloo_bypass::makeDpdkDevice(config.value(), connectMode(lazy));
#else
  static_cast<void>(interface);
  static_cast<void>(hostName);
  fail("GLOO_DEVICE_TRANSPORT='DPDK': the DPDK transport is not in this build (" GLOO_BYPASS_NO_DPDK ")");
#endif
}

DevicePointer makeRdma(const std::string& interface, const std::string& hostName, [[maybe_unused]] bool lazy) {
#ifdef GLOO_BYPASS_HAVE_RDMA
  const auto environment = gloo_bypass::configurationFromEnvironment();
  if (!environment) fail("RDMA transport: " + environment.error().message);
  const auto config = gloo_bypass::withGlooAddressForRdma(environment.value(), interface, hostName);
  if (!config) fail("RDMA transport: " + config.error().message);
  return gloo_bypass::makeRdmaDevice(config.value(), connectMode(lazy));
#else
  static_cast<void>(interface);
  static_cast<void>(hostName);
  fail("GLOO_DEVICE_TRANSPORT='RDMA': the RDMA transport is not in this build (" GLOO_BYPASS_NO_RDMA ")");
#endif
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
  if (GlooDeviceRegistry()->Has(kDpdkKey)) return;  // loaded before, perhaps from another path
  GlooDeviceRegistry()->Register(kDpdkKey, deviceCreator(makeDpdk));
  if (!GlooDeviceRegistry()->Has(kRdmaKey)) GlooDeviceRegistry()->Register(kRdmaKey, deviceCreator(makeRdma));
  std::vector<std::string> known = GlooDeviceRegistry()->Keys();
  std::sort(known.begin(), known.end());
  std::string names;
  for (const std::string& key : known) names += (names.empty() ? "" : ", ") + key;
  const std::string unknown = "no such transport; known are " + names + " (capitals matter)";
  for (const char* key : {"dpdk", "Dpdk", "rdma", "Rdma", "tcp", "Tcp"}) registerRefusal(key, unknown);
  registerRefusal(gloo_bypass::requestedDeviceTransport(), unknown);
}

// Runs when the library is loaded.
[[maybe_unused]] const bool registered = (registerTransports(), true);

}  // namespace
}  // namespace c10d
