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
    const bool byFrames = sent.order < board->largestAckedOrder();
    if (!byFrames && sent.sentAt >= overtakenBefore_) break;
    const bool byEnough = byFrames && sent.guard != SendScoreboard::kGuardOpen &&
                          board->largestAckedOrder() - sent.order >= orderThreshold_ + sent.guard;
    const TimePoint until = sent.sentAt + window + (sent.guard != 0 ? rtt.smoothed() / kBlockShare : Duration{0});
    if (!byEnough && until > now) {
      deadline_ = until;
      break;
    }
    lostBytes += sent.wireBytes;
    ++lostFrames_;
    if (sent.guard != 0) ++unrepairedFrames_;
    if (sent.retransmitted) lostAgain_ = std::max(lostAgain_, sent.sentDatagramBytes());
    board->markLost(sequence);
  }
  if (lostBytes > 0) narrow(now, rtt);
  return lostBytes;
}

void LossDetector::narrow(TimePoint now, const RtoEstimator& rtt) {
  if (now - lostAt_ < rtt.smoothed()) return;
  lostAt_ = now;
  if (++lossesSince_ < kNarrowAfter) return;
  lossesSince_ = 0;
  orderThreshold_ = std::max(orderThreshold_ / 2, kOrderThreshold);
  timeEighths_ = std::max(timeEighths_ - 1, kTimeEighths);
}

bool LossDetector::onArrivalOf(TimePoint sentAt) {
  if (sentAt <= overtakenBefore_) return false;
  overtakenBefore_ = sentAt;
  return true;
}

void LossDetector::onSpuriousLoss(TimePoint now, const RtoEstimator& rtt) {
  if (now - widenedAt_ < rtt.smoothed()) return;
  widenedAt_ = now;
  lossesSince_ = 0;
  orderThreshold_ = std::min(orderThreshold_ * 2, kMaxOrderThreshold);
  timeEighths_ = std::min(timeEighths_ + 1, kMaxTimeEighths);
}

}  // namespace gloo_bypass
