// Reads the process's environment; no other code of the project's libraries does. Thread: any, as long as no thread
// changes the environment meanwhile (getenv's rule).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/process/settings.h"

namespace gloo_bypass {

// One validated configuration from the GLOO_BYPASS_* variables; see transport/process/settings.h for names and ranges.
// Replaces %r in `stats` by RANK and fills in an empty memifDirectory. Errors: kConfiguration, one line with the
// variable, its value and the allowed values.
Result<TransportConfig> configurationFromEnvironment();

// The two steps of it, for a program that adds its own settings in between. The first returns the GLOO_BYPASS_*
// variables unchecked, without those that others set (transport/process/foreign_variables.h); it names these in one
// line a process on stderr. The second makes the configuration from such texts, with errors as above. RANK, and the
// directory for memif, come from the environment.
std::vector<SettingText> settingsInEnvironment();
Result<TransportConfig> configurationFrom(std::span<const SettingText> texts);

// GLOO_DEVICE_TRANSPORT, which PyTorch reads to choose a transport; empty if not set.
std::string requestedDeviceTransport();

// Why Gloo's own transports must not be used: GLOO_BYPASS_SECURITY asks for encryption. One line; empty: they may.
std::string whyNotGloosTransports();

// GLOO_SOCKET_IFNAME, which PyTorch reads to choose where to communicate: one interface or a comma-separated list;
// empty if not set.
std::string requestedInterfaces();

}  // namespace gloo_bypass
