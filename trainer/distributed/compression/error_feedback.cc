#include "trainer/distributed/compression/error_feedback.h"

#include <ATen/ATen.h>

namespace gloo_bypass::trainer {

at::ScalarType workType(const at::Tensor& gradient) {
  return gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

ErrorFeedback::ErrorFeedback(bool enabled, const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  if (!enabled) return;
  for (const auto& [name, parameter] : parameters) {
    names_.push_back(name);
    residuals_.push_back(at::zeros({parameter.numel()}, at::TensorOptions().dtype(workType(parameter))));
  }
}

at::Tensor ErrorFeedback::corrected(std::size_t parameter, const at::Tensor& gradient) const {
  auto values = gradient.to(workType(gradient), /*non_blocking=*/false, /*copy=*/true);
  return enabled() ? values.add_(residuals_[parameter]) : values;
}

void ErrorFeedback::remember(std::size_t parameter, const at::Tensor& corrected, const at::Tensor& sent) {
  if (enabled()) at::sub_out(residuals_[parameter], corrected, sent);
}

RankState ErrorFeedback::state() const {
  RankState state;
  for (std::size_t i = 0; i < residuals_.size(); ++i) {
    state.emplace_back("residual." + names_[i], residuals_[i]);
  }
  return state;
}

}  // namespace gloo_bypass::trainer
