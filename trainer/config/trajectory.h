// Which options decide the numbers that a run computes, as JSON: ranks must agree on them, and a checkpoint continues
// only under the same. No libtorch.
//
// How ranks share the model's state and computation (--zero, --model-parallel) is no part of it: a checkpoint continues
// under any of them. Ranks compare it besides (agreement()).
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

// The size of a run and its text, which decide its numbers as well.
struct RunSize {
  int64_t steps = 0;      // of the whole run, resumed or not
  int ranks = 1;          // that have samples of their own
  int64_t samples = 0;    // that are trained on
  std::string text = {};  // its fingerprint
};
nlohmann::json trajectoryOf(const Options& options, const RunSize& size);

// `trajectory`, and what ranks must have in common besides: whatever decides which exchanges they make.
nlohmann::json agreement(const Options& options, nlohmann::json trajectory, int64_t runSteps, int64_t evaluatedSamples);

// Names the first difference between two trajectories as "batch_size: 8 here, 16 there"; empty if none.
std::string firstDifference(const nlohmann::json& here, const nlohmann::json& there, const std::string& thereName);

}  // namespace gloo_bypass::trainer
