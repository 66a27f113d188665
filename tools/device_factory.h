// Gloo devices by transport name: the only place of tools/ that knows which transports there are.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <gloo/transport/device.h>

namespace gloo_bypass {

// As PyTorch's device registry: an interface, or a host name whose address names one; both empty leaves it to the transport.
struct DeviceOptions {
  std::string interface;
  std::string hostname;
};

// The last is Gloo's own transport over verbs, to compare with.
inline constexpr std::string_view kTransports[] = {"TCP", "DPDK", "RDMA", "GLOO_IBVERBS"};
// "TCP, DPDK, RDMA, GLOO_IBVERBS"
std::string knownTransports();
// One line if `transport` is unknown or was not built in; empty if it can be made. Names are matched exactly, as PyTorch does.
std::string transportProblem(std::string_view transport);
// Whether its devices know bound buffers only, as an older Gloo's over verbs: no gloo::allreduce, no gloo::barrier.
bool hasBoundBuffersOnly(std::string_view transport);
// Throws PerfError (bad configuration, missing device) or what Gloo throws.
std::shared_ptr<::gloo::transport::Device> makeDevice(std::string_view transport, const DeviceOptions& options);

}  // namespace gloo_bypass
