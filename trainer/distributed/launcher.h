// Starts the ranks of one machine as copies of this program (--spawn N).
//
// Each child gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1), MASTER_PORT (a free one)
// and, when unset, OMP_NUM_THREADS = max(1, cores / N). How they end together: tools/common/rank_processes.h.
#pragma once

#include <string>
#include <vector>

#include "tools/common/rank_processes.h"

namespace gloo_bypass::trainer {

// Runs arguments[0] `ranks` times with `arguments`. The calling process may have no other thread. Throws ProgramError.
RanksEnd launchRanks(const std::vector<std::string>& arguments, int ranks, const RankTimes& times = {});

// The arguments without --spawn and its value, argv[0] replaced by this program's own path.
std::vector<std::string> childArguments(int argc, const char* const* argv);

}  // namespace gloo_bypass::trainer
