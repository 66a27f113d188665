// Our counters through DPDK's telemetry socket, for dpdk-telemetry.py and its like: /gloo_bypass/stats, /gloo_bypass/peers (",N": the
// channel with that number only) and /gloo_bypass/histograms. Durations in nanoseconds.
#pragma once

#include <functional>
#include <string>

#include "transport/base/status.h"

namespace gloo_bypass {

// Registers the commands; the EAL must have been started with its telemetry. Once a process: a second call does nothing.
// `countersJson`: as Transport::countersJson, or "{}" when there is no transport any more; called on DPDK's telemetry thread
// until the process ends. Errors: kUnavailable.
Status offerTelemetry(std::function<std::string()> countersJson);

// Path of this process's telemetry socket; empty if it has none.
std::string telemetrySocketPath();

}  // namespace gloo_bypass
