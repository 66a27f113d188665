// Trains until a loss is reached and counts what that took: the measure to compare ways of training.
//
// The loss of a step is its mean over all ranks. It is smoothed by the mean over the last `window` steps, since single
// batches differ; before so many are done, nothing is reached. Every rank holds the same losses, so all end at the same
// step. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

struct StepMetrics;

class TargetLoss {
 public:
  explicit TargetLoss(const TargetLossOptions& options);

  // After every step; whether the run is to end with it.
  bool isReachedBy(const StepMetrics& step);

  // With the losses so far, which may be a checkpoint's.
  bool isReached() const;
  // Call where state() now is a checkpoint's. Its bytes are rank 0's: another rank's are not known.
  void resumed(bool isRoot);

  // {"target_loss", "target_window", "steps_to_target", "seconds_to_target", "tokens_to_target", "bytes_to_target"},
  // the last four null while it is not reached; nothing without a target. Bytes are those that this rank sent, null
  // where nobody counts them.
  void addSummary(nlohmann::json& summary) const;
  // The line for a target that was not reached; empty otherwise.
  std::string shortfall() const;

  // A resumed run needs seconds, tokens, bytes, steps and the last losses. Empty without a target. Lives as long as
  // this object, which works on it.
  std::span<double> state() { return state_; }
  // Names state() in a checkpoint. Another window has another name, and begins anew.
  std::string stateName() const;

 private:
  std::optional<double> smoothed() const;

  TargetLossOptions options_;
  std::vector<double> state_;
  bool haveBytes_ = true;
};

}  // namespace gloo_bypass::trainer
