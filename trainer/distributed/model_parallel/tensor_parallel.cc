#include "trainer/distributed/model_parallel/tensor_parallel.h"

#include <utility>

#include <ATen/ATen.h>

#include "trainer/distributed/model_parallel/graph_step.h"

namespace gloo_bypass::trainer {

TensorParallel::TensorParallel(Gpt2& model, const Gpt2* whole, AdamW& optimizer, ModelMesh mesh, const Options& options)
    : SharedModel(model, whole, optimizer, std::move(mesh), options) {
  model.splitBlocksBy(this);
}

at::Tensor TensorParallel::enter(const at::Tensor& x) {
  return withBackward(x, x.detach(), [this](const at::Tensor& gradient) { return sumOverRanks(gradient); });
}
at::Tensor TensorParallel::leave(const at::Tensor& part) {
  return withBackward(part, sumOverRanks(part), [](const at::Tensor& gradient) { return gradient; });
}

at::Tensor TensorParallel::sumOverRanks(const at::Tensor& part) {
  auto sum = part.detach().clone(at::MemoryFormat::Contiguous);
  handedOver(sum);
  waiting([&] { communicator_.sum(sum); });
  return sum;
}

}  // namespace gloo_bypass::trainer
