// The largest value of the last kRounds rounds. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace gloo_bypass {

template <int kRounds>
class WindowedMaximum {
 public:
  // `round` never goes back. Costs a comparison, and kRounds of them once a round.
  void update(std::uint64_t round, double value) {
    if (round != round_) advance(round);
    double& slot = maxima_[round % kRounds];
    slot = std::max(slot, value);
    maximum_ = std::max(maximum_, value);
  }
  double maximum() const { return maximum_; }

 private:
  void advance(std::uint64_t round) {
    const std::uint64_t steps = std::min<std::uint64_t>(round - round_, kRounds);
    for (std::uint64_t i = 0; i < steps; ++i) maxima_[(round - i) % kRounds] = 0;
    round_ = round;
    maximum_ = *std::max_element(maxima_.begin(), maxima_.end());
  }

  std::array<double, kRounds> maxima_{};
  std::uint64_t round_ = 0;
  double maximum_ = 0;
};

}  // namespace gloo_bypass
