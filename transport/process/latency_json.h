// Histograms of durations, written for people and programs; the same form whichever back-end and wherever they appear.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "transport/base/duration_histogram.h"

namespace gloo_bypass {

// The edges of "buckets" are 2^10 ns (1 us) to 2^36 ns (69 s), each twice the one before: the same in every process, so
// that what several ranks tell can be added up.
inline constexpr unsigned kFirstEdgeBits = 10, kLastEdgeBits = 36;

// {"unit": "us", "count", "sum", "mean", "p50", "p90", "p99", "max"}; durations as numbers in that unit.
nlohmann::json summaryJson(const DurationHistogram& histogram);
// The same with "buckets": [[edge, how many were below it], ...], up to the first edge that all are below; those that
// are longer than the last edge are in "count" only.
nlohmann::json histogramJson(const DurationHistogram& histogram);

}  // namespace gloo_bypass
