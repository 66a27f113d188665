// Gloo devices over DPDK, for the plug-in, the benchmark and any C++ program. Knows no PyTorch.
#pragma once

#include <memory>

#include <gloo/transport/device.h>

#include "transport/base/config.h"
#include "transport/gloo/connect_mode.h"

namespace gloo_bypass {

// A light handle on the process's one DPDK transport, which the first call makes (EAL, port, engine thread: tens of
// milliseconds) and which lives until the process exits. Thread: any.
// kOnDemand: each pair connects when it is first used (transport/gloo/device.h).
// Throws ::gloo::InvalidOperationException with one line that says what is wrong: a value of the configuration; a configuration other
// than the first device's (both values named); a missing device or right; a fork after DPDK was started.
std::shared_ptr<::gloo::transport::Device> makeDpdkDevice(const TransportConfig& config,
                                                          ConnectMode mode = ConnectMode::kAtOnce);

}  // namespace gloo_bypass
