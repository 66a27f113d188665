// The learning rate of each step: warm-up, decay, and scaling with the global batch.
//
// The formulas are those of transformers' get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup (half a
// period of the cosine: Loshchilov and Hutter, SGDR, ICLR 2017, equation 5), with the floor of its cosine_with_min_lr.
// A rate for a batch B becomes one for the run's global batch by the linear rule (Goyal et al., Accurate, Large
// Minibatch SGD, 2017, section 2.1) or by the square root (Krizhevsky, One weird trick, 2014, section 5). Pure
// functions of the step: a resumed run needs no state. No libtorch.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

enum class ScheduleShape { kConstant, kLinear, kCosine };
enum class RateScaling { kNone, kLinear, kSquareRoot };

struct ScheduleOptions {
  ScheduleShape shape = ScheduleShape::kConstant;
  int64_t warmupSteps = 0;
  double minimumRatio = 0;  // of the highest rate, at the end of linear and cosine and after it
  int64_t steps = 0;        // at which the decay ends; 0: the run's last
  RateScaling scaling = RateScaling::kNone;
  int64_t baseBatch = 0;  // samples a step, of all ranks, that --lr is meant for; 0: not given

  // false: every step has the rate of --lr, and neither metrics nor checkpoints know of schedules.
  bool isUsed() const { return shape != ScheduleShape::kConstant || warmupSteps > 0 || scaling != RateScaling::kNone; }
};

void addScheduleOptions(CLI::App& app, ScheduleOptions& options);
// What is wrong with the options, one line; empty: nothing.
std::string crossCheck(const ScheduleOptions& options);
// `runSteps`: of the whole run, resumed or not. Adds nothing where no schedule is used.
void addToTrajectory(const ScheduleOptions& options, int64_t runSteps, nlohmann::json& trajectory);

class Schedule {
 public:
  // `rate`: of --lr; `runSteps`: of the whole run; `globalBatch`: samples a step, of all ranks. Throws UsageError where
  // the decay would end before the warm-up.
  Schedule(const ScheduleOptions& options, double rate, int64_t runSteps, int64_t globalBatch);

  // Of `step`, from 0.
  double rateOf(int64_t step) const;
  // "learning_rate", where a schedule is used.
  void addMetrics(int64_t step, nlohmann::json& record) const;

 private:
  ScheduleOptions options_;
  double rate_;  // the highest, scaled
  int64_t steps_;
};

}  // namespace gloo_bypass::trainer
