#include "transport/process/latency_json.h"

#include <nlohmann/json.hpp>

namespace gloo_bypass {
namespace {

double inMicroseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e3; }

}  // namespace

nlohmann::json summaryJson(const DurationHistogram& h) {
  return {{"unit", "us"},
          {"count", h.count()},
          {"sum", inMicroseconds(h.sum())},
          {"mean", inMicroseconds(h.mean())},
          {"p50", inMicroseconds(h.quantile(0.50))},
          {"p90", inMicroseconds(h.quantile(0.90))},
          {"p99", inMicroseconds(h.quantile(0.99))},
          {"max", inMicroseconds(h.max())}};
}

nlohmann::json histogramJson(const DurationHistogram& h) {
  nlohmann::json json = summaryJson(h);
  nlohmann::json buckets = nlohmann::json::array();
  std::uint64_t below = 0;
  for (unsigned bits = kFirstEdgeBits; bits <= kLastEdgeBits && below < h.count(); ++bits) {
    below = h.countBelowPowerOfTwo(bits);
    buckets.push_back({inMicroseconds(Duration(Duration::rep{1} << bits)), below});
  }
  json["buckets"] = std::move(buckets);
  return json;
}

}  // namespace gloo_bypass
