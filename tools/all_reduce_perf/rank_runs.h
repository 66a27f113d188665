// Runs the ranks of a measuring program: all of them here, or this process as one of several. They meet in a store, and
// rank 0's body returns the report.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "transport/compatibility/gloo/rendezvous.h"

namespace gloo_bypass {

struct RunOptions {
  const char* program = "";                      // for messages
  int ranks = 0;                                 // of runRanks
  std::string storeDirectory;                    // of runGivenRank: ranks meet in this folder, not at MASTER_ADDR
  std::chrono::milliseconds timeout{};           // of a wait in the store
  std::chrono::duration<double> deadline{3600};  // --deadline: of a run by runRanks
};

using RankBody = std::function<nlohmann::json(int rank, int size, const gloo_version::StorePointer& store)>;

// In processes of their own. Throws ProgramError with what the ranks said, once each.
nlohmann::json runRanks(const RunOptions& options, const RankBody& body);

// As RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say; rank 0 gets the report. Throws UsageError, ProgramError.
std::optional<nlohmann::json> runGivenRank(const RunOptions& options, const RankBody& body);

}  // namespace gloo_bypass
