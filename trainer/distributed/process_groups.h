// The process groups that a rank may have: who runs the collectives that GroupCommunicator, the reducer and the methods
// of training together call. Both stamp the gradients' all-reduces and reduce-scatters in the same way.
//
// Thread: one starts collectives; sends and receives, and waits, come from any. A group's own threads stamp the times.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "plugin/compatibility/torch/gloo_process_group.h"
#include "trainer/distributed/all_reduce_window.h"

namespace gloo_bypass::trainer {

struct GroupPlace {
  int rank = 0, worldSize = 1;
  std::chrono::milliseconds timeout{};  // of connecting, and of each collective
};

struct TimedGroup {
  // Collectives on contiguous CPU tensors. Work that is under way holds its tensors, and must be waited for, or given
  // up, before the group ends.
  c10::intrusive_ptr<torch_version::CollectiveBackend> group;
  // An all-reduce, a sum, that is not stamped: of no gradient, or of one that the caller stamps. It belongs to `group`.
  std::function<c10::intrusive_ptr<c10d::Work>(const at::Tensor&)> sum;
};

// PyTorch's own ProcessGroupGloo, on the devices that c10d's registry makes for GLOO_DEVICE_TRANSPORT and
// GLOO_SOCKET_IFNAME. `segmentBytes`: of the ring's segments; 0: Gloo's default. Throws what Gloo does.
TimedGroup makeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store, const GroupPlace& place,
                         std::shared_ptr<WindowClock> clock, size_t segmentBytes);

// This project's collectives (collectives/README.md), from the plug-in that the process has loaded, over `transport`:
// shared memory within a host where the transport has memory links. It does what the trainer calls: all-reduce (sums),
// broadcast, all-gather, all-to-all, barrier, send and receive. Within a host its reductions do not depend on how the
// gradients are cut into buckets; over channels the algorithm depends on the size. Throws ProgramError: no ranks within
// the timeout, ranks that differ, the transport's reasons.
TimedGroup makeOwnGroup(const c10::intrusive_ptr<c10d::Store>& store, const GroupPlace& place,
                        std::shared_ptr<WindowClock> clock, const std::string& transport);

// Throws UsageError where makeOwnGroup would find no collectives, or those of another version.
void requireOwnCollectives();

// Stamps the work as the bucket's all-reduce, if it is one.
c10::intrusive_ptr<c10d::Work> stamped(const std::shared_ptr<WindowClock>& clock, const BucketTicket& bucket,
                                       c10::intrusive_ptr<c10d::Work> work);

}  // namespace gloo_bypass::trainer
