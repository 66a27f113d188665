// The two collectives that an all-reduce consists of, on what c10d's Gloo group has in every release.
//
// Its reduce-scatter is missing in PyTorch 1.13 and an all-reduce in disguise later, so that reduceScatter() is an
// all-to-all of the shards, which each owner adds up in the ranks' order: (N-1)/N of the input leaves each rank, as
// with a ring, and the sum does not depend on how the input was cut. allGather() is c10d's ring: (N-1)/N of the result.
// Another library's takes their place here. Every rank calls in the same order. One thread.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "trainer/distributed/group_communicator.h"

namespace gloo_bypass::trainer {

// A collective under way; it owns the tensors that Gloo's threads read and write.
class PendingCollective {
 public:
  // Reduce-scatter of `input` (N, k), contiguous, row r for rank r; unchanged until wait() returns.
  static PendingCollective reduceScatter(GroupCommunicator& communicator, const at::Tensor& input);
  // All-gather of `part` (k) into `parts`, N tensors of (k). This rank's may be `part` itself.
  static PendingCollective allGather(GroupCommunicator& communicator, const at::Tensor& part,
                                     const std::vector<at::Tensor>& parts);

  // Throws what Gloo does where a peer is lost. Of a reduce-scatter: the own row's sum (k); else undefined.
  at::Tensor wait();

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor input_, received_;  // (N, k), of a reduce-scatter
};

}  // namespace gloo_bypass::trainer
