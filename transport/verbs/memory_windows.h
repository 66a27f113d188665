// Memory windows of type 2 on one device, kept for their next use. A window lets one peer read one message: it has a
// key of its own, which works over the queue pair that it is bound on, until it is invalidated there.
//
//   take --> free --bind--> bound --invalidate--> free --> give
//                             `--destroy, which ends the right at once
//
// Owner: RailQueues. Thread: every method needs the progress engine's exclusive access.
// Source: InfiniBand Architecture Specification, volume 1, 10.6.7; ibv_alloc_mw(3), ibv_post_send(3).
#pragma once

#include <cstddef>
#include <vector>

#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

class MemoryWindows {
 public:
  // `domain` must outlive the object.
  explicit MemoryWindows(ibv_pd* domain) : domain_(domain) {}
  ~MemoryWindows();
  MemoryWindows(const MemoryWindows&) = delete;
  MemoryWindows& operator=(const MemoryWindows&) = delete;

  // Whether the device has them.
  static bool offered(const ibv_device_attr& limits);

  // A free one. Null with errno: the device allows no more. Each goes back by give() or destroy().
  ibv_mw* take();
  void give(ibv_mw* window) {
    --taken_;
    free_.push_back(window);
  }
  // Bound or free. Before its queue pair is destroyed, and before its memory is deregistered.
  void destroy(ibv_mw* window);
  // Taken and neither given nor destroyed.
  std::size_t taken() const { return taken_; }

 private:
  ibv_pd* const domain_;
  std::vector<ibv_mw*> free_;  // at most as many as were in use at a time
  std::size_t taken_ = 0;
};

}  // namespace gloo_bypass::verbs
