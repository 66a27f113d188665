#include "transport/core/rto_estimator.h"

#include <algorithm>

namespace gloo_bypass {

void RtoEstimator::addSample(TimePoint now, Duration rtt) {
  rtt = std::max(rtt, Duration(1));
  latest_ = rtt;
  if (!hasSample()) {
    smoothed_ = rtt;
    variation_ = rtt / 2;
    minimumSince_ = now;
  } else {
    const Duration difference = smoothed_ > rtt ? smoothed_ - rtt : rtt - smoothed_;
    variation_ = (3 * variation_ + difference) / 4;
    smoothed_ = std::max((7 * smoothed_ + rtt) / 8, Duration(1));
  }
  if (now - minimumSince_ > kMinimumAge) {
    previousMinimum_ = currentMinimum_;
    currentMinimum_ = Duration::max();
    minimumSince_ = now;
  }
  currentMinimum_ = std::min(currentMinimum_, rtt);
}

Duration RtoEstimator::minimum() const {
  const Duration smallest = std::min(currentMinimum_, previousMinimum_);
  return smallest == Duration::max() ? Duration(0) : smallest;
}

Duration RtoEstimator::rto(Duration peerAckDelay) const {
  // RFC 6298's variation is of one sample a round trip. With one an acknowledgement that of a steady path goes to
  // nothing (RFC 7323, appendix G), and on a long one a host that did not run for milliseconds would have its whole
  // window retransmitted.
  const Duration margin = std::max(4 * variation_, smoothed_ / 4);
  const Duration base = hasSample() ? smoothed_ + margin + peerAckDelay : kInitialRto;
  return std::min(std::max(base, minRto_) * (std::int64_t{1} << backOffs_), std::max(maxRto_, minRto_));
}

Duration RtoEstimator::probeTimeout(Duration peerAckDelay) const {
  const Duration first = hasSample() ? smoothed_ + std::max(smoothed_, 4 * variation_) + peerAckDelay : kInitialRto;
  if (backOffs_ == 0) return first;
  const Duration next = std::max(2 * first, minRto_) * (std::int64_t{1} << (backOffs_ - 1));
  return std::max(first, std::min(next, std::max(maxRto_, minRto_)));
}

void RtoEstimator::backOff() { backOffs_ = std::min(backOffs_ + 1, kMaxBackOffs); }

}  // namespace gloo_bypass
