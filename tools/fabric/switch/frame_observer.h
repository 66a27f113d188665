// Sees the frames that enter a fabric: seam between the switch and a capture. Called by the switch's thread, which it
// must not keep.
#pragma once

#include <cstddef>
#include <span>

#include "transport/base/time.h"

namespace gloo_bypass::fabric {

class FrameObserver {
 public:
  virtual ~FrameObserver() = default;
  // Before the ports are looked at, each round.
  virtual void onRound(TimePoint now) = 0;
  // A frame has entered at a host's port; nothing has been decided about it. `frame` is valid during the call only.
  virtual void onFrame(std::size_t host, std::span<const std::byte> frame, TimePoint now) = 0;
};

}  // namespace gloo_bypass::fabric
