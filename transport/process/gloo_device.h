// Gloo devices over the process's transports, for the plug-in, the device library, the tools and any C++ program.
// Independent of PyTorch.
#pragma once

#include <memory>
#include <string>

#include <gloo/transport/device.h>

#include "transport/base/config.h"
#include "transport/channel/back_end.h"
#include "transport/gloo/connect_mode.h"

namespace gloo_bypass {

// Where Gloo should communicate: an interface's name (GLOO_SOCKET_IFNAME), or a host name that leads to one; both may
// be empty.
struct GlooPlace {
  std::string interface;
  std::string hostName;
};

// A light handle on the process's one transport of this back-end; the first call makes that (tens of milliseconds), and
// it lives until the process exits. Thread: any. kOnDemand: each pair connects when it is first used
// (transport/gloo/device.h). Throws ::gloo::InvalidOperationException with one line, "DPDK transport: ...": this build
// lacks the back-end; a bad value in the configuration; a configuration other than the first device's (with both
// values); an interface that is missing or contradicts the configuration's; a missing device or permission; a fork
// after the transport's start.
std::shared_ptr<::gloo::transport::Device> makeGlooDevice(const BackEnd& backEnd, const TransportConfig& config,
                                                          const GlooPlace& place,
                                                          ConnectMode mode = ConnectMode::kAtOnce);

}  // namespace gloo_bypass
