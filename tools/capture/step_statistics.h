// The spread of a capture's figures, those of its steps above all. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/capture/analysis.h"

namespace gloo_bypass::capture {

inline constexpr std::array<double, 5> kPercentiles{0, 25, 50, 75, 100};
using Spread = std::array<double, kPercentiles.size()>;  // min, p25, median, p75, max; interpolated as numpy does

Spread spreadOf(std::vector<double> values);  // of one value at least

struct StepStatistics {
  std::size_t steps = 0;  // complete ones
  Spread bytes{}, seconds{};
  // Of steps that took any time by the capture's clock.
  Spread bitsPerSecond{};
};

// nullopt: no complete step.
std::optional<StepStatistics> stepStatistics(const Analysis& analysis);
// Of one direction (index of Analysis::trackedDirections()); a step without a byte of it counts as 0.
std::optional<StepStatistics> stepStatistics(const Analysis& analysis, std::size_t direction);

// Bytes x 8 / time, markers left out; nullopt: no time passed.
std::optional<double> bitsPerSecond(std::uint64_t bytes, CaptureTime time);
std::optional<double> trainingBitsPerSecond(const Analysis& analysis);
std::optional<double> captureBitsPerSecond(const Analysis& analysis);
std::uint64_t bytesOf(const TrafficMatrix& matrix);

}  // namespace gloo_bypass::capture
