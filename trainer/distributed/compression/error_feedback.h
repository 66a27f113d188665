// What was not sent is added to the next gradient (Seide et al., 1-Bit Stochastic Gradient Descent, 2014, equation 1;
// Karimireddy et al., Error Feedback Fixes SignSGD, 2019, algorithm 1).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/distributed/compression/compressor.h"

namespace gloo_bypass::trainer {

class ErrorFeedback {
 public:
  // Not `enabled`: there are no residuals.
  ErrorFeedback(bool enabled, const std::vector<std::pair<std::string, at::Tensor>>& parameters);

  // A gradient (n) with what earlier steps owe it; a copy, in fp64 for fp64 and in fp32 else.
  at::Tensor corrected(std::size_t parameter, const at::Tensor& gradient) const;
  // Remembers of it (n) what `sent` (n) lacks.
  void remember(std::size_t parameter, const at::Tensor& corrected, const at::Tensor& sent);
  bool enabled() const { return !residuals_.empty(); }
  RankState state() const;

 private:
  std::vector<std::string> names_;
  std::vector<at::Tensor> residuals_;  // (n) each, in the parameters' order
};

// In which the arithmetic is done.
at::ScalarType workType(const at::Tensor& gradient);

}  // namespace gloo_bypass::trainer
