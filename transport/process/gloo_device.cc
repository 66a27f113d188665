#include "transport/process/gloo_device.h"

#include <utility>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "transport/gloo/device.h"
#include "transport/process/back_ends.h"
#include "transport/process/gloo_address.h"
#include "transport/process/process_transport.h"

namespace gloo_bypass {
namespace {

[[noreturn]] void fail(const BackEnd& backEnd, const std::string& message) {
  throw ::gloo::InvalidOperationException(fmt::format("{} transport: {}", backEnd.name, message));
}

}  // namespace

std::shared_ptr<::gloo::transport::Device> makeGlooDevice(const BackEnd& backEnd, const TransportConfig& config,
                                                          const GlooPlace& place, ConnectMode mode) {
  if (!backEnd.inThisBuild()) fail(backEnd, whyMissing(backEnd));
  const auto whole = withGlooAddress(backEnd.interfaceRule(config), config, place.interface, place.hostName);
  if (!whole) fail(backEnd, whole.error().message);
  auto transport = ProcessTransport::instance().acquire(backEnd, whole.value());
  if (!transport) fail(backEnd, transport.error().message);
  return makeDevice(std::move(transport).value(), mode);
}

}  // namespace gloo_bypass
