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

at::Tensor ErrorFeedback::owed(std::size_t parameter, const at::Tensor& gradient) {
  return enabled() ? residuals_[parameter].add_(gradient) : gradient.to(workType(gradient));
}

void ErrorFeedback::scale(double factor) {
  for (auto& residual : residuals_) {
    residual.mul_(factor);
  }
}

RankState ErrorFeedback::state() const {
  RankState state;
  for (std::size_t i = 0; i < residuals_.size(); ++i) {
    state.emplace_back("residual." + names_[i], residuals_[i]);
  }
  return state;
}

}  // namespace gloo_bypass::trainer
