// What one rank of `tune` does: a group for each number of ranks and algorithm, and times of every kind and size over
// all of them in turn. One thread; transports bring their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "transport/compatibility/gloo/rendezvous.h"

namespace gloo_bypass {

struct TuneOptions {
  int ranks = 0;  // 0: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say
  std::string transport = "UDP";
  std::vector<int> groups;  // numbers of ranks; empty: powers of two, and all
  std::uint64_t minBytes = 4, maxBytes = 16 << 20, factor = 4;
  int rounds = 3;
  double tolerance = 0.05;
  std::string storeDirectory, outputPath;
  double timeoutSeconds = 60, deadlineSeconds = 3600;
};

// Rank 0 returns {"choices": what ChoiceTable::text writes, "table": lines for people}; the others null. Throws
// ProgramError, which names the rank and what it was doing.
nlohmann::json tuneAsRank(const TuneOptions& options, int rank, int size, const gloo_version::StorePointer& store);

}  // namespace gloo_bypass
