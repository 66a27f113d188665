// What the process's environment says: the only place of the project's libraries that reads it.
// Thread: any, as long as nobody changes the environment meanwhile (getenv's rule).
#pragma once

#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass {

// One validated configuration from the GLOO_BYPASS_* variables; see plugin/settings.h for names and ranges. In `stats`, %r has
// been replaced by RANK. An empty memifDirectory has been filled in. Errors: kConfiguration, one line naming the variable, its
// value and what is allowed.
Result<TransportConfig> configurationFromEnvironment();

// GLOO_DEVICE_TRANSPORT, which PyTorch reads to choose a transport; empty if not set.
std::string requestedDeviceTransport();

}  // namespace gloo_bypass
