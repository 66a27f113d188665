#include "trainer/metrics/divergence.h"

#include <cmath>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/files/finite.h"

namespace gloo_bypass::trainer {
namespace {

// Halving the largest loss scale so often makes it 1: gradients that are infinite even then do not come from the scale.
constexpr int64_t kMostStepsLeftOut = 128;

std::string textOf(double loss) { return std::isfinite(loss) ? fmt::format("{:g}", loss) : nameOfNotFinite(loss); }

}  // namespace

std::string divergenceAt(const StepMetrics& metrics, int64_t stepsLeftOut) {
  if (metrics.loss && !std::isfinite(*metrics.loss)) {
    return fmt::format("step {}: the loss is {}", metrics.step, textOf(*metrics.loss));
  }
  if (metrics.meanLoss && !std::isfinite(*metrics.meanLoss)) {
    return fmt::format("step {}: the mean over ranks of the loss is {}, this rank's is {}", metrics.step,
                       textOf(*metrics.meanLoss), metrics.loss ? textOf(*metrics.loss) : "none");
  }
  return stepsLeftOut <= kMostStepsLeftOut
             ? ""
             : fmt::format("step {}: gradients were not finite in {} steps in a row, whatever the loss scale",
                           metrics.step, stepsLeftOut);
}

std::string divergenceAt(int64_t step, double evaluatedLoss) {
  return std::isfinite(evaluatedLoss)
             ? ""
             : fmt::format("step {}: the loss on samples not trained on is {}", step, textOf(evaluatedLoss));
}

void requireNoDivergence(const std::string& reason) {
  if (!reason.empty()) {
    throw LastingError(reason + ": the run has diverged; lower --lr, or set --clip-norm");
  }
}

}  // namespace gloo_bypass::trainer
