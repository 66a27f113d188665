// Brings the ranks of a run together, and chooses how they train.
#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"
#include "trainer/distributed/communicator.h"
#include "trainer/distributed/held_model.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/distributed/rank_environment.h"

namespace gloo_bypass::trainer {

struct ConnectedRanks {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Parallelism> parallelism;  // ends before the communicator
};

// Meets the other ranks, which must have the same `agreement`, and gives all of them rank 0's values of `held`. `held`
// and `options` must outlive the result. Throws what GroupCommunicator's constructor throws.
ConnectedRanks connectRanks(const Options& options, const RankEnvironment& environment, const nlohmann::json& agreement,
                            HeldModel& held);

}  // namespace gloo_bypass::trainer
