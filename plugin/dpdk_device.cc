#include "plugin/dpdk_device.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "plugin/process_transport.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/telemetry.h"
#include "transport/gloo/device.h"
#include "transport/io/datagram_transport.h"

namespace gloo_bypass {
namespace {

// The socket's path is DPDK's choice, so it is said.
Status startTelemetry(const TransportConfig& config) {
  Status offered = offerTelemetry([] { return ProcessTransport::instance().countersJson(BackEnd::kDpdk); });
  if (!offered) return offered;
  const std::string path = telemetrySocketPath();
  if (path.empty()) {
    return {ErrorScope::kDevice, ErrorCode::kUnavailable,
            "GLOO_BYPASS_TELEMETRY='on': DPDK made no telemetry socket; is XDG_RUNTIME_DIR (for root: /var/run/dpdk) writable?"};
  }
  std::fprintf(stderr, "gloo-bypass: %sprocess %d: telemetry at %s\n",
               config.rank.empty() ? "" : fmt::format("rank {}, ", config.rank).c_str(), getpid(), path.c_str());
  return {};
}

Result<std::shared_ptr<Transport>> makeDpdkTransport(const TransportConfig& config) {
  auto port = makeDpdkPort(config);
  if (!port) return port.error();
  if (config.telemetry) {
    if (Status status = startTelemetry(config); !status) return status.error();
  }
  return makeDatagramTransport(config, std::move(port).value());
}

}  // namespace

std::shared_ptr<::gloo::transport::Device> makeDpdkDevice(const TransportConfig& config, ConnectMode mode) {
  auto transport = ProcessTransport::instance().acquire(BackEnd::kDpdk, config, makeDpdkTransport);
  if (!transport) throw ::gloo::InvalidOperationException("DPDK transport: " + transport.error().message);
  return makeDevice(std::move(transport).value(), mode);
}

}  // namespace gloo_bypass
