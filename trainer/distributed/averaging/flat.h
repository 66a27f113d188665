// Several tensors as one (n), in their order, as they are sent.
#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace gloo_bypass::trainer {

// A copy.
inline at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.detach().reshape({-1}));
  return at::cat(parts);
}

// Zeros where there is none.
inline at::Tensor flatGradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
  }
  return flat(gradients);
}

template <typename Use>
void forEachPart(std::vector<at::Tensor>& tensors, const at::Tensor& flat, Use use) {
  int64_t begin = 0;
  for (auto& tensor : tensors) {
    use(tensor, flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

inline void setValues(std::vector<at::Tensor>& tensors, const at::Tensor& flat) {
  const at::NoGradGuard noGrad;
  forEachPart(tensors, flat, [](at::Tensor& tensor, const at::Tensor& part) { tensor.copy_(part); });
}

// Views of `flat`.
inline void setGradients(std::vector<at::Tensor>& parameters, const at::Tensor& flat) {
  forEachPart(parameters, flat, [](at::Tensor& parameter, const at::Tensor& part) { parameter.mutable_grad() = part; });
}

}  // namespace gloo_bypass::trainer
