// The all-gather of a unit's parameters from the ranks' shards, in pieces. Begun by the constructor, so that it goes on
// beside what the caller computes until finish(). Every rank begins and finishes in the same order. One thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/sharding/collectives.h"
#include "trainer/distributed/sharding/flat_unit.h"

namespace gloo_bypass::trainer {

// [begin, end) of every rank's shard.
using Piece = std::pair<int64_t, int64_t>;

class UnitGather {
 public:
  // Gives the unit memory, whose values are undefined until finish() returns; the unit must not be released before.
  UnitGather(GroupCommunicator& communicator, FlatUnit& unit, const std::vector<Piece>& pieces);
  // Throws what Gloo does where a peer is lost.
  void finish();

 private:
  std::vector<PendingCollective> pending_;
};

}  // namespace gloo_bypass::trainer
