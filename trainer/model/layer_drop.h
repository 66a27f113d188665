// LayerDrop (Fan, Grave and Joulin 2020, "Reducing Transformer Depth on Demand with Structured Dropout", section 3.1):
// each block is left out of a micro-batch with a probability. Its parameters get no gradient there. Forwards without a
// graph, such as those of evaluations, use all blocks. One thread.
#pragma once

#include <cstdint>

#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

class LayerDrop final : public PartRunner {
 public:
  explicit LayerDrop(double probability) : probability_(probability) {}
  // Decides, with the probability, which blocks the next forward leaves out.
  void seed(uint64_t seed) { seed_ = seed; }
  bool leavesOut(size_t unit) const;

  at::Tensor run(ForwardPart part, size_t unit, const at::Tensor& x, const PartComputation& compute) override;

 private:
  double probability_;
  uint64_t seed_ = 0;
};

}  // namespace gloo_bypass::trainer
