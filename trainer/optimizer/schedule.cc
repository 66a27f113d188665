#include "trainer/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/config/given.h"
#include "trainer/config/named_choices.h"

namespace gloo_bypass::trainer {
namespace {

const NamedChoices<ScheduleShape> kShapes{
    {"constant", ScheduleShape::kConstant}, {"linear", ScheduleShape::kLinear}, {"cosine", ScheduleShape::kCosine}};
const NamedChoices<RateScaling> kScalings{
    {"none", RateScaling::kNone}, {"linear", RateScaling::kLinear}, {"sqrt", RateScaling::kSquareRoot}};

double scaledRate(const ScheduleOptions& options, double rate, int64_t globalBatch) {
  if (options.scaling == RateScaling::kNone) {
    return rate;
  }
  const double ratio = static_cast<double>(globalBatch) / static_cast<double>(options.baseBatch);
  return rate * (options.scaling == RateScaling::kLinear ? ratio : std::sqrt(ratio));
}

int64_t decayEnd(const ScheduleOptions& options, int64_t runSteps) {
  return options.steps > 0 ? options.steps : runSteps;
}

}  // namespace

void addScheduleOptions(CLI::App& app, ScheduleOptions& o) {
  const char* group = "Learning rate (of AdamW, from --lr)";
  app.add_option_function<std::string>(
         "--schedule", [&o](const std::string& text) { o.shape = kShapes.at(text); },
         "after the warm-up: constant, or linear or cosine decay to --min-lr-ratio of the highest rate at the run's "
         "last step")
      ->check(CLI::IsMember({"constant", "linear", "cosine"}))
      ->group(group)
      ->default_str("constant");
  app.add_option("--warmup-steps", o.warmupSteps,
                 "steps in which the rate grows linearly from 0; the first step's is 0")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group(group);
  app.add_option("--min-lr-ratio", o.minimumRatio, "what the decay leaves of the highest rate")
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  app.add_option("--schedule-steps", o.steps,
                 "the step at which the decay ends, if not the run's last (0): for a run in several "
                 "parts, or one that goes on at the lowest rate")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group(group);
  app.add_option_function<std::string>(
         "--lr-scaling", [&o](const std::string& text) { o.scaling = kScalings.at(text); },
         "multiply --lr by (samples a step of all ranks, or of one with --average asynchronous, / --lr-base-batch): "
         "linear, by the root of it: sqrt")
      ->check(CLI::IsMember({"none", "linear", "sqrt"}))
      ->group(group)
      ->default_str("none");
  app.add_option("--lr-base-batch", o.baseBatch, "samples a step, of all ranks, that --lr is meant for (0: not given)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group(group);
}

std::string crossCheck(const ScheduleOptions& o) {
  if (o.scaling != RateScaling::kNone && o.baseBatch == 0) {
    return "--lr-scaling needs --lr-base-batch B, the samples a step that --lr is meant for";
  }
  if (o.scaling == RateScaling::kNone && o.baseBatch != 0) {
    return "--lr-base-batch means nothing without --lr-scaling linear or sqrt";
  }
  const std::string ofDecay = firstGiven({{o.minimumRatio > 0, "--min-lr-ratio"}, {o.steps > 0, "--schedule-steps"}});
  if (o.shape == ScheduleShape::kConstant && !ofDecay.empty()) {
    return ofDecay + " is for --schedule linear and cosine";
  }
  return {};
}

void addToTrajectory(const ScheduleOptions& o, int64_t runSteps, nlohmann::json& trajectory) {
  if (!o.isUsed()) {
    return;
  }
  trajectory["schedule"] = nameOf(kShapes, o.shape);
  trajectory["warmup_steps"] = o.warmupSteps;
  trajectory["lr_scaling"] = nameOf(kScalings, o.scaling);
  trajectory["lr_base_batch"] = o.baseBatch;
  if (o.shape != ScheduleShape::kConstant) {
    trajectory["min_lr_ratio"] = o.minimumRatio;
    trajectory["schedule_steps"] = decayEnd(o, runSteps);
  }
}

Schedule::Schedule(const ScheduleOptions& options, double rate, int64_t runSteps, int64_t globalBatch)
    : options_(options), rate_(scaledRate(options, rate, globalBatch)), steps_(decayEnd(options, runSteps)) {
  if (options.shape != ScheduleShape::kConstant && options.warmupSteps >= steps_) {
    throw UsageError(fmt::format("--warmup-steps {}: the schedule has {} steps, of which some must be left to decay",
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
