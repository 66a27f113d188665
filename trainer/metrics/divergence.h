// Whether a run has diverged: what it computes is no number any more, and no later step mends that. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/metrics/metrics.h"

namespace gloo_bypass::trainer {

// Why a run must not go on after this step, in one line; empty: it may. Loss scaling leaves out steps whose gradients
// are not finite, `stepsLeftOut` of them in a row up to this one, but no scale mends a loss that is not.
std::string divergenceAt(const StepMetrics& metrics, int64_t stepsLeftOut);
// The same for the loss of an evaluation after `step`.
std::string divergenceAt(int64_t step, double evaluatedLoss);

// Throws LastingError where there is such a reason.
void requireNoDivergence(const std::string& reason);

}  // namespace gloo_bypass::trainer
