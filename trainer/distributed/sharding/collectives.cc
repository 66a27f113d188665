#include "trainer/distributed/sharding/collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace gloo_bypass::trainer {
namespace {

// c10d's Gloo refuses bf16 in PyTorch 1.13: what is not added up on its way goes as the bits that it is.
at::Tensor carried(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? tensor.view(at::kHalf) : tensor;
}

}  // namespace

PendingCollective PendingCollective::reduceScatter(GroupCommunicator& communicator, const at::Tensor& input) {
  PendingCollective pending;
  pending.input_ = carried(input);
  pending.received_ = at::empty_like(input);
  auto received = carried(pending.received_);
  std::vector<int64_t> equalSplits;
  pending.work_ = communicator.processGroup().alltoall_base(received, pending.input_, equalSplits, equalSplits);
  return pending;
}

PendingCollective PendingCollective::allGather(GroupCommunicator& communicator, const at::Tensor& part,
                                               const std::vector<at::Tensor>& parts) {
  PendingCollective pending;
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (const auto& one : parts) {
    outputs[0].push_back(carried(one));
  }
  std::vector<at::Tensor> inputs{carried(part)};
  pending.work_ = communicator.processGroup().allgather(outputs, inputs);
  return pending;
}

at::Tensor PendingCollective::wait() {
  work_->wait();
  if (!received_.defined()) {
    return {};
  }
  auto sum = received_[0];
  for (int64_t rank = 1; rank < received_.size(0); ++rank) {
    sum.add_(received_[rank]);
  }
  return sum;
}

}  // namespace gloo_bypass::trainer
