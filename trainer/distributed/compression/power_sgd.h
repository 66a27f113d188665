// PowerSGD: of each matrix a product of two thin ones (Vogels, Karimireddy, Jaggi: PowerSGD, 2019, algorithms 1 and 2),
// as PyTorch's powerSGD_hook computes it with its default min_compression_rate of 2.
#pragma once

#include <utility>
#include <vector>

#include "trainer/distributed/compression/error_feedback.h"

namespace gloo_bypass::trainer {

// The bytes that are sent of a parameter of these sizes, whose gradient has `gradientBytes` an element; matrices have
// `workBytes`.
int64_t powerSgdBytes(at::IntArrayRef sizes, int64_t rank, int64_t gradientBytes, int64_t workBytes);

class PowerSgd final : public Compressor {
 public:
  PowerSgd(int64_t rank, ErrorFeedback feedback, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
           uint64_t seed);
  void reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) override;
  RankState state() const override;
  void scaleOwed(double factor) override { feedback_.scale(factor); }

 private:
  struct Matrix {
    const GradientPart* part;
    at::Tensor values;  // (n, m), with what earlier steps owe it
    at::Tensor p;       // (n, r), a view of what is sent
  };
  void reducePlain(const std::vector<const GradientPart*>& parts, Wire& wire) const;
  void reduceMatrices(std::vector<Matrix>& matrices, Wire& wire);

  ErrorFeedback feedback_;
  std::vector<std::string> names_;
  std::vector<at::Tensor>
      q_;  // (m, r) each, of the step before: the warm start; undefined where a tensor goes as it is
};

}  // namespace gloo_bypass::trainer
