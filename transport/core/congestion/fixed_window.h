// A window that never changes: for links that lose nothing and push back when full (memif), where congestion control
// would only get in the way.
#pragma once

#include "transport/core/congestion.h"

namespace gloo_bypass {

class FixedWindow final : public CongestionController {
 public:
  explicit FixedWindow(std::size_t windowBytes) : windowBytes_(windowBytes) {}

  void onSent(TimePoint, std::size_t, std::size_t) override {}
  void onAck(const AckSample&) override {}
  void onTimeout(TimePoint) override {}
  std::size_t windowBytes() const override { return windowBytes_; }
  std::string_view name() const override { return "fixed"; }

 private:
  std::size_t windowBytes_;
};

}  // namespace gloo_bypass
