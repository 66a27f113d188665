// Our counters through DPDK's telemetry socket, for dpdk-telemetry.py and its like: /gloo_bypass/stats,
// /gloo_bypass/peers (",N": the channel with that number only) and /gloo_bypass/histograms. Durations in nanoseconds.
#pragma once

#include <chrono>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/channel/back_end.h"

namespace gloo_bypass::dpdk {

// A turn among the processes that start DPDK with telemetry: to be kept from before rte_eal_init until after it. DPDK
// takes a socket that another process has bound, but does not listen at yet, for one left behind, and removes it: both
// would have the same path then. `directory` (TransportConfig::dpdkDirectory) is theirs in common. Waits at most
// `limit`. Empty where others had not done by then, or where DPDK can make no runtime directory either.
FileDescriptor awaitTelemetryTurn(const std::string& directory, std::chrono::milliseconds limit);

// Registers the commands; the EAL must have been started with its telemetry. Once a process: a second call does
// nothing. `report` is called on DPDK's telemetry thread until the process ends. Errors: kUnavailable.
Status offerTelemetry(ReportSource report);

// Path of this process's telemetry socket; empty if it has none.
std::string telemetrySocketPath();

}  // namespace gloo_bypass::dpdk
