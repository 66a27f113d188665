#include "plugin/dpdk_device.h"

#include <utility>

#include <gloo/common/error.h>

#include "plugin/process_transport.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/gloo/device.h"
#include "transport/io/datagram_transport.h"

namespace gloo_bypass {
namespace {

Result<std::shared_ptr<Transport>> makeDpdkTransport(const TransportConfig& config) {
  auto port = makeDpdkPort(config);
  if (!port) return port.error();
  return makeDatagramTransport(config, std::move(port).value());
}

}  // namespace

std::shared_ptr<::gloo::transport::Device> makeDpdkDevice(const TransportConfig& config) {
  auto transport = ProcessTransport::instance().acquire(BackEnd::kDpdk, config, makeDpdkTransport);
  if (!transport) throw ::gloo::InvalidOperationException("DPDK transport: " + transport.error().message);
  return makeDevice(std::move(transport).value());
}

}  // namespace gloo_bypass
