// What include/gloo_bypass/device.h promises, by the parts that the PyTorch plug-in uses as well.
#include "gloo_bypass/device.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "plugin/environment.h"
#include "plugin/gloo_address.h"
#include "plugin/process_transport.h"
#include "plugin/settings.h"
#include "transport/gloo/connect_mode.h"
#ifdef GLOO_BYPASS_HAVE_DPDK
#include "plugin/dpdk_device.h"
#endif
#ifdef GLOO_BYPASS_HAVE_RDMA
#include "plugin/rdma_device.h"
#endif

namespace gloo_bypass {
namespace {

using AddAddress = decltype(withGlooAddress);

[[noreturn]] void fail(const char* transport, const std::string& message) {
  throw ::gloo::InvalidOperationException(fmt::format("{} transport: {}", transport, message));
}

[[maybe_unused]] TransportConfig configurationOf(const DeviceOptions& options, const char* transport,
                                                 AddAddress addAddress) {
  const std::vector<SettingText> texts(options.settings.begin(), options.settings.end());
  for (const auto& [name, text] : texts) {
    if (!name.starts_with(kSettingPrefix))
      fail(transport, fmt::format("'{}' is not the name of a setting: they begin with {}", name, kSettingPrefix));
  }
  auto config = configurationFrom(texts);
  if (!config) fail(transport, config.error().message);
  const std::string& named = config.value().interface;
  if (!named.empty() && !options.interface.empty() && named != options.interface) {
    fail(transport,
         fmt::format("the option interface is '{}' and GLOO_BYPASS_INTERFACE is '{}': set one of them, or both alike",
                     options.interface, named));
  }
  const bool nowhere = options.interface.empty() && options.hostname.empty();
  auto complete = addAddress(std::move(config).value(), options.interface, nowhere ? ownHostName() : options.hostname);
  if (!complete) fail(transport, complete.error().message);
  return std::move(complete).value();
}

[[maybe_unused]] ConnectMode connectMode(const DeviceOptions& options) {
  return options.connectOnDemand ? ConnectMode::kOnDemand : ConnectMode::kAtOnce;
}

template <typename Options>
Options optionsFromEnvironment() {
  Options options;
  for (auto& [name, text] : settingsInEnvironment()) options.settings.emplace(std::move(name), std::move(text));
  return options;
}

}  // namespace

DpdkOptions DpdkOptions::fromEnvironment() { return optionsFromEnvironment<DpdkOptions>(); }
RdmaOptions RdmaOptions::fromEnvironment() { return optionsFromEnvironment<RdmaOptions>(); }

std::shared_ptr<::gloo::transport::Device> createDpdkDevice([[maybe_unused]] const DpdkOptions& options) {
#ifdef GLOO_BYPASS_HAVE_DPDK
  return makeDpdkDevice(configurationOf(options, "DPDK", withGlooAddress), connectMode(options));
#else
  fail("DPDK", "it is not in this build of libgloo_bypass_device (libdpdk was missing or disabled)");
#endif
}

std::shared_ptr<::gloo::transport::Device> createRdmaDevice([[maybe_unused]] const RdmaOptions& options) {
#ifdef GLOO_BYPASS_HAVE_RDMA
  return makeRdmaDevice(configurationOf(options, "RDMA", withGlooAddressForRdma), connectMode(options));
#else
  fail("RDMA", "it is not in this build of libgloo_bypass_device (libibverbs-dev was missing or disabled)");
#endif
}

std::string countersJson() { return ProcessTransport::instance().countersJson(); }

const char* version() { return GLOO_BYPASS_VERSION; }

}  // namespace gloo_bypass
