#include "trainer/distributed/clipping.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace gloo_bypass::trainer {

double clipTogether(Communicator& communicator, const std::vector<at::Tensor>& gradients,
                    const std::vector<at::Tensor>& counted, double maxNorm) {
  const at::NoGradGuard noGrad;
  double squares = 0;
  for (const auto& gradient : counted) {
    const double norm = at::norm(gradient, 2, at::kDouble).item<double>();
    squares += norm * norm;
  }
  const double norm = std::sqrt(communicator.meanOverRanks(squares) * communicator.worldSize());
  constexpr double kNoDivisionByZero = 1e-6;
  const double factor = std::min(1.0, maxNorm / (norm + kNoDivisionByZero));
  for (const auto& gradient : gradients) {
    gradient.mul_(factor);
  }
  return norm;
}

}  // namespace gloo_bypass::trainer
