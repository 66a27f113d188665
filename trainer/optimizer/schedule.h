// The learning rate of each step: warm-up, decay, and scaling with the global batch.
//
// The formulas are those of transformers' get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup (half a
// period of the cosine: Loshchilov and Hutter, SGDR, ICLR 2017, equation 5), with the floor of its cosine_with_min_lr.
// A rate for a batch B becomes one for the run's global batch by the linear rule (Goyal et al., Accurate, Large
// Minibatch SGD, 2017, section 2.1) or by the square root (Krizhevsky, One weird trick, 2014, section 5). Pure
// functions of the step: a resumed run needs no state. No libtorch.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

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
