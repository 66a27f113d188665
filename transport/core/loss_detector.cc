#include "transport/core/loss_detector.h"

#include <algorithm>

namespace gloo_bypass {

std::size_t LossDetector::detect(TimePoint now, const RtoEstimator& rtt, SendScoreboard* board) {
  deadline_ = kNever;
  std::size_t lostBytes = 0;
  const Duration window = std::max(std::max(rtt.smoothed(), rtt.latest()) * timeEighths_ / 8, kGranularity);
  std::uint64_t sequence;
  while (board->oldestInFlight(&sequence)) {
    const SentFrame& sent = board->frame(sequence);
    if (sent.order >= board->largestAckedOrder()) break;
    const bool overtaken = board->largestAckedOrder() - sent.order >= orderThreshold_;
    if (!overtaken && sent.sentAt + window > now) {
      deadline_ = sent.sentAt + window;
      break;
    }
    lostBytes += sent.wireBytes;
    board->markLost(sequence);
  }
  return lostBytes;
}

void LossDetector::onSpuriousLoss(TimePoint now, const RtoEstimator& rtt) {
  if (now - widenedAt_ < rtt.smoothed()) return;
  widenedAt_ = now;
  orderThreshold_ = std::min(orderThreshold_ * 2, kMaxOrderThreshold);
  timeEighths_ = std::min(timeEighths_ + 1, kMaxTimeEighths);
}

}  // namespace gloo_bypass
