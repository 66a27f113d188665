// PyTorch's own AdamW over a model's parameters, with its state reachable for checkpoints.
//
// One thread at a time. The state exists from the start (PyTorch makes it at the first step), so that a checkpoint
// and a broadcast need no special case before it.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/options.h"

namespace gloo_bypass::trainer {

class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, const Options& options);
  ~AdamW();
  AdamW(const AdamW&) = delete;
  AdamW& operator=(const AdamW&) = delete;

  void step();
  // Scales all gradients so that their common norm is at most maxNorm; returns the norm before.
  double clipGradients(double maxNorm);
  // Forgets the gradients; the next backward makes them anew.
  void clearGradients();

  // First and second moments, in the parameters' order; aliases of what step() uses.
  const std::vector<at::Tensor>& firstMoments() const { return firstMoments_; }
  const std::vector<at::Tensor>& secondMoments() const { return secondMoments_; }
  void setStepCount(int64_t steps);

 private:
  struct Torch; // keeps the heavy headers out of this one
  std::unique_ptr<Torch> torch_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> firstMoments_, secondMoments_;
};

} // namespace gloo_bypass::trainer
