// Gloo devices over RDMA verbs, for the plug-in, the benchmark and any C++ program. Knows no PyTorch.
#pragma once

#include <memory>

#include <gloo/transport/device.h>

#include "transport/base/config.h"
#include "transport/gloo/connect_mode.h"

namespace gloo_bypass {

// A light handle on the process's one RDMA transport, which the first call makes (libibverbs is loaded, devices are opened, an engine
// thread starts) and which lives until the process exits. Thread: any.
// kOnDemand: each pair connects when it is first used (transport/gloo/device.h).
// Throws ::gloo::InvalidOperationException with one line that says what is wrong: a value of the configuration; a configuration other
// than the first device's (both values named); libibverbs or a device missing, no active port, no fitting GID; memory that
// cannot be locked; a fork after RDMA was started.
std::shared_ptr<::gloo::transport::Device> makeRdmaDevice(const TransportConfig& config,
                                                          ConnectMode mode = ConnectMode::kAtOnce);

}  // namespace gloo_bypass
