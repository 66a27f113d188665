#include "plugin/rdma_device.h"

#include <utility>

#include <gloo/common/error.h>

#include "plugin/process_transport.h"
#include "transport/gloo/device.h"
#include "transport/verbs/verbs_transport.h"

namespace gloo_bypass {
namespace {

// libibverbs is looked for here, so that a program that never asks for RDMA needs none.
Result<std::shared_ptr<Transport>> makeRdmaTransport(const TransportConfig& config) {
  const auto verbs = systemVerbs();
  if (!verbs) return verbs.error();
  return makeVerbsTransport(*verbs.value(), config);
}

}  // namespace

std::shared_ptr<::gloo::transport::Device> makeRdmaDevice(const TransportConfig& config, ConnectMode mode) {
  auto transport = ProcessTransport::instance().acquire(BackEnd::kRdma, config, makeRdmaTransport);
  if (!transport) throw ::gloo::InvalidOperationException("RDMA transport: " + transport.error().message);
  return makeDevice(std::move(transport).value(), mode);
}

}  // namespace gloo_bypass
