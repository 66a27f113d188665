// What plugin/cpp/include/gloo_bypass/device.h promises, by the parts that the PyTorch plug-in uses as well.
#include "gloo_bypass/device.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "transport/base/joined.h"
#include "transport/gloo/connect_mode.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"
#include "transport/process/gloo_address.h"
#include "transport/process/gloo_device.h"
#include "transport/process/process_transport.h"
#include "transport/process/settings.h"

namespace gloo_bypass {
namespace {

[[noreturn]] void fail(std::string_view transport, const std::string& message) {
  throw ::gloo::InvalidOperationException(fmt::format("{} transport: {}", transport, message));
}

const BackEnd& backEndOf(std::string_view transport) {
  const BackEnd* const found = findBackEnd(transport);
  if (found != nullptr) return *found;
  std::vector<std::string> known;
  for (const BackEnd& backEnd : backEnds()) known.push_back(backEnd.name);
  fail(transport, fmt::format("no such transport; known are {} (capitals matter)", joined(known)));
}

TransportConfig configurationOf(const DeviceOptions& options, std::string_view transport) {
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
  return std::move(config).value();
}

}  // namespace

DeviceOptions DeviceOptions::fromEnvironment() {
  DeviceOptions options;
  for (auto& [name, text] : settingsInEnvironment()) options.settings.emplace(std::move(name), std::move(text));
  return options;
}

std::shared_ptr<::gloo::transport::Device> createDevice(std::string_view transport, const DeviceOptions& options) {
  const BackEnd& backEnd = backEndOf(transport);
  if (!backEnd.inThisBuild()) fail(transport, whyMissing(backEnd));
  const TransportConfig config = configurationOf(options, transport);
  const bool nowhere = options.interface.empty() && options.hostname.empty();
  return makeGlooDevice(backEnd, config, {options.interface, nowhere ? ownHostName() : options.hostname},
                        options.connectOnDemand ? ConnectMode::kOnDemand : ConnectMode::kAtOnce);
}

std::string countersJson() { return ProcessTransport::instance().countersJson(); }

const char* version() { return GLOO_BYPASS_VERSION; }

}  // namespace gloo_bypass
