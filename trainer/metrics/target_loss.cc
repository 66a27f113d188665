#include "trainer/metrics/target_loss.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/statistics.h"
#include "trainer/metrics/metrics.h"

namespace gloo_bypass::trainer {
namespace {

// state_: these, then a ring of the last losses.
constexpr size_t kSeconds = 0, kTokens = 1, kBytes = 2, kSteps = 3, kLosses = 4;

}  // namespace

TargetLoss::TargetLoss(const TargetLossOptions& options)
    : options_(options), state_(options.isUsed() ? kLosses + static_cast<size_t>(options.window) : 0) {}

std::optional<double> TargetLoss::smoothed() const {
  if (!options_.isUsed() || state_[kSteps] < static_cast<double>(options_.window)) {
    return std::nullopt;
  }
  return mean(std::span<const double>(state_).subspan(kLosses));
}

bool TargetLoss::isReached() const {
  const auto loss = smoothed();
  return loss && *loss <= options_.loss;
}

void TargetLoss::resumed(bool isRoot) { haveBytes_ = isRoot || !options_.isUsed() || state_[kSteps] == 0; }

bool TargetLoss::isReachedBy(const StepMetrics& step) {
  if (!options_.isUsed()) {
    return false;
  }
  const auto slot = static_cast<size_t>(state_[kSteps]) % static_cast<size_t>(options_.window);
  state_[kLosses + slot] = step.bestLoss().value();  // with a target steps end together, or there is one rank
  state_[kSteps] += 1;
  state_[kSeconds] += step.stepSeconds;
  state_[kTokens] += static_cast<double>(step.tokens);
  state_[kBytes] += static_cast<double>(step.bytesSent.value_or(0));
  haveBytes_ = haveBytes_ && step.bytesSent.has_value();
  return isReached();
}

void TargetLoss::addSummary(nlohmann::json& summary) const {
  if (!options_.isUsed()) {
    return;
  }
  const auto ifReached = [&](double value) { return isReached() ? nlohmann::json(value) : nlohmann::json(nullptr); };
  const auto count = [&](size_t index) {
    return isReached() ? nlohmann::json(static_cast<int64_t>(state_[index])) : nlohmann::json(nullptr);
  };
  summary["target_loss"] = options_.loss;
  summary["target_window"] = options_.window;
  summary["steps_to_target"] = count(kSteps);
  summary["seconds_to_target"] = ifReached(state_[kSeconds]);
  summary["tokens_to_target"] = count(kTokens);
  summary["bytes_to_target"] = haveBytes_ ? count(kBytes) : nlohmann::json(nullptr);
}

std::string TargetLoss::shortfall() const {
  if (!options_.isUsed() || isReached()) {
    return {};
  }
  const auto loss = smoothed();
  return fmt::format("the loss of {} was not reached in {} steps: {}", options_.loss, state_[kSteps],
                     loss ? fmt::format("the mean of the last {} is {:.6g}", options_.window, *loss)
                          : fmt::format("they do not fill --target-window {}", options_.window));
}

std::string TargetLoss::stateName() const { return fmt::format("target_loss.{}", options_.window); }

}  // namespace gloo_bypass::trainer
