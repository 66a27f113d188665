// Each pair of ranks over its best transport: one that shares memory where the two can, one over the network otherwise.
// Both are whole transports (seam 1) that one engine drives. Both ends ask the same question of the same two addresses,
// so they choose alike.
//
// A channel opens one of each, since its address holds both, and closes the other when it connects. While no pair over
// the network has connected, that transport is polled for its timers only; two_ways.h says in which of the two the
// driver sleeps.
//
// Counters: both's sums; a channel's number is the inner one's, doubled, plus one for the network's.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/sessions/polled_transport.h"

namespace gloo_bypass::pairs {

// Both without an engine. `memory` was made with network's doorbell(), which is one.
std::shared_ptr<Transport> makePairsTransport(const TransportConfig& config, std::unique_ptr<PolledTransport> memory,
                                              std::unique_ptr<PolledTransport> network);

}  // namespace gloo_bypass::pairs
