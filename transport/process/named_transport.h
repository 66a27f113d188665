// A transport of this process by its name, for doors without Gloo.
#pragma once

#include <memory>
#include <string>

#include "transport/base/status.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass {

// The process's one transport of the back-end `name` (what GLOO_DEVICE_TRANSPORT says; empty: DPDK), with the settings
// of the environment; the first call makes it. `interface` as Gloo's device gets it; empty: chosen by the transport,
// from the host's name if need be. Thread: any. Errors, one line each: no back-end of that name, or this build lacks
// it; a bad setting; what ProcessTransport::acquire refuses.
Result<std::shared_ptr<Transport>> acquireTransport(const std::string& name, const std::string& interface);

}  // namespace gloo_bypass
