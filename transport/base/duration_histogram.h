// A histogram of durations in fixed, log-linear buckets, as in HdrHistogram: each power of two is cut into 16, so a
// reported value exceeds the measured one by at most 1/16. Bounded: 4.6 KiB, never grows; adding takes a few
// instructions. Not thread-safe: the owner adds and reads under its own lock (exclusive access, here).
//
// Our own because Debian 12 and 13 have no HdrHistogram for C or C++.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "transport/base/time.h"

namespace gloo_bypass {

class DurationHistogram {
 public:
  static constexpr unsigned kSubBits = 4;
  static constexpr unsigned kMaxBits = 40;  // 2^40 ns, 18 minutes; longer ones are counted in the last bucket
  static constexpr std::size_t kBuckets = ((kMaxBits - kSubBits) + 1) << kSubBits;

  // A duration below zero (a clock that went back) counts as zero.
  void add(Duration duration) {
    const auto ns = static_cast<std::uint64_t>(std::max<Duration::rep>(duration.count(), 0));
    ++buckets_[bucketOf(ns)];
    ++count_;
    sum_ += ns;
    max_ = std::max(max_, ns);
  }

  std::uint64_t count() const { return count_; }
  Duration sum() const { return Duration(static_cast<Duration::rep>(sum_)); }
  Duration max() const { return Duration(static_cast<Duration::rep>(max_)); }
  Duration mean() const { return Duration(static_cast<Duration::rep>(count_ == 0 ? 0 : sum_ / count_)); }

  // The smallest duration that at least `fraction` (0 to 1) of all do not exceed, rounded up to a bucket's upper edge
  // but never above max(). Zero if the histogram is empty.
  Duration quantile(double fraction) const {
    const auto wanted =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(fraction * static_cast<double>(count_) + 0.999999));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets && count_ > 0; ++i) {
      seen += buckets_[i];
      if (seen >= wanted) return Duration(static_cast<Duration::rep>(std::min(highestOf(i), max_)));
    }
    return max();
  }

  // How many were below 2^bits ns; bits from kSubBits to kMaxBits. Exact: a power of two is a bucket's edge.
  std::uint64_t countBelowPowerOfTwo(unsigned bits) const {
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < bucketOf(std::uint64_t{1} << bits); ++i) below += buckets_[i];
    return below;
  }

  DurationHistogram& operator+=(const DurationHistogram& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
    return *this;
  }

 private:
  // Each value below 16 has a bucket. Above, the leading bit selects the row and the next four the column.
  static std::size_t bucketOf(std::uint64_t ns) {
    if (ns < (1u << kSubBits)) return ns;
    const auto leading = static_cast<unsigned>(std::bit_width(ns)) - 1;
    if (leading >= kMaxBits) return kBuckets - 1;
    const std::size_t column = (ns >> (leading - kSubBits)) & ((1u << kSubBits) - 1);
    return ((leading - kSubBits + 1) << kSubBits) + column;
  }
  static std::uint64_t highestOf(std::size_t bucket) {
    if (bucket < (1u << kSubBits)) return bucket;
    if (bucket == kBuckets - 1) return UINT64_MAX;
    const std::size_t row = (bucket >> kSubBits) - 1, column = bucket & ((1u << kSubBits) - 1);
    return (((std::uint64_t{1} << kSubBits) + column + 1) << row) - 1;
  }

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0, sum_ = 0, max_ = 0;
};

}  // namespace gloo_bypass
