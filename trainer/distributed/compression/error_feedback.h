// What was not sent is added to the next gradient (Seide et al., 1-Bit Stochastic Gradient Descent, 2014, equation 1;
// Karimireddy et al., Error Feedback Fixes SignSGD, 2019, algorithm 1).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/compressor.h"

namespace gloo_bypass::trainer {

class ErrorFeedback {
 public:
  // Not `enabled`: there are no residuals.
  ErrorFeedback(bool enabled, const std::vector<std::pair<std::string, at::Tensor>>& parameters);

  // A gradient (n) with what earlier steps owe it, in workType(). If enabled() the caller takes off it what it sends:
  // the rest is owed to the next step. Otherwise it may be the gradient itself.
  at::Tensor owed(std::size_t parameter, const at::Tensor& gradient);
  // What is owed.
  void scale(double factor);
  bool enabled() const { return !residuals_.empty(); }
  RankState state() const;

 private:
  std::vector<std::string> names_;
  std::vector<at::Tensor> residuals_;  // (n) each, in the parameters' order
};

// In which the arithmetic is done: fp64 for fp64, fp32 else.
at::ScalarType workType(const at::Tensor& gradient);

// A gradient's elements, (n), contiguous, in workType(): its own memory where it is such, else a copy that is written
// back at the end.
class InPlace {
 public:
  explicit InPlace(const at::Tensor& gradient)
      : gradient_(gradient), values_(gradient.reshape({-1}).to(workType(gradient))) {}
  ~InPlace() {
    if (!values_.is_alias_of(gradient_)) gradient_.copy_(values_.view(gradient_.sizes()));
  }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;
  const at::Tensor& values() const { return values_; }

 private:
  const at::Tensor gradient_;
  const at::Tensor values_;
};

}  // namespace gloo_bypass::trainer
