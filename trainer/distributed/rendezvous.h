// The store through which ranks meet, and the check that they belong together.
#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>
#include <nlohmann/json_fwd.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer/distributed/rank_environment.h"

namespace gloo_bypass::trainer {

// Connects to (rank 0: serves) the store at MASTER_ADDR:MASTER_PORT; in memory for a rank that no launcher started.
// Throws ProgramError, at the latest after `timeout`.
c10::intrusive_ptr<c10d::Store> connectStore(const RankEnvironment& environment, std::chrono::milliseconds timeout);

// Returns when all ranks are there and agree. Throws ProgramError on every rank when one says otherwise: another
// world size, other options that decide the result, the same rank twice, or ranks missing at the timeout.
void meetRanks(const c10::intrusive_ptr<c10d::Store>& store, const RankEnvironment& environment,
               const nlohmann::json& trajectory, std::chrono::milliseconds timeout);

}  // namespace gloo_bypass::trainer
