// Which class stands behind each CongestionControl.
#include <algorithm>

#include "transport/base/check.h"
#include "transport/core/congestion.h"
#include "transport/core/congestion/bbr.h"
#include "transport/core/congestion/fixed_window.h"
#include "transport/core/congestion/swift.h"

namespace gloo_bypass {

std::unique_ptr<CongestionController> makeCongestionController(CongestionControl kind, const SessionConfig& config,
                                                               std::size_t mss, std::uint64_t entropy) {
  GLOO_BYPASS_CHECK(mss > 0);
  switch (kind) {
    case CongestionControl::kFixed:
      // Less than two datagrams would wait for a delayed acknowledgement after each.
      return std::make_unique<FixedWindow>(std::max(config.fixedWindowBytes, 2 * mss));
    case CongestionControl::kSwift:
      return std::make_unique<Swift>(mss);
    case CongestionControl::kBbr:
      return std::make_unique<Bbr>(mss, entropy);
    case CongestionControl::kAuto:
      break;
  }
  GLOO_BYPASS_CHECK(!"kAuto is resolved by the session");
  return nullptr;
}

}  // namespace gloo_bypass
