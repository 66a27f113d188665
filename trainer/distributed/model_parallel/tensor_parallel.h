// Tensor parallelism: every rank computes a part of each block (Shoeybi et al. 2019, "Megatron-LM: Training
// Multi-Billion Parameter Language Models Using Model Parallelism", section 3).
//
// Attention and the MLP are each two products: the first matrix is cut by columns (attention's by heads), the second by
// rows, so that a rank computes both of its parts alone. The paper's operator f stands before the first: nothing in
// forward, an all-reduce of the input's gradient in backward. g stands after the second: an all-reduce in forward,
// nothing in backward. Four all-reduces of a block's (BT, C) a micro-batch. Embeddings, norms and the head are computed
// by all ranks alike.
#pragma once

#include "trainer/distributed/model_parallel/shared_model.h"

namespace gloo_bypass::trainer {

class TensorParallel final : public SharedModel, private BlockSplit {
 public:
  TensorParallel(Gpt2& model, const Gpt2* whole, AdamW& optimizer, ModelMesh mesh, const Options& options);

  bool hasLoss() const override { return communicator_.isRoot(); }

 private:
  at::Tensor enter(const at::Tensor& x) override;
  at::Tensor leave(const at::Tensor& part) override;
  // The ranks' sum of a tensor (BT, C); a new one.
  at::Tensor sumOverRanks(const at::Tensor& part);
};

}  // namespace gloo_bypass::trainer
