// Gloo devices by transport name: this project's back-ends (transport/process/back_ends.h), and Gloo's own transports
// to compare them with.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gloo/transport/device.h>

#include "transport/process/gloo_device.h"

namespace gloo_bypass {

// TCP, this project's, GLOO_IBVERBS; those that this build lacks too.
std::vector<std::string> transportNames();
// "TCP, DPDK, UDP, RDMA, GLOO_IBVERBS"
std::string knownTransports();
// One line if `transport` is unknown or was not built in; empty if it can be made. Names are matched exactly, as
// PyTorch does.
std::string transportProblem(std::string_view transport);
// Whether its devices know bound buffers only, as an older Gloo's over verbs: no gloo::allreduce, no gloo::barrier.
bool hasBoundBuffersOnly(std::string_view transport);
// Whether our own collectives run over it: it is a transport of this project.
bool hasOwnCollectives(std::string_view transport);
// `place` with both texts empty leaves it to the transport.
// Throws ProgramError (bad configuration, missing device) or what Gloo throws.
std::shared_ptr<::gloo::transport::Device> makeDevice(std::string_view transport, const GlooPlace& place);

}  // namespace gloo_bypass
