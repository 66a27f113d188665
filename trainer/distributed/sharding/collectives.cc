#include "trainer/distributed/sharding/collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace gloo_bypass::trainer {

PendingCollective PendingCollective::reduceScatter(GroupCommunicator& communicator, const at::Tensor& input) {
  PendingCollective pending;
  pending.input_ = input;
  pending.received_ = at::empty_like(input);
  std::vector<int64_t> equalSplits;
  pending.work_ =
      communicator.processGroup().alltoall_base(pending.received_, pending.input_, equalSplits, equalSplits);
  return pending;
}

PendingCollective PendingCollective::allGather(GroupCommunicator& communicator, const at::Tensor& part,
                                               const std::vector<at::Tensor>& parts) {
  PendingCollective pending;
  std::vector<std::vector<at::Tensor>> outputs{parts};
  std::vector<at::Tensor> inputs{part};
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
