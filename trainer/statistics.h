// Order statistics of a run's measurements.
#pragma once

#include <span>

namespace gloo_bypass::trainer {

// The value below which `fraction` of the values lie, by the nearest-rank definition: the smallest value such that
// at least fraction x n values are not greater. fraction in (0, 1]; values must not be empty.
double percentile(std::span<const double> values, double fraction);

// The middle value, or the mean of the two middle ones. values must not be empty.
double median(std::span<const double> values);

} // namespace gloo_bypass::trainer
