#include "trainer/metrics/tracing/clock_offset.h"

#include <algorithm>
#include <cmath>

namespace gloo_bypass::trainer {

ClockOffset estimateOffset(std::span<const ClockExchange> exchanges) {
  const auto& best = *std::min_element(exchanges.begin(), exchanges.end(), [](const auto& a, const auto& b) {
    return a.receivedNs - a.sentNs < b.receivedNs - b.sentNs;
  });
  const int64_t roundTripNs = best.receivedNs - best.sentNs;
  const int64_t middleNs = best.sentNs + roundTripNs / 2;
  return {.localNs = middleNs, .offsetNs = best.remoteNs - middleNs, .errorBoundNs = (roundTripNs + 1) / 2};
}

int64_t toRemoteClock(int64_t localNs, const ClockOffset& first, const ClockOffset& last) {
  if (localNs <= first.localNs || last.localNs <= first.localNs) {
    return localNs + first.offsetNs;
  }
  const double part =
      std::min(1.0, static_cast<double>(localNs - first.localNs) / static_cast<double>(last.localNs - first.localNs));
  return localNs + first.offsetNs + std::llround(part * static_cast<double>(last.offsetNs - first.offsetNs));
}

}  // namespace gloo_bypass::trainer
