#include "trainer/optimizer/gradient_sums.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace gloo_bypass::trainer {

GradientSums::GradientSums(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    sums_.push_back(at::zeros(parameters_[i].sizes(), at::kFloat));
    hooks_.push_back(parameters_[i].register_hook([this, i](const at::Tensor& gradient) { return take(i, gradient); }));
  }
}

GradientSums::~GradientSums() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].remove_hook(hooks_[i]);
  }
}

// What is added to the parameter's gradient in place of `gradient`. PyTorch 2 also asks within a recomputation's own
// backward (activation_checkpointing.h), and then again with what was answered: zeros add nothing, and a sum that is
// rounded stays as it is.
at::Tensor GradientSums::take(size_t index, const at::Tensor& gradient) {
  const at::NoGradGuard noGrad;
  at::Tensor& sum = sums_[index];
  sum.add_(gradient);
  if (!isLast_) {
    return at::zeros_like(gradient);
  }
  const auto rounded = sum.to(gradient.scalar_type());
  sum.zero_();
  return rounded;
}

}  // namespace gloo_bypass::trainer
