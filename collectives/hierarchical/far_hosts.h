// Whether hosts are so far from each other that what matters is the number of trips between them. Then their ranks use
// channels alone, whose operations share their trips (network_operations.h); else also each host's memory, where an
// operation waits for the one before (hierarchical_executor.h).
#pragma once

#include "collectives/network/network_executor.h"
#include "collectives/schedule/hosts.h"

namespace gloo_bypass::collectives {

inline constexpr Duration kFarAway = std::chrono::milliseconds(5);

// The longest round trip between two hosts: of the paths of all their ranks, either way, the shortest, since one rank's
// measurements are long while it waits for a core; and if it is far, of three measurements. All ranks get the same.
// Call it in all of them, before anything else goes over `network`; the numbers of runAmong() go on after
// kDistanceOperations. Errors: as NetworkExecutor::runAmong.
inline constexpr std::uint64_t kDistanceOperations = 6;
Result<Duration> longestRoundTrip(const Hosts& hosts, NetworkExecutor& network, TimePoint deadline);

}  // namespace gloo_bypass::collectives
