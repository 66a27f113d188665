// Histograms of durations as JSON, in the same form for every back-end and every output.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "transport/base/duration_histogram.h"

namespace gloo_bypass {

// The edges of "buckets" are 2^10 ns (1 us) to 2^36 ns (69 s), each twice the previous one. Every process has the same,
// so the histograms of several ranks can be added up.
inline constexpr unsigned kFirstEdgeBits = 10, kLastEdgeBits = 36;

// {"unit": "us", "count", "sum", "mean", "p50", "p90", "p99", "max"}; durations as numbers in that unit.
nlohmann::json summaryJson(const DurationHistogram& histogram);
// The same with "buckets": [[edge, number of values below it], ...], up to the first edge above all values; values
// above the last edge are in "count" only.
nlohmann::json histogramJson(const DurationHistogram& histogram);

}  // namespace gloo_bypass
