// What the process's environment says: the only place of the project's libraries that reads it.
// Thread: any, as long as nobody changes the environment meanwhile (getenv's rule).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/process/settings.h"

namespace gloo_bypass {

// One validated configuration from the GLOO_BYPASS_* variables; see transport/process/settings.h for names and ranges.
// In `stats`, %r has been replaced by RANK. An empty memifDirectory has been filled in. Errors: kConfiguration, one
// line naming the variable, its value and what is allowed.
Result<TransportConfig> configurationFromEnvironment();

// The two steps of it, for a program that puts settings of its own between them: the GLOO_BYPASS_* variables as they
// are, unchecked, but for those that others set (transport/process/foreign_variables.h), which one line a process names
// on stderr; and the configuration from any such texts, with errors as above. RANK, and the directory for memif, come
// from the environment.
std::vector<SettingText> settingsInEnvironment();
Result<TransportConfig> configurationFrom(std::span<const SettingText> texts);

// GLOO_DEVICE_TRANSPORT, which PyTorch reads to choose a transport; empty if not set.
std::string requestedDeviceTransport();

// GLOO_SOCKET_IFNAME, which PyTorch reads to choose where to communicate: an interface, or several, commas between;
// empty if not set.
std::string requestedInterfaces();

}  // namespace gloo_bypass
