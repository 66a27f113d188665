// Publishes our counters through DPDK's telemetry socket, for dpdk-telemetry.py and similar tools: /gloo_bypass/stats,
// /gloo_bypass/peers (",N": only the channel with that number) and /gloo_bypass/histograms. Durations in nanoseconds.
#pragma once

#include <chrono>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/channel/back_end.h"

namespace gloo_bypass::dpdk {

// A turn among the processes that start DPDK with telemetry: hold it from before rte_eal_init until after it. DPDK
// takes a socket that another process has bound, but does not listen on yet, for a stale one, and removes it: both
// would then have the same path. They share `directory` (TransportConfig::dpdkDirectory). Waits at most `limit`. Empty
// if others still held the turn then, or if DPDK cannot create a runtime directory either.
FileDescriptor awaitTelemetryTurn(const std::string& directory, std::chrono::milliseconds limit);

// Registers the commands; the EAL must run with its telemetry. Once a process: a second call does nothing. DPDK's
// telemetry thread calls `report` until the process ends. Errors: kUnavailable.
Status offerTelemetry(ReportSource report);

// Path of this process's telemetry socket; empty if it has none.
std::string telemetrySocketPath();

}  // namespace gloo_bypass::dpdk
