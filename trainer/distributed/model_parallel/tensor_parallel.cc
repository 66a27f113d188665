#include "trainer/distributed/model_parallel/tensor_parallel.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/distributed/model_parallel/handle.h"

namespace gloo_bypass::trainer {
namespace {

using TensorHandle = Handle<TensorParallel>;

struct F : torch::autograd::Function<F> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const TensorHandle& ranks) {
    ranks.keepIn(context);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {TensorHandle::of(context).sumOverRanks(gradients[0]), at::Tensor()};
  }
};

struct G : torch::autograd::Function<G> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& part,
                            const TensorHandle& ranks) {
    return ranks->sumOverRanks(part);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

TensorParallel::TensorParallel(Gpt2& model, const Gpt2* whole, AdamW& optimizer, GroupCommunicator& communicator)
    : SharedModel(model, whole, optimizer, communicator, ModelParallelism::kTensor, /*lossRank=*/0) {
  model.splitBlocksBy(this);
}

at::Tensor TensorParallel::enter(const at::Tensor& x) { return F::apply(x, TensorHandle(*this)); }
at::Tensor TensorParallel::leave(const at::Tensor& part) { return G::apply(part, TensorHandle(*this)); }

at::Tensor TensorParallel::sumOverRanks(const at::Tensor& part) {
  auto sum = part.detach().clone(at::MemoryFormat::Contiguous);
  handedOver(sum);
  waiting([&] { communicator_.sum(sum); });
  return sum;
}

}  // namespace gloo_bypass::trainer
