// The groups of ranks of a run whose ranks share models: a mesh of copies of the model by parts of a copy (MeshPlace).
//
// Shoeybi et al. 2019, "Megatron-LM", section 3 and appendix B.1: model parallelism within groups of ranks, data
// parallelism between them.
#pragma once

#include <memory>

#include "trainer/config/options.h"
#include "trainer/distributed/group_communicator.h"

namespace gloo_bypass::trainer {

class ModelMesh {
 public:
  // Connects the groups. `all` must outlive it.
  ModelMesh(GroupCommunicator& all, const ModelParallelOptions& options);

  GroupCommunicator& all() { return all_; }
  // The ranks that share this one's copy, part 0 first.
  GroupCommunicator& parts() { return parts_ ? *parts_ : all_; }
  // The ranks that have this one's part, of copy 0 first; null where there is one copy.
  GroupCommunicator* copies() { return copies_.get(); }

 private:
  GroupCommunicator& all_;
  std::unique_ptr<GroupCommunicator> parts_, copies_;  // null where they would be all ranks, or this one alone
};

}  // namespace gloo_bypass::trainer
