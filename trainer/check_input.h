// What can be checked without the other ranks, so that --spawn reports a fault once instead of once a rank.
#pragma once

#include "trainer/config/options.h"
#include "trainer/distributed/rank_environment.h"

namespace gloo_bypass::trainer {

// Memory, text, files, transport and step markers. Throws ProgramError.
void checkInput(const Options& options);

// Before train(): what a rank can check by itself, and the counting of tensors' memory. Throws UsageError where the
// options do not fit the number of ranks, or the model this machine's memory.
void prepareRank(const Options& options, const RankEnvironment& environment);

}  // namespace gloo_bypass::trainer
