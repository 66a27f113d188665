// One rank's training run, from options to the last record.
#pragma once

#include "trainer/config/options.h"
#include "trainer/distributed/rank_environment.h"

namespace gloo_bypass::trainer {

// Trains and writes metrics, checkpoints and the final record. Throws ProgramError, c10::Error, or what Gloo throws
// when a peer is lost; connections may then still be open, so the caller ends the process without unwinding further.
void train(const Options& options, const RankEnvironment& environment);

}  // namespace gloo_bypass::trainer
