// Connects a rank with all others of its group. Private to collectives/network.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/network/peer.h"
#include "collectives/rendezvous.h"

namespace gloo_bypass::collectives {

struct MeshTimes {
  std::chrono::milliseconds connect;  // of all of it
  std::chrono::milliseconds silence;  // of a channel's peer, from then on
};

// Opens a channel of `transport` for every peer, publishes their addresses under one key ("network/RANK"), and
// connects. `peers` by rank, null for this one; the channels stay open after an error. Errors: kTimedOut names the
// ranks that have not come; kConfiguration: of another version or settings, with both values; kPeerViolatedProtocol: an
// unsound value; the transport's, the store's. Blocks, without exclusive access.
Status connectMesh(int rank, const MeshTimes& times, Transport& transport, Rendezvous& rendezvous,
                   std::span<const std::unique_ptr<Peer>> peers);

// "rank 3", "ranks 1, 2 and 5"
std::string inWords(const std::vector<int>& ranks);

}  // namespace gloo_bypass::collectives
