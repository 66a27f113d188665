#include "transport/core/repair/redundancy.h"

#include <cmath>

namespace gloo_bypass {

void LossEstimate::onArrivedAfterAll(std::uint64_t frames) {
  const std::uint64_t fromCurrent = std::min(frames, current_.lost);
  current_.lost -= fromCurrent;
  previous_.lost -= std::min(frames - fromCurrent, previous_.lost);
}

void LossEstimate::onSent(std::uint64_t sent) {
  if (sent - current_.begin < kSpanFrames) return;
  previous_ = current_;
  current_ = {sent, 0};
}

double LossEstimate::rate(std::uint64_t sent) const {
  const auto lost = static_cast<double>(current_.lost + previous_.lost);
  const auto frames = static_cast<double>(std::max(sent - previous_.begin, kMinFrames));
  return std::min((lost + std::sqrt(lost)) / frames, 0.5);
}

std::size_t repairsNeeded(std::size_t sources, double lossRate, std::size_t limit) {
  if (lossRate <= 0) return std::min<std::size_t>(1, limit);
  const double odds = lossRate / (1 - lossRate);
  for (std::size_t repairs = 1; repairs < limit; ++repairs) {
    const auto frames = static_cast<double>(sources + repairs);
    double term = std::pow(1 - lossRate, frames), held = 0;
    for (std::size_t lost = 0; lost <= repairs; ++lost) {
      held += term;
      term *= odds * (frames - static_cast<double>(lost)) / static_cast<double>(lost + 1);
    }
    if (1 - held <= kBlockFailure) return repairs;
  }
  return limit;
}

}  // namespace gloo_bypass
