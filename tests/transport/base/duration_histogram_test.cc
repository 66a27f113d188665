// DurationHistogram against the sorted values themselves.
#include "transport/base/duration_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

namespace gloo_bypass {
namespace {

TEST(DurationHistogram_Empty, Everything_IsZero) {
  const DurationHistogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.mean(), Duration(0));
  EXPECT_EQ(h.quantile(0.99), Duration(0));
  EXPECT_EQ(h.countBelowPowerOfTwo(DurationHistogram::kMaxBits), 0u);
}

TEST(DurationHistogram_OneValue, EveryQuantile_IsThatValue) {
  for (const std::int64_t ns :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{15}, std::int64_t{16}, std::int64_t{17}, std::int64_t{1023},
        std::int64_t{3'500}, std::int64_t{1} << 39, std::int64_t{1} << 62}) {
    DurationHistogram h;
    h.add(Duration(ns));
    for (const double q : {0.0, 0.5, 1.0}) EXPECT_EQ(h.quantile(q), Duration(ns)) << q;
    EXPECT_EQ(h.mean(), Duration(ns));
  }
}

TEST(DurationHistogram_BelowZero, Add_CountsAsZero) {
  DurationHistogram h;
  h.add(Duration(-5));
  EXPECT_EQ(h.count(), 1u);
  EXPECT_EQ(h.max(), Duration(0));
  EXPECT_EQ(h.sum(), Duration(0));
}

TEST(DurationHistogram_RandomValues, Quantiles_AreAtMostOneSixteenthAboveTheSortedOnes) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(0, 35);
  std::vector<std::int64_t> values(20'000);
  DurationHistogram h;
  std::int64_t sum = 0;
  for (auto& value : values) {
    value = static_cast<std::int64_t>(std::exp2(exponent(random)));
    sum += value;
    h.add(Duration(value));
  }
  std::sort(values.begin(), values.end());
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto exact = values[static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size()))) - 1];
    EXPECT_GE(h.quantile(q).count(), exact) << q;
    EXPECT_LE(h.quantile(q).count(), exact + exact / 16 + 1) << q;
  }
  EXPECT_EQ(h.sum(), Duration(sum));
  EXPECT_EQ(h.max(), Duration(values.back()));
  for (unsigned bits = DurationHistogram::kSubBits; bits <= DurationHistogram::kMaxBits; ++bits) {
    const auto below = std::lower_bound(values.begin(), values.end(), std::int64_t{1} << bits) - values.begin();
    EXPECT_EQ(h.countBelowPowerOfTwo(bits), static_cast<std::uint64_t>(below)) << bits;
  }
}

TEST(DurationHistogram_Sum, OfTwo_IsAsIfOneHadSeenAll) {
  DurationHistogram a, b, both;
  for (int i = 1; i < 1000; ++i) {
    (i % 3 == 0 ? a : b).add(Duration(i * i));
    both.add(Duration(i * i));
  }
  a += b;
  EXPECT_EQ(a.count(), both.count());
  EXPECT_EQ(a.sum(), both.sum());
  EXPECT_EQ(a.max(), both.max());
  for (const double q : {0.1, 0.5, 0.99}) EXPECT_EQ(a.quantile(q), both.quantile(q));
}

}  // namespace
}  // namespace gloo_bypass
