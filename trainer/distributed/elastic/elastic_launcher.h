// Starts the ranks of an elastic run on this machine and restarts the group when one fails: torchrun's way
// (--nnodes=MIN:MAX,
// --max-restarts), with a place a rank instead of a node.
//
//            +------------- restart: the places that are healthy, at least MIN ---------------+
//            v                                                                                |
//   start -> running --- all exit 0 ---------------------------------------> done             |
//               |  +---- SIGINT, SIGTERM, SIGHUP, or status 2 or 127 ------> ended            |
//               +------- a rank fails: the others end (RankProcesses) --> enough left? -------+
//                                                                            | no
//                                                                            +-> ended, with each failure named
#pragma once

#include <string>
#include <vector>

#include "tools/common/rank_processes.h"
#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

// The calling process may have no other thread. `arguments` as in launchRanks(). Throws ProgramError.
RanksEnd launchElastic(const std::vector<std::string>& arguments, const Options& options, const RankTimes& times = {});

}  // namespace gloo_bypass::trainer
