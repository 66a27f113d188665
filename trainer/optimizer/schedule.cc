#include "trainer/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

double scaledRate(const ScheduleOptions& options, double rate, int64_t globalBatch) {
  if (options.scaling == RateScaling::kNone) {
    return rate;
  }
  const double ratio = static_cast<double>(globalBatch) / static_cast<double>(options.baseBatch);
  return rate * (options.scaling == RateScaling::kLinear ? ratio : std::sqrt(ratio));
}

}  // namespace

Schedule::Schedule(const ScheduleOptions& options, double rate, int64_t runSteps, int64_t globalBatch)
    : options_(options), rate_(scaledRate(options, rate, globalBatch)), steps_(options.endOfDecay(runSteps)) {
  if (options.shape != ScheduleShape::kConstant && options.warmupSteps >= steps_) {
    throw UsageError(fmt::format("--warmup-steps {}: the schedule has {} steps, and some must be left to decay",
                                 options.warmupSteps, steps_));
  }
}

double Schedule::rateOf(int64_t step) const {
  if (step < options_.warmupSteps) {
    return rate_ * (static_cast<double>(step) / static_cast<double>(options_.warmupSteps));
  }
  if (options_.shape == ScheduleShape::kConstant) {
    return rate_;
  }
  const double progress = std::min(
      1.0, static_cast<double>(step - options_.warmupSteps) / static_cast<double>(steps_ - options_.warmupSteps));
  const double left =
      options_.shape == ScheduleShape::kLinear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return rate_ * (options_.minimumRatio + (1 - options_.minimumRatio) * left);
}

void Schedule::addMetrics(int64_t step, nlohmann::json& record) const {
  if (options_.isUsed()) {
    record["learning_rate"] = rateOf(step);
  }
}

}  // namespace gloo_bypass::trainer
