#include "trainer/distributed/sharding/unit_gather.h"

#include <ATen/core/grad_mode.h>

namespace gloo_bypass::trainer {

UnitGather::UnitGather(GroupCommunicator& communicator, FlatUnit& unit, const std::vector<Piece>& pieces) {
  const at::NoGradGuard noGrad;
  unit.materialize();
  // Detached: values that autograd has saved are given back as they were, which is no change to them.
  const auto whole = unit.whole().detach(), shard = unit.shard().detach();
  for (const auto& [begin, end] : pieces) {
    pending_.push_back(PendingCollective::allGather(communicator, shard.narrow(0, begin, end - begin),
                                                    unit.pieces(whole, begin, end)));
  }
}

void UnitGather::finish() {
  for (auto& collective : pending_) {
    collective.wait();
  }
}

}  // namespace gloo_bypass::trainer
