// Bytes by time, in memory that does not grow with the capture: where more bins than the most would be needed, each two
// become one. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/capture/step_windows.h"

namespace gloo_bypass::capture {

class TimeSeries {
 public:
  static constexpr std::size_t kMaxBins = 1 << 16;

  // `interval` > 0, 2 bins at least.
  explicit TimeSeries(std::chrono::nanoseconds interval, std::size_t maxBins = kMaxBins)
      : interval_(interval), maxBins_(maxBins) {}

  // `sinceStart` of the first frame; before it counts as at it.
  void add(std::chrono::nanoseconds sinceStart, std::uint64_t bytes);

  // That asked for, or a power of two times it.
  std::chrono::nanoseconds interval() const { return interval_; }
  const std::vector<std::uint64_t>& bins() const { return bins_; }

 private:
  std::chrono::nanoseconds interval_;
  std::size_t maxBins_;
  std::vector<std::uint64_t> bins_;
};

}  // namespace gloo_bypass::capture
