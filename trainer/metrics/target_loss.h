// Training until a loss is reached, and what that took: the measure by which ways of training can be compared.
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

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

struct StepMetrics;

struct TargetLossOptions {
  double loss = 0;     // the run ends at or below it; 0: no target
  int64_t window = 1;  // steps

  bool isUsed() const { return loss > 0; }
};

void addTargetLossOptions(CLI::App& app, TargetLossOptions& options);
// `barrier`: steps end in one, without which the mean over ranks is unknown; `isAsynchronous`: they have none, unasked.
// One line; empty: nothing is wrong.
std::string crossCheck(const TargetLossOptions& options, bool barrier, bool isAsynchronous);

class TargetLoss {
 public:
  explicit TargetLoss(const TargetLossOptions& options);

  // After every step; whether the run is to end with it.
  bool isReachedBy(const StepMetrics& step);

  // With the losses so far, which may be a checkpoint's.
  bool isReached() const;
  // state() is a checkpoint's, and its bytes are rank 0's: another rank's are not known.
  void forgetBytes();

  // {"target_loss", "target_window", "steps_to_target", "seconds_to_target", "tokens_to_target", "bytes_to_target"},
  // the last four null while it is not reached; nothing without a target. Bytes are those that this rank sent, null
  // where nobody counts them.
  void addSummary(nlohmann::json& summary) const;
  // What to say where there is a target and it was not reached; empty otherwise.
  std::string shortfall() const;

  // What a resumed run goes on with: seconds, tokens, bytes, steps and the last losses. Empty without a target. Lives
  // as long as this object and is what it works on.
  std::span<double> state() { return state_; }
  // Of state() in a checkpoint; another window has another name, and begins anew.
  std::string stateName() const;

 private:
  std::optional<double> smoothed() const;

  TargetLossOptions options_;
  std::vector<double> state_;
  bool haveBytes_ = true;
};

}  // namespace gloo_bypass::trainer
