// The sums of a step's micro-batches, in fp32, for a model in 16 bits (--accumulate-fp32). Megatron-LM's
// --accumulate-allreduce-grads-in-fp32 has them, too; its all-reduces are of fp32 besides, ours of 16 bits.
//
// A sum in 16 bits loses what is less than half a unit of its last place: 256 equal gradients in bf16 add up to no more
// than 256 of them, and the next ones change nothing. Here each micro-batch's gradient goes to an fp32 sum, and the
// model's own stays zero; the last one's becomes the sum, rounded once, before anything else sees it, the reducer
// included. What a parameter gets from several uses within one backward, as tied embeddings do, autograd has added up
// before, in 16 bits. One thread.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace gloo_bypass::trainer {

class GradientSums {
 public:
  // `parameters`: leaves that need gradients. Hooks itself into each, until it ends.
  explicit GradientSums(const std::vector<at::Tensor>& parameters);
  ~GradientSums();
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  // isLast: the backward that follows is the step's last one.
  void beginBackward(bool isLast) { isLast_ = isLast; }
  const std::vector<at::Tensor>& sums() const { return sums_; }

 private:
  at::Tensor take(size_t index, const at::Tensor& gradient);

  std::vector<at::Tensor> parameters_;
  std::vector<unsigned> hooks_;
  std::vector<at::Tensor> sums_;  // fp32, in the parameters' shapes
  bool isLast_ = true;
};

}  // namespace gloo_bypass::trainer
