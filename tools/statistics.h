// The few statistics that the benchmark reports. Pure functions; no thread or clock in them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gloo_bypass {

// Mean; 0 of nothing.
double mean(std::span<const double> values);

// The p-th percentile, p in 0..100, of values in ascending order; between two ranks it is interpolated linearly
// (as numpy.percentile does). 0 of nothing; p is clamped.
double percentile(std::span<const double> ascending, double p);

// What nccl-tests' PERFORMANCE page defines for an all-reduce of `bytes` over `ranks`. GB means 1e9 bytes.
struct Bandwidth {
  double algorithmGBs = 0;  // bytes / time
  double busGBs = 0;        // algorithmGBs * 2 (ranks - 1) / ranks
};
// All zero if `seconds` is not positive.
Bandwidth allReduceBandwidth(std::size_t bytes, double seconds, int ranks);

}  // namespace gloo_bypass
