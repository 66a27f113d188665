// The few statistics that programs report. Pure functions; no thread or clock in them.
#pragma once

#include <span>
#include <vector>

namespace gloo_bypass {

// Mean; 0 of nothing.
double mean(std::span<const double> values);

std::vector<double> sorted(std::vector<double> values);  // ascending

// The p-th percentile, p in 0..100, of values in ascending order; between two ranks it is interpolated linearly
// (as numpy.percentile does). 0 of nothing; p is clamped.
double percentile(std::span<const double> ascending, double p);

}  // namespace gloo_bypass
