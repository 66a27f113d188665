#include "trainer/metrics/tracing/bucket_readiness.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gloo_bypass::trainer {

BucketReadiness::BucketReadiness(std::vector<int64_t> parameterBytes, int64_t rebuiltAfter)
    : parameterBytes_(std::move(parameterBytes)),
      ready_(parameterBytes_.size()),
      order_(parameterBytes_.size()),
      rebuiltAfter_(rebuiltAfter) {
  std::iota(order_.rbegin(), order_.rend(), size_t{0});
}

std::optional<std::vector<BucketReadiness::Interval>> BucketReadiness::ofBuckets(
    const std::vector<int64_t>& bucketBytes) {
  const bool areAllReady = std::all_of(ready_.begin(), ready_.end(), [](const auto& time) { return time.has_value(); });
  const auto intervals = areAllReady ? cut(bucketBytes) : std::nullopt;
  if (areAllReady && ++backwards_ == rebuiltAfter_) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [this](size_t a, size_t b) { return *ready_[a] < *ready_[b]; });
  }
  std::fill(ready_.begin(), ready_.end(), std::nullopt);
  return intervals;
}

std::optional<std::vector<BucketReadiness::Interval>> BucketReadiness::cut(
    const std::vector<int64_t>& bucketBytes) const {
  std::vector<Interval> intervals;
  auto parameter = order_.begin();
  for (const int64_t wanted : bucketBytes) {
    Interval interval{Time::max(), Time::min()};
    int64_t bytes = 0;
    for (; parameter != order_.end() && bytes < wanted; ++parameter) {
      bytes += parameterBytes_[*parameter];
      interval.first = std::min(interval.first, *ready_[*parameter]);
      interval.last = std::max(interval.last, *ready_[*parameter]);
    }
    if (bytes != wanted || wanted == 0) {
      return std::nullopt;
    }
    intervals.push_back(interval);
  }
  return parameter == order_.end() ? std::optional(intervals) : std::nullopt;
}

}  // namespace gloo_bypass::trainer
